//! Controllers and what they are made of, as their users have them.

mod clusters;
mod deferral;
mod dynamic;
#[path = "../client/held.rs"]
mod held;
mod neighbours;
mod on_servers;
mod spawn;
mod world;
