//! Strategy for random requests. Most are nearly valid, since invalid ones are rejected early.

use crate::support::{config_map, widget, widgets};
use proptest::{prelude::*, sample::select};
use serde_json::{Map, Value, json};

#[derive(Clone)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Vec<u8>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            method,
            path,
            headers,
            body,
        } = self;
        write!(
            f,
            "{method} {path} {headers:?} {}",
            String::from_utf8_lossy(body)
        )
    }
}

const METHODS: [&str; 12] = [
    "GET", "GET", "GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS",
    "FOO",
];
const PREFIXES: [&str; 12] = [
    "/api/v1",
    "/api/v1",
    "/apis/example.com/v1",
    "/apis/example.com/v1beta1",
    "/apis/apps/v1",
    "/apis/apiextensions.k8s.io/v1",
    "/apis/coordination.k8s.io/v1",
    "/apis/events.k8s.io/v1",
    "/api/v1/watch",
    "/apis/nope/v1",
    "/openapi/v3",
    "/",
];
const NAMESPACES: [&str; 8] = [
    "default", "default", "default", "other", "nope", "%2e%2e", "", "A",
];
const RESOURCES: [&str; 13] = [
    "configmaps",
    "configmaps",
    "widgets",
    "widgets",
    "pods",
    "secrets",
    "namespaces",
    "deployments",
    "customresourcedefinitions",
    "leases",
    "events",
    "nope",
    "%00",
];
const NAMES: [&str; 11] = [
    "a",
    "a",
    "b",
    "c",
    "other",
    "widgets.example.com",
    "default",
    "..",
    "%2F",
    "Capitals",
    "%ff",
];
const SUBRESOURCES: [&str; 6] = ["status", "scale", "finalize", "log", "", "nope"];
const QUERIES: [&str; 46] = [
    "watch=1",
    "watch=1&timeoutSeconds=9223372036854775807",
    "watch=0",
    "limit=1",
    "limit=x",
    "limit=-1",
    "limit=9223372036854775807",
    "limit=18446744073709551615",
    "continue=x",
    "resourceVersion=0",
    "resourceVersion=5",
    "resourceVersion=99999",
    "resourceVersion=9223372036854775807",
    "resourceVersion=18446744073709551615",
    "resourceVersion=x",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=true",
    "allowWatchBookmarks=true",
    "timeoutSeconds=1",
    "timeoutSeconds=-1",
    "timeoutSeconds=9999999999",
    "timeoutSeconds=9223372036854775807",
    "timeoutSeconds=18446744073709551615",
    "labelSelector=a%3Db",
    "labelSelector=a+in",
    "labelSelector=%21a",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=spec.x%3D1",
    "fieldSelector=status.phase%3DPending",
    "dryRun=All",
    "dryRun=x",
    "fieldValidation=Strict",
    "fieldValidation=Ignore",
    "fieldManager=m",
    "force=true",
    "propagationPolicy=Foreground",
    "propagationPolicy=Orphan",
    "gracePeriodSeconds=0",
    "gracePeriodSeconds=-1",
    "gracePeriodSeconds=3",
    "gracePeriodSeconds=99999999999999",
    "gracePeriodSeconds=9223372036854775807",
    "gracePeriodSeconds=-9223372036854775808",
    "pretty=true",
    "%zz=%ff&&;=",
];
const CONTENT_TYPES: [&str; 8] = [
    "application/json",
    "application/json",
    "application/merge-patch+json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/yaml",
    "text/plain",
];
const ACCEPTS: [&str; 8] = [
    "*/*",
    "application/json",
    "application/yaml",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "text/html",
];
const KEYS: [&str; 22] = [
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "deletionTimestamp",
    "resourceVersion",
    "uid",
    "generation",
    "deletionGracePeriodSeconds",
    "terminationGracePeriodSeconds",
    "spec",
    "status",
    "data",
    "replicas",
    "color",
    "a",
    "kind",
    "apiVersion",
    "",
];
const TEXTS: [&str; 14] = [
    "",
    "a",
    "b",
    "red",
    "default",
    "other",
    "1",
    "x y",
    "example.com/a",
    "kubernetes",
    "2026-01-02T03:04:05Z",
    "Widget",
    "v1",
    "\u{0}ä",
];

fn json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        (-2_i64..3).prop_map(Value::from),
        select(&[i64::MIN, i64::MAX, 1 << 31, 99_999_999_999_999]).prop_map(Value::from),
        Just(json!(u64::MAX)),
        Just(json!(1.5)),
        Just(json!(1e300)),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        select(&TEXTS).prop_map(Value::from),
        select(&TEXTS).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((select(&KEYS), inner), 0..4).prop_map(|fields| fields
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

/// Returns one valid object of each kind, most with the name `a`.
fn samples() -> Vec<Value> {
    let pod = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": "n"});
    let labels = json!({"app": "x"});
    vec![
        config_map("a"),
        config_map("a"),
        widget("a"),
        widget("a"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "a", "generation": i64::MAX, "deletionGracePeriodSeconds": i64::MAX, "finalizers": ["example.com/f"]}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}),
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "reason": "R", "message": "m",
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"}}),
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}),
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": i64::MAX}),
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "preconditions": {"uid": "x"}}),
        widgets(),
    ]
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(nodes).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

/// Replaces the `n`th value of the tree.
fn replace(value: &mut Value, n: &mut usize, with: &Value) {
    if *n == 0 {
        *value = with.clone();
    }
    *n = n.wrapping_sub(1);
    match value {
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|value| replace(value, n, with)),
        Value::Array(items) => items.iter_mut().for_each(|value| replace(value, n, with)),
        _ => {}
    }
}

fn mutated_object() -> impl Strategy<Value = Value> {
    (
        select(samples()),
        prop::option::weighted(0.6, (any::<prop::sample::Index>(), json())),
    )
        .prop_map(|(mut object, change)| {
            if let Some((at, with)) = change {
                let mut at = at.index(nodes(&object));
                replace(&mut object, &mut at, &with);
            }
            object
        })
}

fn patch() -> impl Strategy<Value = Value> {
    let pointer = prop::collection::vec(select(&KEYS), 0..4)
        .prop_map(|keys| keys.iter().flat_map(|key| ["/", key]).collect::<String>());
    let operation = (
        select(&["add", "remove", "replace", "test", "copy", "move", "x"]),
        pointer.clone(),
        pointer,
        json(),
    )
        .prop_map(
            |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
        );
    let merge = (
        select(&["metadata", "spec", "status", "data"]),
        select(&KEYS),
        json(),
    )
        .prop_map(|(part, key, value)| json!({part: {key: value}}));
    prop_oneof![
        prop::collection::vec(operation, 0..4).prop_map(Value::from),
        merge
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let text = |value: Value| value.to_string().into_bytes();
    prop_oneof![
        2 => Just(Vec::new()),
        6 => mutated_object().prop_map(text),
        3 => patch().prop_map(text),
        1 => json().prop_map(text),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (mutated_object().prop_map(text), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut body, at, byte)| {
            let at = at.index(body.len());
            body[at] = byte;
            body
        }),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let maybe =
        |chance, from: &'static [&'static str]| prop::option::weighted(chance, select(from));
    let parts = (
        select(&PREFIXES),
        maybe(0.7, &NAMESPACES),
        maybe(0.95, &RESOURCES),
        maybe(0.6, &NAMES),
        maybe(0.2, &SUBRESOURCES),
    );
    let built = parts.prop_map(|(prefix, namespace, resource, name, part)| {
        let namespace = namespace
            .map(|namespace| format!("/namespaces/{namespace}"))
            .unwrap_or_default();
        let rest: String = [resource, name, part]
            .into_iter()
            .flatten()
            .flat_map(|part| ["/", part])
            .collect();
        format!("{prefix}{namespace}{rest}")
    });
    let real = select(&[
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/configmaps/a",
        "/apis/example.com/v1/namespaces/default/widgets",
        "/apis/example.com/v1/namespaces/default/widgets/a",
        "/apis/example.com/v1beta1/namespaces/default/widgets/a",
        "/apis/example.com/v1/namespaces/default/widgets/a/status",
        "/apis/example.com/v1/namespaces/default/widgets/a/scale",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces",
        "/api/v1/namespaces/other",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/deployments/a",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
        "/api/v1/namespaces/default/events",
        "/apis/events.k8s.io/v1/namespaces/default/events/a",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
    ]);
    prop_oneof![2 => built, 5 => real.prop_map(str::to_owned)]
}

pub(super) fn request() -> impl Strategy<Value = Request> {
    let query = prop::collection::vec(select(&QUERIES), 0..3);
    let headers = (
        prop::option::weighted(0.9, select(&CONTENT_TYPES)),
        prop::option::weighted(0.2, select(&ACCEPTS)),
    );
    (select(&METHODS), path(), query, headers, body()).prop_map(
        |(method, path, query, (content_type, accept), body)| {
            let path = if query.is_empty() || path.contains("//") {
                path
            } else {
                format!("{path}?{}", query.join("&"))
            };
            let content_type = content_type.map(|content_type| ("content-type", content_type));
            Request {
                method,
                path,
                headers: content_type
                    .into_iter()
                    .chain(accept.map(|accept| ("accept", accept)))
                    .collect(),
                body,
            }
        },
    )
}
