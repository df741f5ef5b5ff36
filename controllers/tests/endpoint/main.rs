//! The endpoint's controller, on the embedded server and on the real one.

mod chaos;
mod propagation;
mod wire;
mod world;
