//! The cases that catch a toy, by their numbers.

mod admission;
mod builtins;
mod definitions;
mod deletion;
mod discovery;
mod garbage;
mod kube_watcher;
mod life;
mod lifecycles;
mod lists;
mod metadata;
mod model;
mod namespaces;
mod patches;
mod races;
mod shapes;
mod streams;
mod subresources;
mod validation;
mod watches;
mod writes;
