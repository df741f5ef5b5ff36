//! Objects in memory: one informer per kind and selection, shared by everybody, kept up to date by list and watch.

mod core;
mod fan;
mod reflect;
mod store;
