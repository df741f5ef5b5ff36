//! The cache as its users have it, on both servers.

mod account;
mod forms;
mod life;
mod queries;
mod reads;
mod support;
