//! Built-in kinds: a table with one row per kind, and the code for what differs between kinds.
//!
//! - `table`, `groups`: one row per kind.
//! - `columns`, `cells`, `pod_cells`, `more_cells`, `age`: columns of `kubectl get`.
//! - `prepare`, `defaults`: fields that the server sets, by kind and by type.
//! - `validate`, `checks`, `rbac`: validation; `warnings`: warnings about valid objects.
//! - `pods`, `pod_checks`, `services`, `workloads`, `workload_checks`: both for these kinds.
//! - `dependencies`: fields whose values come from other objects.
//! - `events`, `scalers`: kinds that are served in two forms.
//!
//! Kinds that can only be created (token and access reviews) are not stored and not in the table.

// The table of the kinds.
mod groups;
mod table;

// Fields that the server sets.
pub(crate) mod defaults;
mod dependencies;
mod prepare;

// Validation.
mod checks;
mod pod_checks;
mod rbac;
mod validate;
mod warnings;
mod workload_checks;

// Kinds with code of their own.
mod events;
mod pods;
mod scalers;
mod services;
mod workloads;

// Columns of `kubectl get`.
pub(crate) mod age;
mod cells;
mod columns;
pub(crate) mod descriptions;
mod more_cells;
mod pod_cells;

pub(crate) use dependencies::{Dependencies, resolve_dependencies};
pub(crate) use prepare::namespace_finalized as prepare_finalize;
pub(crate) use warnings::Warn;

use crate::resource::{Column, Resource, ResourceSchema, Scale, Selectable, Strategy};
use serde_json::Value;
use std::sync::Arc;
use table::{Flag, Row};

/// Returns all built-in resources, in the order in which discovery lists their groups.
pub(crate) fn resources() -> Vec<Resource> {
    table::CORE
        .iter()
        .chain(groups::NAMED)
        .map(resource)
        .collect()
}

/// Returns the group and plural of the stored objects. Both groups of events store the same
/// objects.
pub(crate) fn storage_of<'a>(group: &'a str, plural: &'a str) -> (&'a str, &'a str) {
    match (group, plural) {
        (events::GROUP, "events") => ("", plural),
        other => other,
    }
}

/// Reports whether the served form of a resource differs from the stored one.
pub(crate) fn is_view(resource: &Resource) -> bool {
    matches!(
        (&*resource.group, &*resource.version),
        (events::GROUP, _) | ("autoscaling", "v1")
    )
}

/// Converts a stored object to the form that its resource serves.
pub(crate) fn to_view(resource: &Resource, stored: Value) -> Value {
    match (&*resource.group, &*resource.version) {
        (events::GROUP, _) => events::to_view(stored),
        ("autoscaling", "v1") => scalers::to_view(stored),
        _ => stored,
    }
}

/// Converts a served object to its stored form.
pub(crate) fn from_view(resource: &Resource, served: Value) -> Value {
    match (&*resource.group, &*resource.version) {
        (events::GROUP, _) => events::from_view(served),
        ("autoscaling", "v1") => scalers::from_view(served),
        _ => served,
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
        columns: descriptions::describe_columns(
            row.group,
            row.plural,
            row.columns.iter().map(Column::from),
        ),
        selectable: row
            .selectable
            .iter()
            .map(|field| selectable(field))
            .collect(),
        deprecation: row.deprecated.map(Into::into),
        storage: if row.group == "autoscaling" {
            "v2"
        } else {
            row.version()
        }
        .into(),
    }
}

fn strategy(row: &Row) -> Strategy {
    let has = |flag| row.flags.contains(&flag);
    Strategy {
        custom: false,
        generation: row.generation,
        unconditional_update: !has(Flag::RequiresVersion),
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
        dependencies: row.dependencies,
        warn: row.warn,
    }
}

/// Parses `name`, or `name=path` if the stored object has the value at another path.
fn selectable(field: &str) -> Selectable {
    let (name, path) = field.split_once('=').unwrap_or((field, field));
    Selectable {
        name: name.into(),
        path: keys(path),
    }
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
        resources()
            .into_iter()
            .find(|resource| &*resource.group == group && &*resource.plural == plural)
            .expect("a built-in resource")
    }

    #[test]
    fn every_kind_is_listed_once() {
        let all = resources();
        let paths: HashSet<_> = all
            .iter()
            .map(|resource| (resource.api_version(), resource.plural.clone()))
            .collect();
        let kinds: HashSet<_> = all
            .iter()
            .map(|resource| (resource.api_version(), resource.kind.clone()))
            .collect();
        assert_eq!((paths.len(), kinds.len()), (all.len(), all.len()));
    }

    #[test]
    fn a_row_defines_all_names_of_its_kind() {
        let pods = find("", "pods");
        assert_eq!(
            (
                &*pods.kind,
                &*pods.list_kind,
                &*pods.singular,
                &*pods.version
            ),
            ("Pod", "PodList", "pod", "v1")
        );
        assert_eq!(
            find("networking.k8s.io", "networkpolicies").api_version(),
            "networking.k8s.io/v1"
        );
        assert_eq!(
            &*find("apiextensions.k8s.io", "customresourcedefinitions").kind,
            "CustomResourceDefinition"
        );
    }

    #[test]
    fn plurals_match_their_kinds() {
        for resource in resources() {
            let singular = &*resource.singular;
            let regular = match singular.strip_suffix('y') {
                _ if singular == "endpoints" => singular.into(),
                Some(stem) if !singular.ends_with("ay") => format!("{stem}ies"),
                _ if singular.ends_with('s') => format!("{singular}es"),
                _ => format!("{singular}s"),
            };
            assert_eq!(&*resource.plural, regular);
        }
    }

    #[test]
    fn a_lease_requires_a_resource_version_and_can_be_created_by_an_update() {
        let lease = find("coordination.k8s.io", "leases").strategy;
        assert!(!lease.unconditional_update && lease.create_on_update && !lease.returns_deleted);
        let config_map = find("", "configmaps").strategy;
        assert!(
            config_map.unconditional_update
                && !config_map.create_on_update
                && !config_map.returns_deleted
        );
        assert!(find("", "pods").strategy.returns_deleted);
    }

    #[test]
    fn a_status_update_changes_the_metadata_that_its_type_allows() {
        let rule = |group, plural| {
            find(group, plural)
                .strategy
                .status
                .map(|resource| (resource.labels, resource.annotations, resource.finalizers))
        };
        assert_eq!(rule("apps", "deployments"), Some((false, true, true)));
        assert_eq!(rule("", "pods"), Some((true, true, true)));
        assert_eq!(
            rule("apiextensions.k8s.io", "customresourcedefinitions"),
            Some((true, true, true))
        );
        assert_eq!(rule("", "configmaps"), None);
    }

    #[test]
    fn generation_depends_on_the_type() {
        let generation = |group, plural| find(group, plural).strategy.generation;
        assert_eq!(generation("apps", "statefulsets"), Generation::Spec);
        assert_eq!(
            generation("apps", "deployments"),
            Generation::SpecAnd("annotations")
        );
        assert_eq!(generation("", "pods"), Generation::Spec);
        assert_eq!(generation("", "configmaps"), Generation::None);
    }

    #[test]
    fn names_follow_the_grammar_of_their_kind() {
        assert_eq!(find("", "namespaces").strategy.name, NameRule::Label);
        assert_eq!(find("", "services").strategy.name, NameRule::Label);
        assert_eq!(
            find("rbac.authorization.k8s.io", "clusterroles")
                .strategy
                .name,
            NameRule::PathSegment
        );
    }

    #[test]
    fn each_group_of_events_selects_by_its_own_field_names() {
        let path = |group, name: &str| {
            find(group, "events")
                .selectable
                .into_iter()
                .find(|resource| resource.name == name)
                .map(|resource| resource.path.join("."))
        };
        assert_eq!(
            path("", "involvedObject.name").as_deref(),
            Some("involvedObject.name")
        );
        assert_eq!(path("", "regarding.name"), None);
        assert_eq!(
            path(events::GROUP, "regarding.name").as_deref(),
            Some("involvedObject.name")
        );
        assert_eq!(path(events::GROUP, "involvedObject.name"), None);
        assert_eq!(storage_of(events::GROUP, "events"), ("", "events"));
        assert_eq!(storage_of("apps", "deployments"), ("apps", "deployments"));
    }

    #[test]
    fn conversion_to_the_served_form_and_back_changes_nothing() {
        let convert_and_back = |resource: &Resource, object: &Value| {
            let served = to_view(resource, object.clone());
            assert_eq!(
                from_view(resource, served.clone()),
                *object,
                "{}",
                resource.api_version()
            );
            served
        };
        for resource in resources() {
            let version = if &*resource.group == events::GROUP {
                "v1".into()
            } else {
                resource.api_version()
            };
            let version = version.replace("autoscaling/v1", "autoscaling/v2");
            let object = serde_json::json!({"apiVersion": version, "metadata": {}});
            assert_eq!(
                convert_and_back(&resource, &object)["apiVersion"],
                resource.api_version()
            );
        }
    }

    #[test]
    fn four_kinds_have_a_scale_subresource() {
        let scaled: Vec<_> = resources()
            .into_iter()
            .filter(|resource| resource.strategy.scale.is_some())
            .collect();
        let scaled: Vec<_> = scaled.iter().map(|resource| &*resource.plural).collect();
        assert_eq!(
            scaled,
            [
                "replicationcontrollers",
                "deployments",
                "replicasets",
                "statefulsets"
            ]
        );
    }
}
