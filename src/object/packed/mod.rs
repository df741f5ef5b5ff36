//! The body of an object that is kept compact: JSON in less than half its room, from which any type is read faster than from the text.
//!
//! Objects of a kind say the same names again and again, and punctuation. So a name is written down once for an informer, in [`Names`], and its number
//! stands for it; what a value is, and how long, is said by one byte before it instead of by quotes, brackets and commas around it. Of a pod's 3,051 bytes
//! 1,323 are left. Nothing is lost but white space, how a string was escaped, and how a number with a
//! fraction was written; fields keep their order, be they there twice. Integers beyond 64 bits become doubles, as they do for Kubernetes' own clients and for
//! `serde_json::Value`. What is nested deeper than `serde_json` reads, 128 levels, is not packed.
//!
//! # Format
//! Every byte that is not of a string is below 128, so that the whole is text and any part of it can be taken without being looked at again.
//!
//! | byte | value |
//! |---|---|
//! | `00` `01` `02` | `null`, `false`, `true` |
//! | `03` digits | an integer |
//! | `04` digits | a negative integer, as one less than its absolute value |
//! | `05` ten bytes | a number with a fraction or an exponent, or an integer beyond 64 bits: an IEEE double, seven bits a byte, the least first |
//! | `06` digits, bytes | a string of that length |
//! | `07` digits, (name, value)… | an object of so many fields |
//! | `08` digits, value… | a list of so many values |
//! | `09` string | a number as it came, where `serde_json` is built to keep that (its feature `arbitrary_precision`) |
//! | `1x` `2x` `3x` | an object, a list of x; the integer x |
//! | `40` … `7F` | a string of up to 63 bytes |
//!
//! Digits are to the base of 64, the least first, all but the last with `40` added. A name is its number below 112; or `70` to `7E` and one byte more; or `7F` and a string.

mod names;
mod pack;
mod quick;
mod read;

pub(super) use self::{names::Names, pack::Pen, quick::Quick, read::Packed};

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

/// What a short object, list or integer is below.
const SHORT: u64 = 0x10;
/// What the length of a short string is below.
const SHORT_LENGTH: usize = 0x40;

/// A digit, and what says that another one follows.
const DIGIT_BITS: u32 = 6;
const DIGIT: u8 = 0x3F;
const MORE: u8 = 0x40;

/// A double has so many bits in each byte.
const FLOAT_BITS: u32 = 7;

/// Numbers of names that take one byte are below this, which begins those that take two.
const LONG_NAME: u8 = 0x70;
const UNKNOWN_NAME: u8 = 0x7F;
/// A name of two bytes has so many bits in its second one.
const NAME_BITS: u32 = 7;
/// How many names have a number at the most.
const NAMES: usize = LONG_NAME as usize + ((UNKNOWN_NAME - LONG_NAME) as usize) * (1 << NAME_BITS);

#[cfg(test)]
mod tests;
