//! Options of an environment.

use std::{path::PathBuf, time::Duration};

/// Options of an [`Environment`](super::Environment).
///
/// The defaults are those of envtest.
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
    /// Directory with `etcd` and `kube-apiserver`.
    ///
    /// Default: the first of `KUBEBUILDER_ASSETS`,
    /// `${XDG_CACHE_HOME:-$HOME/.cache}/steersman/envtest/` by version, and
    /// `/usr/local/kubebuilder/bin`.
    pub binaries: Option<PathBuf>,
    /// Uses the cluster of the kubeconfig and starts nothing.
    ///
    /// Default: the value of `USE_EXISTING_CLUSTER`.
    pub existing_cluster: Option<bool>,
    /// Runs a controller manager with garbage collector and namespace controller.
    ///
    /// Without it, dependents of deleted objects are not collected, and deleted namespaces stay
    /// `Terminating`. Default: false.
    pub controller_manager: bool,
    /// Additional flags of kube-apiserver, which override existing ones.
    ///
    /// Default: none.
    pub api_server_flags: Vec<String>,
    /// Additional flags of etcd, which override existing ones. Default: none.
    pub etcd_flags: Vec<String>,
    /// Additional flags of kube-controller-manager. Default: none.
    ///
    /// They override existing ones.
    pub controller_manager_flags: Vec<String>,
    /// Time for each program to become healthy, also after a restart. Default: 60 s.
    pub start_timeout: Duration,
    /// Time for kube-apiserver to end in a restart before it is killed. Default: 10 s.
    pub restart_grace: Duration,
    /// Keeps the logs when the environment ends. Default: false, only after failures.
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
