//! The cache as its users have it, on both servers.

mod absent;
mod account;
mod asking;
mod between;
mod chaos;
mod convergence;
mod faulty;
mod forms;
mod ledger;
mod life;
mod logs;
mod options;
mod queries;
mod reads;
mod resync;
mod rights;
mod schedule;
mod soak;
mod socket;
mod stubborn;
mod support;
mod tenants;
mod turns;
mod views;
