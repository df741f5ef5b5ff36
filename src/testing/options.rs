//! Settings of an environment.

use std::{path::PathBuf, time::Duration};

/// Settings of an [`Environment`](super::Environment). The defaults are those of envtest.
///
/// ```
/// use steersman::testing::Options;
///
/// let options = Options {
///     controller_manager: true,
///     api_server_flags: vec!["--feature-gates=WatchList=false".into()],
///     ..Options::default()
/// };
/// assert_eq!(options.existing_cluster, None);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory that has `etcd` and `kube-apiserver`. Default: none, they are looked for: in `KUBEBUILDER_ASSETS`, in
    /// `${XDG_CACHE_HOME:-$HOME/.cache}/steersman/envtest/` by version, in `/usr/local/kubebuilder/bin`.
    pub binaries: Option<PathBuf>,
    /// Use the cluster of the kubeconfig, and start nothing. Default: none, what `USE_EXISTING_CLUSTER` says (`true` or not).
    pub existing_cluster: Option<bool>,
    /// Run a controller manager, too, with its garbage collector and its namespace controller: without them nothing collects the
    /// dependents of a deleted object, and deleted namespaces stay `Terminating`. Default: false.
    pub controller_manager: bool,
    /// Further flags of kube-apiserver: one that is already there is overridden. Default: none.
    pub api_server_flags: Vec<String>,
    /// Further flags of etcd, likewise. Default: none.
    pub etcd_flags: Vec<String>,
    /// Further flags of kube-controller-manager, likewise. Default: none.
    pub controller_manager_flags: Vec<String>,
    /// How long each program may take to be healthy, also after a restart. Default: 60 seconds.
    pub start_timeout: Duration,
    /// How long kube-apiserver may take to end by itself in a restart, before it is killed. Default: 10 seconds.
    pub restart_grace: Duration,
    /// Keep the logs when the environment ends. Default: false, only those of failures.
    pub keep_logs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            binaries: None,
            existing_cluster: None,
            controller_manager: false,
            api_server_flags: Vec::new(),
            etcd_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
            start_timeout: Duration::from_mins(1),
            restart_grace: Duration::from_secs(10),
            keep_logs: false,
        }
    }
}
