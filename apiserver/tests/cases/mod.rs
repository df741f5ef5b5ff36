//! The cases that catch a toy, by their numbers.

mod kube_watcher;
mod life;
mod lists;
mod model;
mod races;
mod streams;
mod watches;
mod writes;
