//! API servers for tests of controllers. Feature `testing`.
//!
//! # Servers
//! | server | use it for | needs |
//! |---|---|---|
//! | [`Env::embedded`], or `steersman_apiserver` itself | most tests: paused time, faults, forks, a journal of requests, thousands of servers at once | nothing |
//! | [`Environment`], [`Env::real`] | features that the embedded server does not have (RBAC, server-side apply, webhooks), and to verify the assumptions of a test | etcd and kube-apiserver in `KUBEBUILDER_ASSETS`, as for envtest: `setup-envtest use -p path` installs them and prints their directory; some seconds for each test binary |
//! | [`Environment`] with `USE_EXISTING_CLUSTER=true` | tests that need nodes: running pods, volumes, networks | a kubeconfig |
//!
//! Write a test once with [`env_test!`](crate::env_test), to run it on the first two:
//!
//! ```
//! use steersman::testing::{Env, TestServer};
//!
//! steersman::env_test! {
//!     /// Becomes the tests `alice_has_her_own_namespace::embedded` and `…::real`.
//!     async fn alice_has_her_own_namespace(env: Env) -> anyhow::Result<()> {
//!         let namespace = env.namespace("people").await?;
//!         let client = env.client_as("alice", &["dev"])?;
//!         // … requests of alice …
//!         Ok(())
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! Or start a server explicitly:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube_client::{Api, api::PostParams};
//! use steersman::testing::{Env, TestServer};
//!
//! let env = Env::embedded()?;
//! let namespace = env.namespace("shop").await?;
//! let settings: Api<ConfigMap> = Api::namespaced(env.client()?, &namespace);
//! let made = settings.create(&PostParams::default(), &serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "colors"}, "data": {"door": "blue"},
//! }))?).await?;
//! assert_eq!(settings.get("colors").await?, made);
//! # Ok(())
//! # }
//! ```
//!
//! # Isolation of the real server
//! It listens on loopback only, with certificates of an authority that exists only in the memory of
//! the test. No process is left after the tests, even after a panic or `kill -9`. Its directory is
//! removed as well. After a failure the logs are kept and their location is printed.

// The API: both servers behind one interface, and helpers of tests.
mod definitions;
mod embedded;
mod env;
mod environment;
mod error;
mod eventually;
mod namespaces;
mod options;
mod real;
mod restartable;
mod run;
mod user;

// The processes of the real control plane.
mod binaries;
mod control_plane;
mod directory;
mod flags;
mod own_runtime;
mod program;
mod supervisor;

pub use self::{
    binaries::KUBERNETES_VERSION,
    definitions::read_definitions,
    embedded::Embedded,
    env::{Env, TestServer},
    environment::{Environment, Paused},
    error::Error,
    eventually::eventually,
    options::Options,
    real::Real,
    run::{TestOutput, run_embedded, run_real, started_or_skipped},
    user::User,
};
pub use crate::jitter::{SeededJitter, seed_jitter};
#[doc(inline)]
pub use steersman_testkit::skip;
