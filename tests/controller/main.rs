//! Controllers and what they are made of, as their users have them.

mod support;

mod clusters;
mod deferral;
mod drive;
mod dynamic;
#[path = "../client/held.rs"]
mod held;
mod neighbours;
mod on_servers;
mod sources;
mod spawn;
mod world;
