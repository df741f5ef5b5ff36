//! The cache as its users have it, on both servers.

mod absent;
mod forms;
mod life;
mod options;
mod reads;
mod resync;
mod rights;
mod support;
mod tenants;
