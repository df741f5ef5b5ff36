//! The endpoint's controller, on the embedded server and on the real one.

mod chaos;
mod counted;
mod ears;
mod health;
#[path = "../../../benches/endpoint/many.rs"]
mod many;
mod propagation;
mod rights;
mod secrecy;
mod wire;
mod world;
