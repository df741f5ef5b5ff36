//! The cases that catch a toy, by their numbers.

mod admission;
mod builtins;
mod definitions;
mod deletion;
mod discovery;
mod garbage;
mod life;
mod metadata;
mod namespaces;
mod patches;
mod shapes;
mod subresources;
mod validation;
