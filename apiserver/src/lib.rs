//! A Kubernetes API server that lives inside a process, with the real server's semantics: a test server that does not lie.
//!
//! [`ApiServer`] has three doors. Without a socket, for `kube::Client` in the same process:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use steersman_apiserver::{ApiServer, Fault, Options};
//!
//! let server = ApiServer::new(Options::default())?;
//! let client = kube::Client::new(server.service(), "default");
//! assert_eq!(client.apiserver_version().await?.major, "1");
//!
//! // What a real server does only when you do not want it to:
//! server.faults().add(Fault::on("PATCH widgets/status").status(409).times(2));
//! server.compact(); // watchers from before are told 410
//! let copy = server.fork(); // for a test that goes another way
//! copy.wait_idle().await; // until nothing more will happen by itself
//! # Ok(())
//! # }
//! ```
//!
//! With one, plain or over TLS, for kubectl and every other client: [`ApiServer::listen`]. As a program: `cargo run -p
//! steersman-apiserver`.
//!
//! While every caller is an administrator, sockets answer 403 to requests that a web page of another site can cause: with
//! a host that is neither loopback nor in [`Options::hosts`] (except for `/healthz`, `/livez` and `/readyz`), from another
//! `Origin` or site, or with a browser's body that has no content type.
//!
//! # What is the same as in the real server, and what is not
//! Revisions, watches, pages, conflicts, no-op writes, generations, finalizers, graceful deletion, status and scale, definitions with
//! their schemas, garbage collection, namespaces, discovery, tables, the defaults and checks of Kubernetes' own kinds: each case of
//! `tests/conformance` in the repository's root is answered by a real kube-apiserver and by this one, and compared field by field. What differs
//! is listed in `DIFFERENCES.md`. Kinds that are not registered are 404, never accepted.
//!
//! As on the real server, claims and volumes get the finalizers that protect them; what takes those off runs in the real controller manager,
//! and does not run here: a deleted claim stays, and so does its namespace, until somebody does.
//!
//! Not there yet:
//! * server-side apply and strategic merge patches: 415;
//! * protobuf bodies: 415, and so for `kubectl create ns|deployment|secret …`, which sends them; `kubectl create -f` works;
//! * CEL rules in definitions: ignored;
//! * definitions with webhook conversion: refused, 422;
//! * `OpenAPI` documents, RBAC (who is known may do everything), webhooks.
//!
//! # How it is built
//! A request goes from `http` (what is asked for, and how the answer looks) through `registry` (the pipeline that is the same for
//! every type) to `store` (revisions, tables, the log). What types do differently is data: `builtin` for Kubernetes' own,
//! `crd` for those of definitions, `schema` for what their fields may be. `controllers` run beside it on the same store.

mod activity;
mod admission;
mod auth;
mod browser;
mod builtin;
mod catalog;
mod client_certificate;
mod clock;
mod controllers;
mod crd;
mod cut;
mod decode;
#[cfg(test)]
mod error_texts;
mod faults;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod fuzz;
mod http;
mod journal;
mod jsonpath;
mod kubeconfig;
mod limits;
mod matcher;
mod meta;
mod object;
mod page;
mod patch;
mod persist;
#[cfg(feature = "binary")]
pub mod program;
mod registry;
mod resource;
mod schema;
mod selector;
mod serve;
mod server;
mod status;
mod store;
mod tls;
mod warnings;

pub use admission::{Admission, Operation, Review};
pub use auth::{Authenticator, Identity, TokenFileError};
pub use cut::Closed;
pub use faults::{Fault, FaultError, Faults, RuleHandle};
pub use http::Body;
pub use journal::{Entry, Journal};
pub use kubeconfig::{Credentials, Kubeconfig, TemporaryKubeconfig, WriteError};
pub use limits::ConnectionLimits;
pub use matcher::{Matcher, PatternError};
pub use serve::{ListenError, Running};
pub use server::{ApiServer, Options, Service, StartError};
pub use status::{Cause, Details, Failure, FieldError, FieldErrorKind, Reason};
pub use tls::{Authority, ClientCertificate, ServerCertificate, TlsError};
