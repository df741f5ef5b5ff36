//! Managers: what runs when, what stops when, who leads, and who says that it is ready.

mod admin;
mod again;
mod browsers;
mod candidates;
mod clusters;
mod election;
mod ends;
mod health;
mod history;
mod leading;
mod limits;
mod lint;
mod metrics;
mod order;
mod pair;
mod processes;
mod proxy;
mod recorder;
mod shutdown;
mod signals;
mod support;
mod web;
