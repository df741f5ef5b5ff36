//! Managers: what runs when, what stops when, who leads, and who says that it is ready.

mod candidates;
mod election;
mod ends;
mod history;
mod leading;
mod order;
mod processes;
mod proxy;
mod support;
