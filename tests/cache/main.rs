//! The cache as its users have it, on both servers.

mod forms;
mod life;
mod options;
mod reads;
mod support;
mod tenants;
