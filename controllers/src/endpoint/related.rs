//! Who belongs to whom: control plane, apply, workspace, secret, cluster. What happens to one of them is for the control planes that depend on it.
//!
//! ```text
//! CAPTControlPlane -> WorkspaceTemplateApply -> Workspace -> Secret
//!        |
//!        v
//!     Cluster
//! ```

use super::{
    Options,
    sources::secret_of,
    types::{CAPTControlPlane, Cluster, WorkspaceTemplateApply, workspace_kind},
};
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use steersman::{
    cache::{CacheError, Index},
    prelude::*,
};

/// By which the Cluster API says what belongs to which cluster.
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const CLUSTER_GROUP: &str = "cluster.x-k8s.io";

/// What can be selected of each kind.
pub(super) struct Selections {
    pub(super) applies: Select<WorkspaceTemplateApply>,
    pub(super) workspaces: Select<DynamicObject>,
    pub(super) secrets: Select<Metadata<Secret>>,
    pub(super) clusters: Select<Cluster>,
}

impl Selections {
    /// Whose definitions may come later.
    pub(super) fn new(options: &Options) -> Self {
        let secrets = Select::<Metadata<Secret>>::new().optional();
        let secrets = match &options.secrets {
            super::Secrets::Connections => secrets.fields("type=connection.crossplane.io/v1alpha1"),
            super::Secrets::Labelled(selector) => secrets.labels(selector),
        };
        Self {
            applies: Select::new().optional(),
            workspaces: Select::dynamic(workspace_kind()).optional(),
            secrets,
            clusters: Select::new().optional(),
        }
    }
}

/// The way back, from what is referred to. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Related {
    planes: Index<CAPTControlPlane, ObjectKey>,
    of_cluster: Index<CAPTControlPlane, ObjectKey>,
    /// By name: a workspace may have no namespace.
    applies: Index<WorkspaceTemplateApply, String>,
    workspaces: Index<DynamicObject, ObjectKey>,
}

impl Related {
    pub(super) fn new(cache: &Cache, selections: &Selections) -> Result<Self, CacheError> {
        let planes = cache.informer::<CAPTControlPlane>()?;
        let applies = cache.informer_of(selections.applies.clone())?;
        let workspaces = cache.informer_of(selections.workspaces.clone())?;
        Ok(Self {
            planes: planes.index(|plane| vec![apply_of(plane)]),
            of_cluster: planes.index(|plane| vec![cluster_of(plane)]),
            applies: applies
                .index(|apply| apply.status.iter().filter_map(|status| status.workspace_name.clone()).collect()),
            workspaces: workspaces.index(|workspace| secret_of(&workspace.data).ok().flatten().into_iter().collect()),
        })
    }

    pub(super) fn planes_of_apply(&self, apply: &ObjectKey) -> Vec<Request> {
        self.planes.keys(apply)
    }

    pub(super) fn planes_of_workspace(&self, workspace: &ObjectKey) -> Vec<Request> {
        let applies = self.applies.keys(&workspace.name().to_owned());
        let near =
            |apply: &ObjectKey| workspace.namespace().is_none_or(|namespace| apply.namespace() == Some(namespace));
        applies.iter().filter(|apply| near(apply)).flat_map(|apply| self.planes_of_apply(apply)).collect()
    }

    pub(super) fn planes_of_secret(&self, secret: &ObjectKey) -> Vec<Request> {
        let workspaces = self.workspaces.keys(secret);
        workspaces.iter().flat_map(|workspace| self.planes_of_workspace(workspace)).collect()
    }

    pub(super) fn planes_of_cluster(&self, cluster: &ObjectKey) -> Vec<Request> {
        self.of_cluster.keys(cluster)
    }
}

/// The apply that makes a control plane's workspace.
pub(super) fn apply_of(plane: &CAPTControlPlane) -> ObjectKey {
    let (namespace, name) = parts(plane);
    match &plane.spec.workspace_template_apply_name {
        Some(apply) if !apply.is_empty() => ObjectKey::new(namespace, apply),
        _ => ObjectKey::new(namespace, &format!("{name}-eks-controlplane-apply")),
    }
}

/// The cluster that a control plane is of: its owner, or by its label, or by its name.
pub(super) fn cluster_of(plane: &CAPTControlPlane) -> ObjectKey {
    let (namespace, name) = parts(plane);
    let owners = plane.metadata.owner_references.iter().flatten();
    let mut clusters = owners.filter(|owner| {
        owner.kind == "Cluster" && owner.api_version.split_once('/').is_some_and(|(group, _)| group == CLUSTER_GROUP)
    });
    let label =
        || plane.metadata.labels.as_ref()?.get(CLUSTER_LABEL).map(String::as_str).filter(|name| !name.is_empty());
    let cluster = clusters.next().map(|owner| owner.name.as_str()).or_else(label);
    ObjectKey::new(namespace, cluster.unwrap_or(name))
}

/// Namespace and name, which everything that was read has.
fn parts(plane: &CAPTControlPlane) -> (&str, &str) {
    let text = Option::as_deref;
    (text(&plane.metadata.namespace).unwrap_or_default(), text(&plane.metadata.name).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plane(metadata: serde_json::Value, apply: Option<&str>) -> CAPTControlPlane {
        let spec =
            json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}, "workspaceTemplateApplyName": apply});
        let mut plane = json!({"metadata": {"namespace": "shop", "name": "plane"}, "spec": spec});
        plane["metadata"].as_object_mut().expect("an object").extend(metadata.as_object().expect("one").clone());
        serde_json::from_value(plane).expect("a control plane")
    }

    #[test]
    fn an_apply_is_the_one_that_is_named_or_has_the_name_of_the_control_plane() {
        assert_eq!(apply_of(&plane(json!({}), Some("mine"))), ObjectKey::new("shop", "mine"));
        assert_eq!(apply_of(&plane(json!({}), None)), ObjectKey::new("shop", "plane-eks-controlplane-apply"));
    }

    #[test]
    fn a_cluster_is_the_owner_then_the_label_then_the_name() {
        let owner = |api_version: &str, kind: &str| json!([{"apiVersion": api_version, "kind": kind, "name": "owner", "uid": "1"}]);
        let labels = json!({CLUSTER_LABEL: "labelled"});
        let cluster = |metadata| cluster_of(&plane(metadata, None)).name().to_owned();
        let owned = json!({"ownerReferences": owner("cluster.x-k8s.io/v1beta2", "Cluster"), "labels": labels});
        assert_eq!(cluster(owned), "owner", "in whichever version");
        for (api_version, kind) in [("other.io/v1", "Cluster"), ("cluster.x-k8s.io/v1beta1", "Machine")] {
            assert_eq!(cluster(json!({"ownerReferences": owner(api_version, kind), "labels": labels})), "labelled");
        }
        assert_eq!(cluster(json!({})), "plane");
    }
}
