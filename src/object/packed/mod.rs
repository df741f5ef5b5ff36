//! Packed JSON: the body of compact objects, in less than half of the size.
//!
//! Objects of a kind have the same field names. Each name is stored once per informer, in
//! [`Names`], and replaced by its number. One byte before each value encodes its type and often its
//! length, instead of quotes, brackets and commas. A pod of 3,051 bytes takes 1,323. Any type is
//! read faster from packed JSON than from text.
//!
//! White space, the escaping of strings, and the format of numbers with a fraction are lost. Fields
//! keep their order, including duplicates. Integers beyond 64 bits become doubles, as in
//! Kubernetes' own clients and in `serde_json::Value`. Values with more than 128 levels, the limit
//! of `serde_json`, are not packed.
//!
//! # Format
//!
//! All bytes outside of strings are below 128, so that the result is valid UTF-8 and can be split
//! without checks.
//!
//! | byte | value |
//! |---|---|
//! | `00` `01` `02` | `null`, `false`, `true` |
//! | `03` digits | integer |
//! | `04` digits | negative integer, as its absolute value minus one |
//! | `05` ten bytes | number with a fraction or exponent, or an integer beyond 64 bits: an IEEE double, seven bits per byte, least significant first |
//! | `06` digits, bytes | string of that length |
//! | `07` digits, (name, value)… | object with this number of fields |
//! | `08` digits, value… | list with this number of values |
//! | `09` string | number as text, if the feature `arbitrary_precision` of `serde_json` is enabled |
//! | `1x` `2x` `3x` | object or list of x; integer x |
//! | `40` … `7F` | string of up to 63 bytes |
//!
//! Digits are in base 64, least significant first, all but the last with `40` added. A name is its
//! number below 112; or `70` to `7E` and one more byte; or `7F` and a string.

mod names;
mod pack;
mod quick;
mod read;

pub(super) use self::{names::Names, pack::Packer, quick::FastParser, read::Packed};

const NULL: u8 = 0x00;
const FALSE: u8 = 0x01;
const TRUE: u8 = 0x02;
const INTEGER: u8 = 0x03;
const NEGATIVE: u8 = 0x04;
const FLOAT: u8 = 0x05;
const STRING: u8 = 0x06;
const OBJECT: u8 = 0x07;
const LIST: u8 = 0x08;
const NUMBER: u8 = 0x09;
const SHORT_OBJECT: u8 = 0x10;
const SHORT_LIST: u8 = 0x20;
const SHORT_INTEGER: u8 = 0x30;
const SHORT_STRING: u8 = 0x40;

/// Upper bound of short objects, lists and integers.
const SHORT: u64 = 0x10;
/// Upper bound of the length of a short string.
const SHORT_LENGTH: usize = 0x40;

/// Bits of a digit, their mask, and the flag that another digit follows.
const DIGIT_BITS: u32 = 6;
const DIGIT: u8 = 0x3F;
const MORE: u8 = 0x40;

/// Bits of a double per byte.
const FLOAT_BITS: u32 = 7;

/// First byte of names with two bytes. Numbers below it take one byte.
const LONG_NAME: u8 = 0x70;
const UNKNOWN_NAME: u8 = 0x7F;
/// Bits in the second byte of a name.
const NAME_BITS: u32 = 7;
/// Maximum of names that have a number.
const NAMES: usize = LONG_NAME as usize + ((UNKNOWN_NAME - LONG_NAME) as usize) * (1 << NAME_BITS);

#[cfg(test)]
mod tests;
