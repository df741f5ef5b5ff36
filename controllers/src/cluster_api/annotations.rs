//! Keys of annotations that Cluster API uses.

/// Excludes an object from being reconciled. Its value has no meaning.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// Name of the external system that manages an infrastructure cluster.
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
/// Name of the template that an object was cloned from.
pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
/// Kind and group of the template that an object was cloned from, as `Kind.group`.
pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";
/// Replicas are managed by a system outside of Cluster API.
pub const REPLICAS_MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";
/// Gives a Machine priority for deletion when its owner scales down.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// Excludes a Machine from remediation.
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
/// Requests remediation of a Machine.
pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
