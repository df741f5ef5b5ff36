//! Controller of `ExtensionConfig`s of Cluster API, and its Runtime SDK.
//!
//! A runtime extension is an HTTPS server with handlers for hooks of Cluster API, such as
//! `BeforeClusterCreate`. An `ExtensionConfig` describes where the server is and for which
//! namespaces its handlers are called.
//!
//! 1. The controller ([`add_to`]) asks the server for its handlers, with the hook `Discovery`, and
//!    writes them to the status of the `ExtensionConfig`.
//! 2. It adds the handlers to the [`Registry`]. At the start, a warmup performs both steps for all
//!    `ExtensionConfig`s. Other controllers wait for it with [`Registry::ready`].
//! 3. Other controllers call one handler, or all handlers of a hook, with the
//!    [`RuntimeClient`](client::RuntimeClient).
//!
//! | module or item | for |
//! |---|---|
//! | [`ExtensionConfig`] | the kind, `runtime.cluster.x-k8s.io/v1beta2` |
//! | [`v1alpha1`] | the older API version, with conversions |
//! | [`definitions()`] | the CRD |
//! | [`admission`] | rules that an `ExtensionConfig` must follow |
//! | [`catalog`] | hooks with their request and response types |
//! | [`Registry`] | handlers that can be called |
//! | [`registered_name`], [`split_registered_name`] | names of registered handlers |
//! | [`client`] | discovers and calls extension servers |
//! | [`add_to`], [`Options`] | the controller |
//! | [`roles`] | permissions of the controller |
//! | [`server`] | a runtime extension of your own |
//!
//! | file | content |
//! |---|---|
//! | `controller.rs` | watches of the controller |
//! | `reconciler.rs` | one reconcile |
//! | `ca_bundle.rs` | CA from an annotated Secret |
//! | `discovered.rs` | discovery, and the condition `Discovered` |
//! | `failure_reports.rs` | predicate that drops the events of failure reports |
//! | `read_only.rs` | checks before the registration of handlers that another process discovered |
//! | `warmup.rs` | discovery of all `ExtensionConfig`s at the start |
//! | `go.rs` | Go's text formats, for the error texts of Cluster API |

pub mod admission;
mod ca_bundle;
pub mod catalog;
pub mod client;
mod controller;
mod definition;
mod discovered;
mod failure_reports;
mod go;
mod names;
mod options;
mod read_only;
mod reconciler;
mod registry;
mod roles;
pub mod server;
mod types;
pub mod v1alpha1;
mod warmup;

pub use self::{
    ca_bundle::INJECT_CA_FROM_SECRET,
    controller::{Error, add_to},
    definition::definitions,
    discovered::{
        CA_SECRET_INVALID_REASON, CA_SECRET_NOT_FOUND_REASON, DISCOVERED, DISCOVERED_REASON,
        NOT_DISCOVERED_REASON,
    },
    names::{NameError, registered_name, split_registered_name},
    options::{Options, WarmupPolicy},
    registry::{
        AddError, DEFAULT_TIMEOUT, HandlerError, NamespaceSelector, Registration, Registry,
        RegistryError, SelectorError,
    },
    roles::roles,
    types::{
        ClientConfig, ExtensionConfig, ExtensionConfigSpec, ExtensionConfigStatus,
        ExtensionHandler, FailurePolicy, HookReference, ServiceReference,
    },
};
