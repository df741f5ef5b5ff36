//! Integration tests of the embedded API server.

// API behaviour, with requests in the same process.
mod api_semantics;
mod bad_input;
mod test_features;

// Random requests.
mod fuzz;
mod properties;

// Sockets, authentication and the `steersman-apiserver` binary.
mod binary;
mod browsers;
mod crash_recovery;
mod serving;

// Real clients.
mod kube_rs;
mod kubectl;
mod reflector_restarts;

// Helpers.
mod connection;
mod process;
mod support;
