//! The cache as its users have it, on both servers.

mod chaos;
mod convergence;
mod forms;
mod ledger;
mod life;
mod reads;
mod schedule;
mod soak;
mod support;
