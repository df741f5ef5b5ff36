//! A Kubernetes API server inside a process, with the semantics of kube-apiserver.
//!
//! Use it in tests, and wherever a controller needs an API server without a cluster. [`ApiServer`]
//! can be called in three ways. Clients in the same process need no socket:
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
//! // Failures that a test cannot provoke on a real server:
//! server.faults().add(Fault::on("PATCH widgets/status").status(409).times(2));
//! server.compact(); // older watches get 410
//! let copy = server.fork(); // an independent copy of the current state
//! copy.wait_idle().await; // until no request, controller or watcher has work left
//! # Ok(())
//! # }
//! ```
//!
//! kubectl and other programs connect to a socket, plain or over TLS: [`ApiServer::listen`]. The
//! binary `steersman-apiserver` runs a server on its own: `cargo run -p steersman-apiserver`.
//!
//! While every caller is an administrator, sockets reject requests that a web page of another site
//! could cause with 403: those with a host that is neither loopback nor in [`Options::hosts`]
//! (except for `/healthz` and `/readyz`), with another `Origin` or site, or with a body
//! from a browser that has no content type.
//!
//! # Compatibility
//!
//! Resource versions, watches, pagination, conflicts, no-op writes, generations, finalizers,
//! graceful deletion, the status and scale subresources, CRDs with their schemas and CEL rules,
//! garbage collection, namespaces, discovery, tables, and the defaults and validation of the
//! built-in kinds are those of kube-apiserver. The suite `tests/conformance` in the root of the repository runs
//! each case on both servers and compares the responses field by field. `DIFFERENCES.md` lists the
//! differences. Kinds that are not registered get 404.
//!
//! As in kube-apiserver, claims (`PersistentVolumeClaim`) and volumes (`PersistentVolume`) get
//! protection finalizers. The controllers that remove them belong to the kube-controller-manager and
//! do not run here: a deleted claim, and with it its namespace, stays until a client removes the
//! finalizer.
//!
//! Not supported yet:
//! * server-side apply and strategic merge patches: 415;
//! * protobuf bodies: 415. `kubectl create ns|deployment|secret …` sends them;
//! * `OpenAPI` documents. `kubectl create -f` needs `--validate=false`, since it validates with them;
//! * CRDs with webhook conversion: 422;
//! * RBAC: every authenticated user may do everything. Requests with `Impersonate-*` headers: 403;
//! * webhooks.
//!
//! # Architecture
//!
//! `http` parses a request and encodes its response. `registry` is the write and read pipeline that
//! all resources share. `store` holds the objects, their revisions and the history for watches.
//! Differences between resources are data: `builtin` describes the built-in kinds, `crd` those of
//! CRDs, and `schema` their fields. `controllers` run on the same store.

// The server, and what tests do with it.
mod activity;
mod clock;
mod dropped_connection;
mod faults;
mod journal;
mod matcher;
mod server;

// Sockets, callers and the binary.
mod auth;
mod browser;
mod client_certificate;
mod kubeconfig;
mod limits;
#[cfg(feature = "binary")]
pub mod program;
mod serve;
mod tls;

// From a request to the store.
mod admission;
mod decode;
mod http;
mod page;
mod patch;
mod registry;
mod selector;
mod status;
mod warnings;

// Descriptions of the resources.
mod builtin;
mod catalog;
mod crd;
mod jsonpath;
mod resource;
mod schema;

// Objects, their storage, and the controllers that run on it.
mod controllers;
mod meta;
mod object;
mod persist;
mod store;

#[cfg(test)]
mod error_texts;
#[cfg(feature = "__internals")]
#[doc(hidden)]
pub mod fuzz;

pub use admission::{Admission, Operation, Review};
pub use auth::{Authenticator, Identity, TokenFileError};
pub use dropped_connection::Closed;
pub use faults::{Fault, FaultError, Faults, RuleHandle};
pub use http::Body;
pub use journal::{Journal, JournalEntry};
pub use kubeconfig::{Credentials, Kubeconfig, KubeconfigWriteError, TemporaryKubeconfig};
pub use limits::ConnectionLimits;
pub use matcher::{Matcher, PatternError};
pub use serve::{ListenError, RunningServer};
pub use server::{ApiServer, Options, Service, StartError};
pub use status::{Cause, Details, Failure, FieldError, FieldErrorKind, Reason};
pub use tls::{Authority, ClientCertificate, ServerCertificate, TlsError};
