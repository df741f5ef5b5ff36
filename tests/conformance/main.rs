//! Conformance suite: the same requests to the embedded API server and to a real kube-apiserver,
//! with responses compared field by field.
//!
//! Cases are data (`cases/`, in the language of `script`) or code on kube-rs (`code`). `golden/`
//! holds the recorded responses of the real server. Every run compares the embedded server with
//! them, and the real server too if its binaries are available. Generated sequences of operations
//! (`generated`) run on both servers at once. `apiserver/DIFFERENCES.md` lists the known
//! differences.
//!
//! `cargo xtask conformance` runs the suite with the real server. With `--record` it records the
//! golden files again. The corpora of the fuzz targets (`corpus`) run here because they need both
//! packages.

mod code;
mod corpus;
mod differences;
mod generated;
mod golden;
mod normalize;
mod runner;
mod script;
mod servers;
mod suite;
