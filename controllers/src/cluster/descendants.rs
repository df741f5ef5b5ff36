//! Machines and the objects that create them, which are deleted before the control plane.
//!
//! An object belongs to a Cluster by its label `cluster.x-k8s.io/cluster-name`. The CRDs of these
//! kinds do not have to be installed: a kind that is not served has no objects.

use super::role::Role;
use crate::cluster_api::{
    Cluster, Machine, MachineDeployment, MachinePool, MachineSet, MachineStatus, labels, owners,
};
use std::fmt;
use steersman::{
    cache::{CacheError, Index},
    client::{self, DeleteParams, Preconditions},
    object::{KubeObject, Meta, StaticKind},
    prelude::*,
};

/// Kind of a descendant. The order is that of the deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    MachinePool,
    MachineDeployment,
    MachineSet,
    Worker,
    ControlPlaneMachine,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MachinePool => "MachinePool",
            Self::MachineDeployment => "MachineDeployment",
            Self::MachineSet => "MachineSet",
            Self::Worker | Self::ControlPlaneMachine => "Machine",
        })
    }
}

/// Object that belongs to a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descendant {
    pub(super) kind: Kind,
    pub(super) key: ObjectKey,
    uid: String,
    /// An owner reference names the Cluster.
    pub(super) is_owned: bool,
    pub(super) is_deleting: bool,
    /// A Machine that became a node.
    pub(super) has_node: bool,
}

impl Descendant {
    fn new(kind: Kind, object: &impl KubeObject, cluster: &Cluster) -> Self {
        let meta = Meta::from(object.meta());
        Self {
            kind,
            key: ObjectKey::of(object),
            uid: meta.uid().unwrap_or_default().into(),
            is_owned: owners::is_owned_by(meta, cluster),
            is_deleting: meta.is_deleting(),
            has_node: false,
        }
    }

    /// Deletes the object, unless another object of its name has replaced it.
    pub(super) async fn delete(&self, client: &Client) -> client::Result<()> {
        let uid = Some(self.uid.clone());
        let params = DeleteParams::default().preconditions(Preconditions {
            uid,
            resource_version: None,
        });
        let client = client.delete_params(params);
        let deleted = match self.kind {
            Kind::MachinePool => client.delete::<MachinePool>(&self.key).await,
            Kind::MachineDeployment => client.delete::<MachineDeployment>(&self.key).await,
            Kind::MachineSet => client.delete::<MachineSet>(&self.key).await,
            Kind::Worker | Kind::ControlPlaneMachine => client.delete::<Machine>(&self.key).await,
        };
        deleted.map(drop)
    }
}

/// Objects that belong to a Cluster, in the order in which they are deleted.
///
/// Machines of a control plane are missing if the Cluster refers to it, because it deletes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Descendants(pub(super) Vec<Descendant>);

impl Descendants {
    /// Returns whether a Machine of the control plane became a node.
    pub(super) fn have_control_plane_node(&self) -> bool {
        let mut all = self.0.iter();
        all.any(|it| it.kind == Kind::ControlPlaneMachine && it.has_node)
    }

    /// Returns whether a Machine of the control plane that is not being deleted became a node.
    pub(super) fn have_active_control_plane_node(&self) -> bool {
        let mut active = self.0.iter().filter(|it| !it.is_deleting);
        active.any(|it| it.kind == Kind::ControlPlaneMachine && it.has_node)
    }
}

/// Lists the objects by kind, at most five of each.
impl fmt::Display for Descendants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        let kinds = [
            ("Control plane Machines", Kind::ControlPlaneMachine),
            ("MachineDeployments", Kind::MachineDeployment),
            ("MachineSets", Kind::MachineSet),
            ("MachinePools", Kind::MachinePool),
            ("Worker Machines", Kind::Worker),
        ];
        let mut separator = "";
        for (title, kind) in kinds {
            let objects = self.0.iter();
            let mut names: Vec<_> = objects
                .filter(|it| it.kind == kind)
                .map(|it| it.key.name())
                .collect();
            if names.is_empty() {
                continue;
            }
            names.sort_unstable();
            let shown = names[..names.len().min(SHOWN)].join(", ");
            write!(f, "{separator}* {title}: {shown}")?;
            separator = "\n";
            if names.len() > SHOWN {
                write!(f, ", ... ({} more)", names.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}

/// Error of reading the descendants of a Cluster.
#[derive(Debug, thiserror::Error)]
#[error("failed to list {kind}s for cluster {cluster}")]
pub(super) struct ListError {
    kind: Kind,
    cluster: ObjectKey,
    #[source]
    error: CacheError,
}

/// Index of the descendants by Cluster.
#[derive(Debug)]
pub(super) struct DescendantIndex {
    pools: Index<Metadata<MachinePool>, ObjectKey>,
    deployments: Index<Metadata<MachineDeployment>, ObjectKey>,
    sets: Index<Metadata<MachineSet>, ObjectKey>,
    machines: Index<Machine, ObjectKey>,
}

impl DescendantIndex {
    pub(super) fn new(cache: &Cache) -> Result<Self, CacheError> {
        Ok(Self {
            pools: by_cluster(cache)?,
            deployments: by_cluster(cache)?,
            sets: by_cluster(cache)?,
            machines: by_cluster(cache)?,
        })
    }

    /// Returns the objects that belong to a Cluster.
    pub(super) fn of(&self, cluster: &Cluster) -> Result<Descendants, ListError> {
        let mut all = read(&self.pools, Kind::MachinePool, cluster)?;
        all.extend(read(&self.deployments, Kind::MachineDeployment, cluster)?);
        all.extend(read(&self.sets, Kind::MachineSet, cluster)?);
        all.extend(read(&self.machines, Kind::Worker, cluster)?);
        all.sort_by_key(|it| it.kind);
        if Role::ControlPlane.reference(cluster).is_some() {
            all.retain(|it| it.kind != Kind::ControlPlaneMachine);
        }
        Ok(Descendants(all))
    }
}

fn by_cluster<K: StaticKind>(cache: &Cache) -> Result<Index<K, ObjectKey>, CacheError> {
    let informer = cache.informer_of(Select::<K>::new().optional())?;
    Ok(informer.index(|object| {
        let meta = Meta::from(object.meta());
        let namespace = object.meta().namespace.as_deref();
        cluster_of(meta, namespace).into_iter().collect()
    }))
}

/// Returns the Cluster that the label of an object names.
pub(super) fn cluster_of(meta: Meta<'_>, namespace: Option<&str>) -> Option<ObjectKey> {
    let name = meta.labels().get(labels::CLUSTER_NAME)?;
    Some(ObjectKey::new(namespace?, name))
}

/// Returns the objects of a kind. A kind that is not served has none.
fn read<K: Described>(
    index: &Index<K, ObjectKey>,
    kind: Kind,
    cluster: &Cluster,
) -> Result<Vec<Descendant>, ListError> {
    let key = ObjectKey::of(cluster);
    match index.get(&key) {
        Ok(objects) => {
            let objects = objects.iter();
            Ok(objects
                .map(|object| object.describe(kind, cluster))
                .collect())
        }
        Err(CacheError::KindNotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(ListError {
            kind,
            cluster: key,
            error,
        }),
    }
}

/// Object that can be a descendant of a Cluster.
trait Described: KubeObject {
    fn describe(&self, kind: Kind, cluster: &Cluster) -> Descendant {
        Descendant::new(kind, self, cluster)
    }
}

impl Described for Metadata<MachinePool> {}
impl Described for Metadata<MachineDeployment> {}
impl Described for Metadata<MachineSet> {}

impl Described for Machine {
    fn describe(&self, worker: Kind, cluster: &Cluster) -> Descendant {
        let labels = self.metadata.labels.as_ref();
        let is_control_plane = labels.is_some_and(|it| it.contains_key(labels::CONTROL_PLANE));
        let kind = if is_control_plane {
            Kind::ControlPlaneMachine
        } else {
            worker
        };
        Descendant {
            has_node: self.status.as_ref().is_some_and(MachineStatus::has_node),
            ..Descendant::new(kind, self, cluster)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descendants(kind: Kind, names: &[&str]) -> Vec<Descendant> {
        let descendant = |name: &&str| Descendant {
            kind,
            key: ObjectKey::new("farm", name),
            uid: String::new(),
            is_owned: true,
            is_deleting: false,
            has_node: false,
        };
        names.iter().map(descendant).collect()
    }

    #[test]
    fn descendants_are_listed_by_kind_with_at_most_five_names() {
        let all = [
            descendants(Kind::MachinePool, &["mp"]),
            descendants(Kind::MachineDeployment, &["md2", "md1"]),
            descendants(Kind::MachineSet, &["a", "b", "c", "d", "e"]),
            descendants(Kind::Worker, &["f", "a", "b", "c", "d", "e"]),
            descendants(Kind::ControlPlaneMachine, &["cp"]),
        ];
        let text = Descendants(all.concat()).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "* Control plane Machines: cp",
                "* MachineDeployments: md1, md2",
                "* MachineSets: a, b, c, d, e",
                "* MachinePools: mp",
                "* Worker Machines: a, b, c, d, e, ... (1 more)",
            ]
        );
    }
}
