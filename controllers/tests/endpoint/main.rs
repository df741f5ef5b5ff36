//! The endpoint's controller, on the embedded server and on the real one.

mod propagation;
mod world;
