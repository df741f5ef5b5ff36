//! The test environments, on the servers themselves. What needs the real one is left out where there is none, and never with `CI=true`.

mod both;
mod embedded;
mod ends;
mod existing;
mod fails;
mod life;
mod shared;
mod support;
