//! The embedded API server held against the real one: the same cases on both, answers compared field by field.
//!
//! Cases are data (`cases/`, the language is in `script`) or code on kube-rs (`code`). What the real server answered is kept in `golden/`;
//! the embedded one is held against it on every run, and where the real server's binaries are, the real one too.
//! The corpora of the fuzz targets (`corpus`) run here because they need both packages.
//! Generated sequences of operations (`generated`) run on both at once. What may differ stands in `apiserver/DIFFERENCES.md`.
//!
//! `cargo xtask conformance` runs it with the real server, `cargo xtask conformance --record` writes the goldens anew.

mod code;
mod corpus;
mod differences;
mod generated;
mod golden;
mod normal;
mod run;
mod script;
mod servers;
mod suite;
