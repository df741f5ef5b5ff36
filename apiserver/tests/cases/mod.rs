//! The cases that catch a toy, by their numbers.

mod life;
mod lists;
mod races;
mod streams;
mod watches;
mod writes;
