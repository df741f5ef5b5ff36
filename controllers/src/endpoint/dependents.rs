//! Maps events of the sources of an endpoint to the control planes that depend on them.
//!
//! ```text
//! CAPTControlPlane -> WorkspaceTemplateApply -> Workspace -> Secret
//! ```

use super::{
    Options,
    sources::secret_of,
    types::{CAPTControlPlane, WorkspaceTemplateApply, workspace_kind},
};
use crate::cluster_api::Cluster;
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use steersman::{
    cache::{CacheError, Index},
    prelude::*,
};

/// Selectors of the watched kinds.
pub(super) struct WatchedKinds {
    /// Compact, because the cluster controller reads the same objects without their type.
    pub(super) planes: Select<CAPTControlPlane>,
    pub(super) applies: Select<WorkspaceTemplateApply>,
    pub(super) workspaces: Select<DynamicObject>,
    pub(super) secrets: Select<Metadata<Secret>>,
    pub(super) clusters: Select<Cluster>,
}

impl WatchedKinds {
    /// Creates the selectors. The CRDs of these kinds may be installed later.
    pub(super) fn new(options: &Options) -> Self {
        let secrets = Select::<Metadata<Secret>>::new().optional();
        let secrets = match &options.secrets {
            super::Secrets::Connections => secrets.fields("type=connection.crossplane.io/v1alpha1"),
            super::Secrets::Labelled(selector) => secrets.labels(selector),
        };
        Self {
            planes: Select::new().compact(),
            applies: Select::new().optional(),
            workspaces: Select::dynamic(workspace_kind()).optional(),
            secrets,
            clusters: Select::new().optional(),
        }
    }
}

/// Indexes from a source to the control planes that depend on it.
///
/// Clones share them.
#[derive(Clone, Debug)]
pub(super) struct DependentPlanes {
    planes: Index<CAPTControlPlane, ObjectKey>,
    /// Keyed by name, because a workspace may be cluster-scoped.
    applies: Index<WorkspaceTemplateApply, String>,
    workspaces: Index<DynamicObject, ObjectKey>,
}

impl DependentPlanes {
    pub(super) fn new(cache: &Cache, watched_kinds: &WatchedKinds) -> Result<Self, CacheError> {
        let planes = cache.informer_of(watched_kinds.planes.clone())?;
        let applies = cache.informer_of(watched_kinds.applies.clone())?;
        let workspaces = cache.informer_of(watched_kinds.workspaces.clone())?;
        Ok(Self {
            planes: planes.index(|plane| vec![apply_of(plane)]),
            applies: applies.index(|apply| {
                apply
                    .status
                    .iter()
                    .filter_map(|status| status.workspace_name.clone())
                    .collect()
            }),
            workspaces: workspaces.index(|workspace| {
                secret_of(&workspace.data)
                    .ok()
                    .flatten()
                    .into_iter()
                    .collect()
            }),
        })
    }

    pub(super) fn planes_of_apply(&self, apply: &ObjectKey) -> Vec<Request> {
        self.planes.keys(apply)
    }

    pub(super) fn planes_of_workspace(&self, workspace: &ObjectKey) -> Vec<Request> {
        let applies = self.applies.keys(&workspace.name().to_owned());
        let in_namespace = |apply: &ObjectKey| {
            workspace
                .namespace()
                .is_none_or(|namespace| apply.namespace() == Some(namespace))
        };
        applies
            .iter()
            .filter(|apply| in_namespace(apply))
            .flat_map(|apply| self.planes_of_apply(apply))
            .collect()
    }

    pub(super) fn planes_of_secret(&self, secret: &ObjectKey) -> Vec<Request> {
        let workspaces = self.workspaces.keys(secret);
        workspaces
            .iter()
            .flat_map(|workspace| self.planes_of_workspace(workspace))
            .collect()
    }
}

/// Returns the `WorkspaceTemplateApply` of a control plane's workspace.
pub(super) fn apply_of(plane: &CAPTControlPlane) -> ObjectKey {
    let (namespace, name) = namespace_and_name(plane);
    match &plane.spec.workspace_template_apply_name {
        Some(apply) if !apply.is_empty() => ObjectKey::new(namespace, apply),
        _ => ObjectKey::new(namespace, format!("{name}-eks-controlplane-apply")),
    }
}

/// Returns namespace and name, which every object from the API server has.
pub(super) fn namespace_and_name(plane: &CAPTControlPlane) -> (&str, &str) {
    let text = Option::as_deref;
    (
        text(&plane.metadata.namespace).unwrap_or_default(),
        text(&plane.metadata.name).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plane(apply: Option<&str>) -> CAPTControlPlane {
        let spec = json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}, "workspaceTemplateApplyName": apply});
        let plane = json!({"metadata": {"namespace": "shop", "name": "plane"}, "spec": spec});
        serde_json::from_value(plane).expect("valid control plane")
    }

    #[test]
    fn the_apply_is_the_named_one_or_derived_from_the_name_of_the_control_plane() {
        assert_eq!(
            apply_of(&plane(Some("mine"))),
            ObjectKey::new("shop", "mine")
        );
        assert_eq!(
            apply_of(&plane(None)),
            ObjectKey::new("shop", "plane-eks-controlplane-apply")
        );
    }
}
