//! The endpoint's controller, on the embedded server and on the real one.

mod alone;
mod between;
mod chaos;
mod claims;
mod counted;
mod decisions;
mod ears;
mod errors;
mod health;
mod heard;
#[path = "../../../benches/endpoint/many.rs"]
mod many;
mod propagation;
mod rights;
mod scope;
mod secrecy;
mod watched;
mod wire;
mod world;
mod writes;
