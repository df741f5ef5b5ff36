//! The server from outside: requests and what comes back.

mod bad_input;
mod binary;
mod browsers;
mod cases;
mod doors;
mod fuzz;
mod kills;
mod kube_rs;
mod kubectl;
mod powers;
mod process;
mod properties;
mod restarts;
mod support;
mod wire;
