//! The endpoint's controller, on the embedded server and on the real one.

mod chaos;
mod ears;
mod propagation;
mod secrecy;
mod wire;
mod world;
