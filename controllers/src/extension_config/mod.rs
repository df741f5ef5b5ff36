//! `ExtensionConfig` of Cluster API, and the Runtime SDK: discovery and calls of runtime extensions.
//!
//! A runtime extension is an HTTPS server with handlers for hooks of Cluster API, such as
//! `BeforeClusterCreate`. An `ExtensionConfig` describes where the server is and for which
//! namespaces its handlers are called.
//!
//! | module or item | for |
//! |---|---|
//! | [`ExtensionConfig`] | the kind, `runtime.cluster.x-k8s.io/v1beta2` |
//! | [`catalog`] | hooks with their request and response types |

pub mod catalog;
mod types;

pub use self::types::{
    ClientConfig, ExtensionConfig, ExtensionConfigSpec, ExtensionConfigStatus, ExtensionHandler,
    FailurePolicy, HookReference, ServiceReference,
};
