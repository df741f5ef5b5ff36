//! Managers: what runs when, what stops when, and who says that it is ready.

mod ends;
mod order;
mod support;
