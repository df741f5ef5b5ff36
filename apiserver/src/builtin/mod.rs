//! The kinds that every server has: rows of a table, and the little code in which they differ.
//!
//! - `table`, `groups`: one row per kind.
//! - `columns`, `cells`, `pod_cells`, `age`: what `kubectl get` shows of them.
//! - `prepare`: what the server fills in.
//! - `validate`, `checks`, `rbac`: what it refuses; `warnings`: what it warns of.
//! - `defaults`: what it fills in by type and field, wherever the type is used.
//! - `pods`, `pod_checks`, `services`, `workloads`, `workload_checks`: both, for pods, what makes them and what leads to them.
//! - `peers`: what kinds need of other objects.
//! - `events`, `scalers`: kinds of which one stored object has two views.
//!
//! Kinds that are only ever created (token and access reviews) store nothing; their place is beside this table, not in
//! it.

pub(crate) mod age;
mod cells;
mod checks;
mod columns;
pub(crate) mod defaults;
pub(crate) mod descriptions;
mod events;
mod groups;
mod more_cells;
mod peers;
mod pod_cells;
mod pod_checks;
mod pods;
mod prepare;
mod rbac;
mod scalers;
mod services;
mod table;
mod validate;
mod warnings;
mod workload_checks;
mod workloads;

pub(crate) use peers::{Needs, settle};
pub(crate) use prepare::namespace_finalized as prepare_finalize;
pub(crate) use warnings::Warn;

use crate::resource::{Column, Resource, ResourceSchema, Scale, Selectable, Strategy};
use serde_json::Value;
use std::sync::Arc;
use table::{Flag, Row};

/// All built-in resources, in the order in which discovery shows their groups.
pub(crate) fn resources() -> Vec<Resource> {
    table::CORE.iter().chain(groups::NAMED).map(resource).collect()
}

/// Where the objects of a resource are stored: events have two views, and one place. The views of other kinds differ
/// only in version.
pub(crate) fn storage_of<'a>(group: &'a str, plural: &'a str) -> (&'a str, &'a str) {
    match (group, plural) {
        (events::GROUP, "events") => ("", plural),
        own => own,
    }
}

/// Whether a resource shows its objects otherwise than they are stored.
pub(crate) fn is_view(resource: &Resource) -> bool {
    matches!((&*resource.group, &*resource.version), (events::GROUP, _) | ("autoscaling", "v1"))
}

/// A stored object as its resource shows it.
pub(crate) fn to_view(resource: &Resource, stored: Value) -> Value {
    match (&*resource.group, &*resource.version) {
        (events::GROUP, _) => events::to_view(stored),
        ("autoscaling", "v1") => scalers::to_view(stored),
        _ => stored,
    }
}

/// An object that its resource shows, as it is stored.
pub(crate) fn from_view(resource: &Resource, shown: Value) -> Value {
    match (&*resource.group, &*resource.version) {
        (events::GROUP, _) => events::from_view(shown),
        ("autoscaling", "v1") => scalers::from_view(shown),
        _ => shown,
    }
}

fn resource(row: &Row) -> Resource {
    let kind = row.kind();
    let texts = |texts: &[&str]| texts.iter().map(|text| Arc::from(*text)).collect();
    Resource {
        group: row.group.into(),
        version: row.version().into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        plural: row.plural.into(),
        singular: kind.to_lowercase().into(),
        short_names: texts(row.short_names),
        categories: texts(row.categories),
        namespaced: row.namespaced,
        verbs: row.verbs,
        strategy: strategy(row),
        schema: ResourceSchema::builtin(row.definition),
        columns: descriptions::described(row.group, row.plural, row.columns.iter().map(Column::from)),
        selectable: row.selectable.iter().map(|field| selectable(field)).collect(),
        deprecation: row.deprecated.map(Into::into),
        storage: if row.group == "autoscaling" { "v2" } else { row.version() }.into(),
    }
}

fn strategy(row: &Row) -> Strategy {
    let has = |flag| row.flags.contains(&flag);
    Strategy {
        custom: false,
        generation: row.generation,
        unconditional_update: !has(Flag::NeedsVersion),
        create_on_update: has(Flag::CreateOnUpdate),
        returns_deleted: has(Flag::ReturnsDeleted),
        grace: row.grace,
        status: row.status,
        scale: has(Flag::Scales).then(|| Scale {
            spec_replicas: keys("spec.replicas"),
            status_replicas: keys("status.replicas"),
            selector: Some(keys("spec.selector")),
        }),
        name: row.name,
        prepare: row.prepare,
        validate: row.validate,
        validate_status: row.validate_status,
        needs: row.needs,
        warn: row.warn,
    }
}

/// Reads `name`, or `name=path` where the stored object has the value elsewhere.
fn selectable(field: &str) -> Selectable {
    let (name, path) = field.split_once('=').unwrap_or((field, field));
    Selectable { name: name.into(), path: keys(path) }
}

fn keys(path: &str) -> Vec<String> {
    path.split('.').map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Generation, NameRule};
    use std::collections::HashSet;

    fn find(group: &str, plural: &str) -> Resource {
        resources().into_iter().find(|it| &*it.group == group && &*it.plural == plural).expect("a built-in")
    }

    #[test]
    fn every_kind_is_there_once() {
        let all = resources();
        let paths: HashSet<_> = all.iter().map(|it| (it.api_version(), it.plural.clone())).collect();
        let kinds: HashSet<_> = all.iter().map(|it| (it.api_version(), it.kind.clone())).collect();
        assert_eq!((paths.len(), kinds.len()), (all.len(), all.len()));
    }

    #[test]
    fn a_row_gives_all_names_of_its_kind() {
        let pods = find("", "pods");
        assert_eq!((&*pods.kind, &*pods.list_kind, &*pods.singular, &*pods.version), ("Pod", "PodList", "pod", "v1"));
        assert_eq!(find("networking.k8s.io", "networkpolicies").api_version(), "networking.k8s.io/v1");
        assert_eq!(&*find("apiextensions.k8s.io", "customresourcedefinitions").kind, "CustomResourceDefinition");
    }

    #[test]
    fn plurals_are_those_of_their_kinds() {
        for it in resources() {
            let singular = &*it.singular;
            let regular = match singular.strip_suffix('y') {
                _ if singular == "endpoints" => singular.into(),
                Some(stem) if !singular.ends_with("ay") => format!("{stem}ies"),
                _ if singular.ends_with('s') => format!("{singular}es"),
                _ => format!("{singular}s"),
            };
            assert_eq!(&*it.plural, regular);
        }
    }

    #[test]
    fn a_lease_needs_a_version_to_be_updated_and_may_be_created_by_an_update() {
        let lease = find("coordination.k8s.io", "leases").strategy;
        assert!(!lease.unconditional_update && lease.create_on_update && !lease.returns_deleted);
        let config_map = find("", "configmaps").strategy;
        assert!(config_map.unconditional_update && !config_map.create_on_update && !config_map.returns_deleted);
        assert!(find("", "pods").strategy.returns_deleted);
    }

    #[test]
    fn a_status_takes_of_metadata_what_its_type_lets_it() {
        let rule =
            |group, plural| find(group, plural).strategy.status.map(|it| (it.labels, it.annotations, it.finalizers));
        assert_eq!(rule("apps", "deployments"), Some((false, true, true)));
        assert_eq!(rule("", "pods"), Some((true, true, true)));
        assert_eq!(rule("apiextensions.k8s.io", "customresourcedefinitions"), Some((true, true, true)));
        assert_eq!(rule("", "configmaps"), None);
    }

    #[test]
    fn generation_counts_where_types_have_it() {
        let generation = |group, plural| find(group, plural).strategy.generation;
        assert_eq!(generation("apps", "deployments"), Generation::Spec);
        assert_eq!(generation("", "pods"), Generation::Spec);
        assert_eq!(generation("", "configmaps"), Generation::None);
    }

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        assert_eq!(find("", "namespaces").strategy.name, NameRule::Label);
        assert_eq!(find("", "services").strategy.name, NameRule::Label);
        assert_eq!(find("rbac.authorization.k8s.io", "clusterroles").strategy.name, NameRule::PathSegment);
    }

    #[test]
    fn each_view_of_an_event_selects_by_its_own_names_in_the_same_stored_object() {
        let path = |group, name: &str| {
            find(group, "events").selectable.into_iter().find(|it| it.name == name).map(|it| it.path.join("."))
        };
        assert_eq!(path("", "involvedObject.name").as_deref(), Some("involvedObject.name"));
        assert_eq!(path("", "regarding.name"), None);
        assert_eq!(path(events::GROUP, "regarding.name").as_deref(), Some("involvedObject.name"));
        assert_eq!(path(events::GROUP, "involvedObject.name"), None);
        assert_eq!(storage_of(events::GROUP, "events"), ("", "events"));
        assert_eq!(storage_of("apps", "deployments"), ("apps", "deployments"));
    }

    #[test]
    fn only_views_differ_from_what_is_stored() {
        let there_and_back = |resource: &Resource, object: &Value| {
            let shown = to_view(resource, object.clone());
            assert_eq!(from_view(resource, shown.clone()), *object, "{}", resource.api_version());
            shown
        };
        for resource in resources() {
            let version = if &*resource.group == events::GROUP { "v1".into() } else { resource.api_version() };
            let version = version.replace("autoscaling/v1", "autoscaling/v2");
            let object = serde_json::json!({"apiVersion": version, "metadata": {}});
            assert_eq!(there_and_back(&resource, &object)["apiVersion"], resource.api_version());
        }
    }

    #[test]
    fn only_four_kinds_scale() {
        let scaled: Vec<_> = resources().into_iter().filter(|it| it.strategy.scale.is_some()).collect();
        let scaled: Vec<_> = scaled.iter().map(|it| &*it.plural).collect();
        assert_eq!(scaled, ["replicationcontrollers", "deployments", "replicasets", "statefulsets"]);
    }
}
