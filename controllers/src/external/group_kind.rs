//! Group and kind, without a version.

use crate::cluster_api::ContractVersionedObjectReference;
use kube::core::GroupVersionKind;
use std::fmt;

/// Group and kind of objects of a provider, whatever their version.
///
/// Prints as `Kind.group`, or as the kind alone if the group is empty.
///
/// ```
/// use steersman_controllers::external::GroupKind;
///
/// let kind = GroupKind::new("infrastructure.cluster.x-k8s.io", "DockerCluster");
/// assert_eq!(kind.to_string(), "DockerCluster.infrastructure.cluster.x-k8s.io");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// Group, empty for the kinds of `v1`.
    pub group: String,
    /// Kind.
    pub kind: String,
}

impl GroupKind {
    /// Creates a group and kind.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }

    /// Returns the kind in a version of its group.
    pub fn with_version(&self, version: &str) -> GroupVersionKind {
        GroupVersionKind::gvk(&self.group, version, &self.kind)
    }
}

impl From<&GroupVersionKind> for GroupKind {
    fn from(kind: &GroupVersionKind) -> Self {
        Self::new(&kind.group, &kind.kind)
    }
}

impl From<&ContractVersionedObjectReference> for GroupKind {
    fn from(reference: &ContractVersionedObjectReference) -> Self {
        Self::new(&reference.api_group, &reference.kind)
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// Returns group, version and kind as `<group>/<version>, Kind=<kind>`, which is how Go prints them.
pub(super) fn print_gvk(kind: &GroupVersionKind) -> String {
    format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind)
}

/// Splits `apiVersion` and `kind` as Go does: an `apiVersion` with two slashes has no group.
pub(super) fn parse_gvk(api_version: &str, kind: &str) -> GroupVersionKind {
    let (group, version) = match api_version.split_once('/') {
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(both) => both,
        None => ("", api_version),
    };
    GroupVersionKind::gvk(group, version, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_kind_without_a_group_prints_as_its_kind() {
        assert_eq!(GroupKind::new("", "Pod").to_string(), "Pod");
        assert_eq!(GroupKind::default().to_string(), "");
        assert_eq!(
            GroupKind::new("apps", "Deployment").to_string(),
            "Deployment.apps"
        );
    }

    #[test]
    fn a_gvk_prints_and_parses_as_in_go() {
        let parsed = |api_version| print_gvk(&parse_gvk(api_version, "A"));
        assert_eq!(parsed("example.com/v1"), "example.com/v1, Kind=A");
        assert_eq!(parsed("v1"), "/v1, Kind=A");
        assert_eq!(parsed(""), "/, Kind=A");
        assert_eq!(parsed("a/b/c"), "/, Kind=A");
        assert_eq!(parsed("/v1"), "/v1, Kind=A");
    }
}
