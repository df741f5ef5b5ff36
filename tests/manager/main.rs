//! What runs a program, on the servers themselves.

mod candidates;
mod election;
mod history;
mod processes;
mod proxy;
