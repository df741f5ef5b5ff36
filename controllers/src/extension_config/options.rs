//! Settings of the controller.

use std::time::Duration;

/// Settings of the controller.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Registers handlers that another process has discovered, and writes nothing. Default: false.
    ///
    /// Use it in a second process that calls extensions, or where another system manages the
    /// `ExtensionConfig`s. Such a controller neither calls the extensions to discover their
    /// handlers nor reads Secrets.
    pub read_only: bool,
    /// Policy for extensions that fail at the start. Default: [`WarmupPolicy::Strict`].
    pub warmup: WarmupPolicy,
    /// Time limit of the warmup with [`WarmupPolicy::Strict`]. Default: 60 s.
    pub warmup_timeout: Option<Duration>,
    /// Number of `ExtensionConfig`s reconciled concurrently. Default: 100.
    ///
    /// Most of a reconcile is waiting for the extension, up to 10 s if it does not answer. A low
    /// number lets such extensions delay the reconciles of others.
    pub workers: Option<usize>,
    /// Reconciles only objects whose label `cluster.x-k8s.io/watch-filter` has this value.
    ///
    /// Default: empty, which means all objects. The warmup reads only these, too.
    pub watch_filter: String,
}

/// Policy for `ExtensionConfig`s whose handlers cannot be discovered at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmupPolicy {
    /// Retries every 2 s. After [`Options::warmup_timeout`], the manager ends with an error.
    ///
    /// No hook is called before all extensions were discovered, as in Cluster API.
    #[default]
    Strict,
    /// Registers the other extensions, and leaves the failed ones to the controller.
    ///
    /// One unreachable extension does not keep the process from starting. Its hooks are not called
    /// until the controller has discovered it.
    Lenient,
}
