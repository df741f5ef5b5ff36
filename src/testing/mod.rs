//! Servers to test controllers on: an embedded one that is ready in a millisecond, the real kube-apiserver, an existing cluster. Feature `testing`.
//!
//! # Which one
//! | | use it for | needs |
//! |---|---|---|
//! | [`Env::embedded`], or `steersman_apiserver` itself | almost everything: paused time, faults, forks, a journal of requests, thousands of servers at once | nothing |
//! | [`Environment`], [`Env::real`] | what the embedded server has not (RBAC, CEL, server-side apply, webhooks), and as the judge of whether a test assumes what is so | etcd and kube-apiserver: `cargo xtask envtest`, or `KUBEBUILDER_ASSETS` as for envtest; some seconds for each test binary |
//! | the same with `USE_EXISTING_CLUSTER=true` | what needs nodes: pods that run, volumes, networks | a kubeconfig |
//!
//! Write a test once, by [`env_test!`](crate::env_test), and it runs on the first two:
//!
//! ```
//! use steersman::testing::{Env, TestServer};
//!
//! steersman::env_test! {
//!     /// Becomes the tests `somebody_is_who_they_are::embedded` and `…::real`.
//!     async fn somebody_is_who_they_are(env: Env) -> anyhow::Result<()> {
//!         let namespace = env.namespace("people").await?;
//!         let client = env.client_as("alice", &["dev"])?;
//!         // … what alice does in her namespace …
//!         Ok(())
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! Or with a server at hand:
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
//! # What is promised of the real server
//! It listens on loopback only, with certificates of an authority that exists in the test's memory alone. No process of it is left after
//! the tests: not after a panic, not after `kill -9`. Its directory goes with it; after a failure the logs stay, and it is said where they are.

mod apart;
mod binaries;
mod control_plane;
mod cut;
mod definitions;
mod directory;
mod embedded;
mod env;
mod environment;
mod error;
mod flags;
mod namespaces;
mod options;
mod program;
mod real;
mod run;
mod supervisor;
mod user;

pub use self::{
    binaries::KUBERNETES_VERSION,
    definitions::read_definitions,
    embedded::Embedded,
    env::{Env, TestServer},
    environment::{Environment, Paused},
    error::Error,
    options::Options,
    real::Real,
    run::{TestOutput, or_left_out, run_embedded, run_real},
    user::User,
};
#[doc(inline)]
pub use steersman_testkit::skip;
