//! Objects in memory: one informer per kind and selection, shared by everybody, kept up to date by list and watch.

#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "used by the informer"))]
mod fan;
mod store;
