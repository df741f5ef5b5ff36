//! The server from outside: requests and what comes back.

mod bad_input;
mod cases;
mod fuzz;
mod powers;
mod properties;
mod support;
