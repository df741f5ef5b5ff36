//! Controllers and what they are made of, as their users have them.

mod deferral;
#[path = "../client/held.rs"]
mod held;
mod on_servers;
mod world;
