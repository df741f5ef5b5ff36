//! Tables and partial metadata, as `kubectl get` requests them.

use crate::builtin::{self, age};
use crate::clock::Clock;
use crate::jsonpath;
use crate::resource::{Cell, Column, Resource};
use crate::status::{Failure, Result};
use serde_json::{Value, json};

/// Part of the object that a row contains beside its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    /// No object.
    None,
    /// Metadata only.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl Include {
    /// Parses the query parameter `includeObject`.
    pub(crate) fn parse(value: &str) -> Result<Self> {
        match value {
            "None" => Ok(Self::None),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                Value::from(other)
            ))),
        }
    }
}

/// Builds tables of the objects of one resource.
pub(crate) struct Tables<'a> {
    pub(crate) resource: &'a Resource,
    /// Current time, for ages.
    pub(crate) clock: &'a Clock,
    /// Object in each row.
    pub(crate) include: Include,
    /// `apiVersion` of tables.
    pub(crate) meta: &'static str,
}

impl Tables<'_> {
    /// Returns the table of a list. `objects` are in their stored form.
    pub(crate) fn list<'o>(
        &self,
        metadata: Value,
        objects: impl IntoIterator<Item = &'o Value>,
    ) -> Value {
        let rows: Vec<_> = objects.into_iter().map(|it| self.row(it)).collect();
        // For kinds with only generic columns, kube-apiserver returns null instead of an empty
        // list.
        let common = !self.resource.strategy.custom
            && self
                .resource
                .columns
                .iter()
                .any(|it| it.name == "Created At");
        let rows = if common && rows.is_empty() {
            Value::Null
        } else {
            rows.into()
        };
        self.table(metadata, self.definitions(), rows)
    }

    /// Returns the table of one object.
    pub(crate) fn one(&self, object: &Value) -> Value {
        self.event(object, true)
    }

    /// Returns the table of a watch event. Only the first one has the column definitions.
    pub(crate) fn event(&self, object: &Value, first: bool) -> Value {
        let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
        let definitions = if first {
            self.definitions()
        } else {
            Value::Null
        };
        self.table(metadata, definitions, vec![self.row(object)].into())
    }

    fn definitions(&self) -> Value {
        let name = json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": builtin::descriptions::description("", "Name"),
        });
        let columns = self.resource.columns.iter().map(|it| {
            json!({
                "name": it.name, "type": it.kind, "format": it.format,
                "description": it.description, "priority": it.priority,
            })
        });
        self.begins_with_name()
            .then_some(name)
            .into_iter()
            .chain(columns)
            .collect()
    }

    /// Returns whether the first column is the name. Events have it as their last column.
    fn begins_with_name(&self) -> bool {
        self.resource.strategy.custom || self.resource.columns.iter().all(|it| it.name != "Name")
    }

    fn row(&self, object: &Value) -> Value {
        // A bookmark has no name.
        let name = || object["metadata"]["name"].as_str().unwrap_or_default();
        let name = self.begins_with_name().then(|| Value::from(name()));
        let cells: Value = name
            .into_iter()
            .chain(self.resource.columns.iter().map(|it| self.cell(it, object)))
            .collect();
        let object = match self.include {
            Include::None => Value::Null,
            Include::Metadata => partial(object, self.meta),
            Include::Object => builtin::to_view(self.resource, object.clone()),
        };
        json!({"cells": cells, "object": object})
    }

    fn cell(&self, column: &Column, object: &Value) -> Value {
        match &column.cell {
            Cell::Code(code) => code(object, self.clock),
            Cell::Path(path) => match (&*column.kind, jsonpath::cell(path, &column.kind, object)) {
                ("date", date @ Value::String(_)) => age::age(&date, self.clock.now()).into(),
                (_, value) => value,
            },
        }
    }

    fn table(&self, metadata: Value, definitions: Value, rows: Value) -> Value {
        json!({
            "kind": "Table", "apiVersion": self.meta,
            "metadata": metadata, "columnDefinitions": definitions, "rows": rows,
        })
    }
}

/// Returns the metadata of an object as `PartialObjectMetadata`.
pub(crate) fn partial(object: &Value, meta: &str) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": meta, "metadata": object["metadata"]})
}

/// Returns the metadata of a list's objects as `PartialObjectMetadataList`.
pub(crate) fn partial_list<'o>(
    metadata: Value,
    objects: impl IntoIterator<Item = &'o Value>,
    meta: &str,
) -> Value {
    let items: Vec<_> = objects
        .into_iter()
        .map(|object| partial(object, meta))
        .collect();
    // As in kube-apiserver, an empty list is null here.
    let items = if items.is_empty() {
        Value::Null
    } else {
        items.into()
    };
    json!({"kind": "PartialObjectMetadataList", "apiVersion": meta, "metadata": metadata, "items": items})
}

#[cfg(test)]
mod tests {
    use super::super::accept::META;
    use super::*;

    fn clock() -> Clock {
        Clock::new("2026-01-02T03:04:05Z".parse().ok())
    }

    fn built_in(group: &str, plural: &str) -> Resource {
        let found = builtin::resources()
            .into_iter()
            .find(|it| &*it.group == group && &*it.plural == plural);
        found.expect("a built-in")
    }

    fn custom(kinds: &[(&str, &str)]) -> Resource {
        let mut resource = built_in("", "configmaps");
        resource.strategy.custom = true;
        resource.columns = kinds
            .iter()
            .map(|(kind, path)| Column {
                name: "Some".into(),
                kind: (*kind).into(),
                format: String::new(),
                description: String::new(),
                priority: 0,
                cell: Cell::Path((*path).into()),
            })
            .collect();
        resource
    }

    fn cells(resource: &Resource, object: &Value) -> Value {
        let clock = clock();
        Tables {
            resource,
            clock: &clock,
            include: Include::None,
            meta: META,
        }
        .row(object)["cells"]
            .take()
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_has_the_name_first_and_the_metadata_of_each_object() {
        let resource = built_in("", "configmaps");
        let clock = clock();
        let object = json!({
            "metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:00:00Z"},
            "data": {"x": "1"}, "binaryData": {"y": ""},
        });
        let tables = Tables {
            resource: &resource,
            clock: &clock,
            include: Include::default(),
            meta: META,
        };
        let table = tables.list(json!({"resourceVersion": "7"}), [&object]);
        let names: Vec<_> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["name"])
            .collect();
        assert_eq!(names, ["Name", "Data", "Age"]);
        assert_eq!(
            (&table["kind"], &table["metadata"]["resourceVersion"]),
            (&json!("Table"), &json!("7"))
        );
        assert_eq!(
            table["rows"],
            json!([{
                "cells": ["a", 2, "4m5s"],
                "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
                },
            }])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_watch_event_has_column_definitions() {
        let resource = built_in("", "secrets");
        let clock = clock();
        let tables = Tables {
            resource: &resource,
            clock: &clock,
            include: Include::Object,
            meta: META,
        };
        let object = json!({"metadata": {"name": "a", "resourceVersion": "3"}, "type": "Opaque"});
        assert_eq!(
            tables.event(&object, true)["columnDefinitions"]
                .as_array()
                .map(Vec::len),
            Some(4)
        );
        let later = tables.event(&object, false);
        assert_eq!(
            (
                &later["columnDefinitions"],
                &later["metadata"]["resourceVersion"]
            ),
            (&Value::Null, &json!("3"))
        );
        assert_eq!(later["rows"][0]["object"], object);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cell_has_the_type_of_its_column_or_is_null() {
        let object = json!({
            "metadata": {"name": "a"},
            "text": "t", "number": 1.5, "flag": true, "at": "2026-01-01T00:04:05Z", "list": [1],
        });
        let kinds = [
            ("string", ".text"),
            ("string", ".list"),
            ("string", ".none"),
            ("integer", ".number"),
            ("number", ".number"),
            ("integer", ".text"),
            ("boolean", ".flag"),
            ("date", ".at"),
            ("date", ".none"),
            ("date", ".text"),
        ];
        let shown = json!([
            "a",
            "t",
            "[1]",
            null,
            1,
            1.5,
            null,
            true,
            "27h",
            null,
            "<invalid>"
        ]);
        assert_eq!(cells(&custom(&kinds), &object), shown);
    }

    #[tokio::test(start_paused = true)]
    async fn both_api_groups_of_events_show_equal_cells_and_their_own_objects() {
        let event = json!({
            "apiVersion": "v1", "metadata": {"name": "e"}, "message": " m ", "reason": "R", "type": "Normal",
            "involvedObject": {"kind": "Pod", "name": "p"}, "reportingComponent": "c",
            "lastTimestamp": "2026-01-02T03:04:00Z",
        });
        let old = built_in("", "events");
        let new = built_in("events.k8s.io", "events");
        let shown = json!([
            "5s",
            "Normal",
            "R",
            "pod/p",
            "",
            "c",
            "m",
            "<unknown>",
            1,
            "e"
        ]);
        assert_eq!(
            (cells(&old, &event), cells(&new, &event)),
            (shown.clone(), shown)
        );
        let clock = clock();
        let view = Tables {
            resource: &new,
            clock: &clock,
            include: Include::Object,
            meta: META,
        }
        .one(&event);
        assert_eq!(view["rows"][0]["object"]["regarding"]["name"], "p");
    }

    #[tokio::test(start_paused = true)]
    async fn cells_of_common_kinds_equal_those_of_kubectl() {
        let born = "2026-01-02T03:04:00Z";
        let metadata = json!({"name": "a", "creationTimestamp": born});
        let deployment = json!({
            "metadata": metadata,
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}},
                     "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            "status": {"readyReplicas": 2, "updatedReplicas": 1},
        });
        assert_eq!(
            cells(&built_in("apps", "deployments"), &deployment),
            json!(["a", "2/3", 1, 0, "5s", "c", "i", "app=a"])
        );
        let service = json!({
            "metadata": metadata,
            "spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "selector": {"app": "a"},
                     "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]},
        });
        let shown = json!([
            "a",
            "NodePort",
            "10.0.0.1",
            "<none>",
            "80:30080/TCP,53/UDP",
            "5s",
            "app=a"
        ]);
        assert_eq!(cells(&built_in("", "services"), &service), shown);
        let node = json!({
            "metadata": {"name": "a", "creationTimestamp": born, "labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "False"}], "nodeInfo": {"kubeletVersion": "v1"}},
        });
        let shown = cells(&built_in("", "nodes"), &node);
        assert_eq!(
            shown.as_array().unwrap()[..5],
            [
                "a",
                "NotReady,SchedulingDisabled",
                "control-plane",
                "5s",
                "v1"
            ]
        );
        let job = json!({
            "metadata": metadata, "spec": {"completions": 2},
            "status": {"succeeded": 1, "startTime": "2026-01-02T03:03:05Z"},
        });
        let shown = cells(&built_in("batch", "jobs"), &job);
        assert_eq!(
            shown.as_array().unwrap()[..5],
            ["a", "Running", "1/2", "60s", "5s"]
        );
        let lease = json!({"metadata": metadata, "spec": {"holderIdentity": "me"}});
        assert_eq!(
            cells(&built_in("coordination.k8s.io", "leases"), &lease),
            json!(["a", "me", "5s"])
        );
        let crd = json!({"metadata": metadata, "spec": {"scope": "Cluster", "group": "g", "names": {"kind": "K"},
            "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": true}]}});
        let crds = built_in("apiextensions.k8s.io", "customresourcedefinitions");
        assert_eq!(
            cells(&crds, &crd),
            json!(["a", "Cluster", "v1(storage),v2", born, "g", "K", "", false])
        );
    }

    #[test]
    fn include_object_is_none_metadata_or_object() {
        assert_eq!(Include::parse("").unwrap(), Include::Metadata);
        assert_eq!(Include::parse("Object").unwrap(), Include::Object);
        assert_eq!(Include::parse("Everything").unwrap_err().code, 400);
    }

    #[test]
    fn a_partial_list_keeps_only_metadata() {
        let object = json!({"metadata": {"name": "a"}, "spec": {}});
        let list = partial_list(json!({"resourceVersion": "1"}), [&object], META);
        assert_eq!(list["items"][0]["metadata"]["name"], "a");
        assert_eq!(
            (list["kind"].as_str(), list["items"][0].get("spec")),
            (Some("PartialObjectMetadataList"), None)
        );
    }
}
