//! The cases that catch a toy, by their numbers.

mod life;
mod writes;
