//! The server from outside: requests and what comes back.

mod bad_input;
mod cases;
mod powers;
mod support;
