//! Namespace of the object that a hook is called for, read at most once per call.

use super::error::{NamespaceError, NamespaceFailure};
use crate::extension_config::registry::NamespaceSelector;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use std::{collections::BTreeMap, sync::Arc};
use steersman::prelude::*;

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// Namespace of the object that a hook is called for.
pub(super) struct ObjectNamespace<'a> {
    client: &'a Client,
    name: Option<&'a str>,
    namespace: Option<Arc<Metadata<Namespace>>>,
}

impl<'a> ObjectNamespace<'a> {
    pub(super) fn new(client: &'a Client, object: &'a ObjectKey) -> Self {
        Self {
            client,
            name: object.namespace(),
            namespace: None,
        }
    }

    /// Returns whether a selector selects the namespace.
    ///
    /// The Namespace is read only for a selector that depends on its labels.
    pub(super) async fn is_selected_by(
        &mut self,
        selector: &NamespaceSelector,
    ) -> Result<bool, NamespaceError> {
        match selector {
            NamespaceSelector::Nothing => Ok(false),
            NamespaceSelector::Everything => Ok(true),
            NamespaceSelector::Labels(_) => Ok(selector.matches(self.labels().await?)),
        }
    }

    async fn labels(&mut self) -> Result<&BTreeMap<String, String>, NamespaceError> {
        if self.namespace.is_none() {
            let read = self.read().await;
            self.namespace = Some(read.map_err(|reason| NamespaceError {
                namespace: self.name.unwrap_or_default().into(),
                reason,
            })?);
        }
        Ok(self.namespace.as_ref().map_or(&NO_LABELS, |it| it.labels()))
    }

    async fn read(&self) -> Result<Arc<Metadata<Namespace>>, NamespaceFailure> {
        let name = self.name.ok_or(NamespaceFailure::ClusterScoped)?;
        let key = ObjectKey::cluster_scoped(name);
        let found = self.client.get::<Metadata<Namespace>>(&key).await;
        found
            .map_err(NamespaceFailure::Read)?
            .ok_or(NamespaceFailure::NotFound)
    }
}
