//! Semantics of the Kubernetes API, one file per area.

// Reads and watches.
mod discovery;
mod kube_watcher;
mod lists;
mod media_types;
mod watch_lifecycle;
mod watches;

// Writes.
mod admission;
mod deletion;
mod metadata;
mod patches;
mod subresources;
mod validation;
mod writes;

// Kinds and the controllers that run inside the server.
mod builtin_kinds;
mod crds;
mod garbage_collection;
mod lifecycles;
mod namespaces;

// Random sequences of requests, sequential and concurrent.
mod races;
mod refusals;
mod request_sequences;
