//! Managers: what runs when, what stops when, who leads, and who says that it is ready.

mod admin;
mod again;
mod candidates;
mod election;
mod ends;
mod history;
mod leading;
mod lint;
mod metrics;
mod order;
mod processes;
mod proxy;
mod recorder;
mod support;
mod web;
