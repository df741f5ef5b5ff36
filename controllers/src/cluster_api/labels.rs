//! Keys of labels that Cluster API uses.

/// Name of the Cluster that an object belongs to.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Value that selects the controllers which reconcile an object.
pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
/// Marks Machines of the control plane. Its value is empty.
pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// Name of the control plane that a Machine belongs to.
pub const CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
/// Name of the `MachineDeployment` that a Machine belongs to.
pub const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
/// Name of the `MachineSet` that a Machine belongs to.
pub const SET_NAME: &str = "cluster.x-k8s.io/set-name";
/// Name of the `MachinePool` that a Machine belongs to.
pub const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
/// Name of the provider that a component of its manifest belongs to.
pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
/// Marks objects that the topology of a Cluster manages.
pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";
/// Name of the `MachineDeployment` topology from which an object was generated.
pub const TOPOLOGY_DEPLOYMENT_NAME: &str = "topology.cluster.x-k8s.io/deployment-name";
/// Name of the `MachinePool` topology from which an object was generated.
pub const TOPOLOGY_POOL_NAME: &str = "topology.cluster.x-k8s.io/pool-name";
/// Marks nodes that can be interrupted.
pub const INTERRUPTIBLE: &str = "cluster.x-k8s.io/interruptible";
