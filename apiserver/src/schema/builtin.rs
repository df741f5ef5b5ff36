//! Kubernetes' own types, from a table that is unpacked when the first of them is asked for.
//!
//! `builtin.json.gz` is made by `cargo xtask openapi` from `api/openapi-spec/swagger.json` of `k8s.io/kubernetes`
//! v1.37.1 and the types of `k8s.io/api` of the same version, Copyright The Kubernetes Authors, under the Apache License 2.0.

use super::{Additional, Format, Id, Kind, List, Node, Schema};
use crate::builtin::defaults;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, io::Read, sync::Arc, sync::LazyLock};

const DATA: &[u8] = include_bytes!("builtin.json.gz");
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new(&unpacked()));

pub(super) fn schema(definition: &str) -> Option<Schema> {
    let root = *TABLE.definitions.get(definition)?;
    Some(Schema { nodes: TABLE.nodes.clone(), root, builtin: true, has_rules: false, has_lists: true })
}

struct Table {
    nodes: Arc<[Node]>,
    definitions: BTreeMap<String, Id>,
}

/// What the table says of a type, as far as it is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    properties: BTreeMap<String, Raw>,
    #[serde(default)]
    required: Vec<Box<str>>,
    additional_properties: Option<Box<Raw>>,
    items: Option<Box<Raw>>,
    #[serde(rename = "x-kubernetes-list-type", default)]
    list_type: String,
    #[serde(rename = "x-kubernetes-list-map-keys", default)]
    list_map_keys: Vec<String>,
    #[serde(rename = "x-kubernetes-map-type", default)]
    map_type: String,
    #[serde(rename = "x-go-zero", default)]
    zero: Vec<Box<str>>,
    #[serde(rename = "x-go-written")]
    written: Option<Map<String, Value>>,
}

fn unpacked() -> BTreeMap<String, Raw> {
    let mut text = Vec::new();
    GzDecoder::new(DATA).read_to_end(&mut text).expect("the embedded table is whole");
    serde_json::from_slice(&text).expect("the embedded table is JSON")
}

impl Table {
    fn new(raw: &BTreeMap<String, Raw>) -> Self {
        // Definitions come first, so that references are known before what they refer to is.
        let definitions: BTreeMap<_, _> = raw.keys().cloned().zip(0..).collect();
        let mut builder = Builder { definitions: &definitions, nodes: raw.keys().map(|_| Node::default()).collect() };
        for (id, (name, raw)) in raw.iter().enumerate() {
            let node = builder.node(raw);
            builder.nodes[id] = special(name, node);
        }
        let mut nodes = builder.nodes;
        // Schemas inside definitions come in several shapes, which the document does not tell.
        for or in ["JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray"] {
            let find = |name: &str| definitions.get(&format!("{EXTENSIONS}.{name}")).copied();
            if let (Some(or), Some(one)) = (find(or), find("JSONSchemaProps")) {
                let fields = nodes[one as usize].fields.clone();
                nodes[or as usize].fields = fields;
                nodes[or as usize].items = Some(one);
            }
        }
        Self { nodes: nodes.into(), definitions }
    }
}

struct Builder<'a> {
    definitions: &'a BTreeMap<String, Id>,
    nodes: Vec<Node>,
}

impl Builder<'_> {
    fn add(&mut self, raw: &Raw) -> Id {
        let name = raw.reference.as_deref().and_then(|at| at.strip_prefix("#/definitions/"));
        if let Some(id) = name.and_then(|name| self.definitions.get(name)) {
            return *id;
        }
        let node = self.node(raw);
        self.nodes.push(node);
        // There are a few thousand nodes.
        (self.nodes.len() - 1) as Id
    }

    fn node(&mut self, raw: &Raw) -> Node {
        let kind = match raw.kind.as_str() {
            "array" => Kind::Array,
            "boolean" => Kind::Boolean,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "object" => Kind::Object,
            "string" if raw.format == "int-or-string" => Kind::IntOrString,
            "string" => Kind::String,
            _ => Kind::Any,
        };
        let additional = match &raw.additional_properties {
            Some(each) => {
                let id = self.add(each);
                // In Go a null in a map is the zero value, which for a text is the empty one.
                if each.kind == "string" && matches!(each.format.as_str(), "" | "byte") {
                    self.nodes[id as usize].default = Some(json!(""));
                }
                Additional::Each(id)
            }
            None => Additional::None,
        };
        Node {
            kind,
            preserve: kind == Kind::Any,
            fields: raw.properties.iter().map(|(name, raw)| (name.as_str().into(), self.add(raw))).collect(),
            additional,
            items: raw.items.as_ref().map(|items| self.add(items)),
            list: match raw.list_type.as_str() {
                "set" => List::Set,
                "map" => List::Map(raw.list_map_keys.clone()),
                _ => List::Atomic,
            },
            atomic: raw.map_type == "atomic",
            format: match raw.format.as_str() {
                "int32" => Some(Format::Int32),
                "int64" => Some(Format::Int64),
                "double" => Some(Format::Double),
                "byte" => Some(Format::Byte),
                _ => None,
            },
            // Of types that are known better, `filled` says it.
            written_empty: if raw.written.is_some() { Vec::new() } else { raw.required.clone() },
            zero: raw.zero.clone(),
            filled: raw.written.iter().flatten().map(|(field, value)| (field.as_str().into(), value.clone())).collect(),
            ..Node::default()
        }
    }
}

/// What the document does not say of a type, but Go does.
fn special(name: &str, mut node: Node) -> Node {
    let (package, short) = name.rsplit_once('.').unwrap_or(("", name));
    let version = package.rsplit_once('.').map_or(package, |(_, last)| last);
    node.go = Some(format!("{version}.{short}").into());
    if let Some(own) = name.strip_prefix("io.k8s.api.") {
        for (field, default) in defaults::of(own) {
            node.filled.retain(|(name, _)| **name != *field);
            node.filled.push((field.into(), default));
        }
        node.rule = defaults::rule(own);
    }
    match (package, short) {
        // Lists that are optional, yet without `omitempty`.
        (EXTENSIONS, "CustomResourceDefinitionStatus") => {
            node.written_empty.extend(["conditions", "storedVersions"].map(Into::into));
        }
        (META, "Time") => node.format = Some(Format::Time),
        (META, "MicroTime") => node.format = Some(Format::MicroTime),
        ("io.k8s.apimachinery.pkg.api.resource", "Quantity") => node.format = Some(Format::Quantity),
        (META, "FieldsV1" | "Patch") | ("io.k8s.apimachinery.pkg.runtime", "RawExtension") => node.preserve = true,
        // Not any value, but any of a schema's: what it does not know goes.
        (EXTENSIONS, "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray") => {
            node.preserve = false;
        }
        _ => {}
    }
    node
}

#[cfg(test)]
mod tests {
    use crate::schema::{Kind, List, Schema};
    use serde_json::json;

    #[test]
    fn types_of_all_groups_are_there() {
        for name in [
            "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
            "io.k8s.api.apps.v1.Deployment",
            "io.k8s.api.authentication.v1.TokenReview",
            "io.k8s.api.authorization.v1.SubjectAccessReview",
            "io.k8s.api.autoscaling.v1.Scale",
            "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
            "io.k8s.api.batch.v1.CronJob",
            "io.k8s.api.coordination.v1.Lease",
            "io.k8s.api.core.v1.Pod",
            "io.k8s.api.discovery.v1.EndpointSlice",
            "io.k8s.api.events.v1.Event",
            "io.k8s.api.networking.v1.Ingress",
            "io.k8s.api.node.v1.RuntimeClass",
            "io.k8s.api.policy.v1.PodDisruptionBudget",
            "io.k8s.api.rbac.v1.ClusterRole",
            "io.k8s.api.scheduling.v1.PriorityClass",
            "io.k8s.api.storage.v1.StorageClass",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
            "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        ] {
            assert_eq!(Schema::builtin(name).root().kind, Kind::Object, "{name}");
        }
    }

    #[test]
    fn lists_know_how_their_items_are_told_apart() {
        let schema = Schema::builtin("io.k8s.api.core.v1.Container");
        let ports = schema.field(schema.root(), "ports").unwrap();
        assert_eq!(ports.list, List::Map(vec!["containerPort".into(), "protocol".into()]));
        assert_eq!(schema.field(schema.root(), "args").unwrap().list, List::Atomic);
    }

    #[test]
    fn unknown_fields_of_built_ins_go() {
        let schema = Schema::builtin("io.k8s.api.core.v1.Pod");
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "x": 1},
            "spec": {"nope": 1, "containers": [{"name": "a", "resources": {"limits": {"cpu": 1}}, "imagee": ""}]},
        });
        assert_eq!(*schema.prune(&mut pod), ["spec.containers[0].imagee", "spec.nope"]);
        assert_eq!(pod["metadata"], json!({"name": "a", "x": 1}));
        assert_eq!(pod["spec"], json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": 1}}}]}));
    }

    #[test]
    fn a_definition_keeps_its_schema_however_deep_it_goes() {
        let schema =
            Schema::builtin("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition");
        let props = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object",
            "additionalProperties": {"type": "string", "default": {"any": ["thing"]}, "nope": 1}}}}});
        let mut crd = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": props}}]}});
        let at = "spec.versions[0].schema.openAPIV3Schema.properties.a.items.additionalProperties.nope";
        assert_eq!(*schema.prune(&mut crd), [at]);
        let kept = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"]["items"];
        assert_eq!(kept["additionalProperties"], json!({"type": "string", "default": {"any": ["thing"]}}));
        assert_eq!(schema.decode_error(&crd), None);
    }

    #[test]
    fn nulls_are_what_they_are_in_go() {
        let mut map = json!({"data": {"a": null, "b": "x"}, "immutable": null});
        Schema::builtin("io.k8s.api.core.v1.ConfigMap").default(&mut map);
        assert_eq!(map, json!({"metadata": {}, "data": {"a": "", "b": "x"}}));
    }

    #[test]
    fn raw_extensions_keep_everything() {
        let schema = Schema::builtin("io.k8s.api.apps.v1.ControllerRevision");
        let mut revision = json!({"data": {"spec": {"anything": [1]}}, "revision": 1});
        assert!(schema.prune(&mut revision).is_empty());
        assert_eq!(schema.decode_error(&revision), None);
    }
}
