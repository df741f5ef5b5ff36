//! The cases that catch a toy, by their numbers.

mod life;
mod streams;
mod watches;
mod writes;
