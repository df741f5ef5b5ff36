//! Fields that the server sets on built-in kinds, beyond schema and metadata.
//!
//! Pods and workloads are in `pods` and `workloads`. Defaults that do not depend on the rest of the
//! object are in `defaults`. Every function is idempotent and runs after a status that the client
//! must not set is dropped. `/finalize` of a namespace does not run them.

use super::cells::items;
use serde_json::{Map, Value, json};

/// For kinds without such fields.
pub(super) fn nothing(_: &mut Value, _: Option<&Value>) {}

/// Returns the value at the dotted `path` and creates its parents. Returns `None` if a parent is
/// not an object, which validation rejects later.
fn value_at<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut value = object;
    for key in path.split('.') {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        value = value.as_object_mut()?.entry(key).or_insert(Value::Null);
    }
    Some(value)
}

/// Sets the value at the dotted `path`.
pub(super) fn set(object: &mut Value, path: &str, value: impl Into<Value>) {
    if let Some(entry) = value_at(object, path) {
        *entry = value.into();
    }
}

/// Sets the value at the dotted `path` if it is missing.
pub(super) fn set_default(object: &mut Value, path: &str, value: impl Into<Value>) {
    if let Some(entry) = value_at(object, path)
        && (entry.is_null() || entry == "")
    {
        *entry = value.into();
    }
}

/// Sets a key, which can contain dots, of the map at the dotted `path`.
pub(super) fn set_key(object: &mut Value, path: &str, key: &str, value: impl Into<Value>) {
    set_default(object, path, json!({}));
    if let Some(map) = value_at(object, path).and_then(Value::as_object_mut) {
        map.insert(key.into(), value.into());
    }
}

pub(super) fn list<'a>(
    object: &'a mut Value,
    pointer: &str,
) -> impl Iterator<Item = &'a mut Value> {
    object
        .pointer_mut(pointer)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter(|item| item.is_object())
}

/// Removes fields of coordinated leader election, whose feature gate is off, and converts times to
/// UTC.
pub(super) fn lease(object: &mut Value, _: Option<&Value>) {
    set_default(object, "spec", json!({}));
    let Some(spec) = object["spec"].as_object_mut() else {
        return;
    };
    for gated in ["preferredHolder", "strategy"] {
        spec.remove(gated);
    }
    for time in ["acquireTime", "renewTime"] {
        if let Some(text) = spec
            .get(time)
            .and_then(Value::as_str)
            .filter(|text| !text.ends_with('Z'))
            && let Ok(time_of_day) = text.parse::<jiff::Timestamp>()
        {
            spec.insert(time.into(), format!("{time_of_day:.6}").into());
        }
    }
}

pub(super) fn namespace(object: &mut Value, old: Option<&Value>) {
    label_with_name(object);
    // Later only `/finalize` changes the spec.
    if let Some(old) = old {
        set(object, "spec", old["spec"].clone());
        return;
    }
    set_default(object, "status.phase", "Active");
    set_default(object, "spec.finalizers", json!([]));
    if let Some(all) = object
        .pointer_mut("/spec/finalizers")
        .and_then(Value::as_array_mut)
        && !all.contains(&json!("kubernetes"))
    {
        all.push("kubernetes".into());
    }
}

/// Prepares a namespace that `/finalize` changes.
pub(crate) fn namespace_finalized(object: &mut Value) {
    label_with_name(object);
    set_default(object, "spec", json!({}));
    if items(object, "/spec/finalizers").is_empty()
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.remove("finalizers");
    }
}

fn label_with_name(object: &mut Value) {
    if let Some(name) = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .map(String::from)
    {
        set_key(
            object,
            "metadata.labels",
            "kubernetes.io/metadata.name",
            name,
        );
    }
}

pub(super) fn secret(object: &mut Value, _: Option<&Value>) {
    use base64::Engine as _;
    if let Some(Value::Object(texts)) = object
        .as_object_mut()
        .and_then(|object| object.remove("stringData"))
    {
        for (key, text) in texts {
            let bytes = text.as_str().unwrap_or_default();
            set_key(
                object,
                "data",
                &key,
                base64::engine::general_purpose::STANDARD.encode(bytes),
            );
        }
    }
}

/// Adds a finalizer that protects an object in use. Its controller removes it.
fn protect(object: &mut Value, finalizer: &str) {
    set_default(object, "metadata.finalizers", json!([]));
    if let Some(all) = object
        .pointer_mut("/metadata/finalizers")
        .and_then(Value::as_array_mut)
        && !all.iter().any(|it| it == finalizer)
    {
        all.push(finalizer.into());
    }
}

pub(super) fn volume(object: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        protect(object, "kubernetes.io/pv-protection");
        let now = object["metadata"]["creationTimestamp"].clone();
        if !now.is_null() {
            set_default(object, "status.lastPhaseTransitionTime", now);
        }
    }
}

pub(super) fn volume_claim(object: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        protect(object, "kubernetes.io/pvc-protection");
    }
}

pub(super) fn autoscaler(object: &mut Value, _: Option<&Value>) {
    let default = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
    }});
    if items(object, "/spec/metrics").is_empty() {
        set(object, "spec.metrics", json!([default]));
    }
}

pub(super) fn network_policy(object: &mut Value, _: Option<&Value>) {
    let has_egress = !items(object, "/spec/egress").is_empty();
    set_default(
        object,
        "spec.policyTypes",
        if has_egress {
            json!(["Ingress", "Egress"])
        } else {
            json!(["Ingress"])
        },
    );
}

pub(super) fn role_binding(object: &mut Value, _: Option<&Value>) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    for subject in
        list(object, "/subjects").filter(|it| it["kind"] == "User" || it["kind"] == "Group")
    {
        set_default(subject, "apiGroup", GROUP);
    }
}

pub(super) fn csi_driver(object: &mut Value, _: Option<&Value>) {
    set_default(object, "spec.attachRequired", true);
    set_default(object, "spec.podInfoOnMount", false);
    set_default(object, "spec.storageCapacity", false);
    set_default(object, "spec.fsGroupPolicy", "ReadWriteOnceWithFSType");
    set_default(object, "spec.volumeLifecycleModes", json!(["Persistent"]));
    set_default(object, "spec.requiresRepublish", false);
}

pub(super) fn webhooks(object: &mut Value, _: Option<&Value>) {
    let mutating = object["kind"] == "MutatingWebhookConfiguration";
    for webhook in list(object, "/webhooks") {
        set_default(webhook, "failurePolicy", "Fail");
        set_default(webhook, "matchPolicy", "Equivalent");
        set_default(webhook, "namespaceSelector", json!({}));
        set_default(webhook, "objectSelector", json!({}));
        set_default(webhook, "timeoutSeconds", 10);
        if mutating {
            set_default(webhook, "reinvocationPolicy", "Never");
        }
        if webhook
            .pointer("/clientConfig/service")
            .is_some_and(Value::is_object)
        {
            set_default(webhook, "clientConfig.service.port", 443);
        }
        for rule in list(webhook, "/rules") {
            set_default(rule, "scope", "*");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_gets_a_label_with_its_name_and_a_finalizer() {
        let mut created = json!({"metadata": {"name": "a"}});
        namespace(&mut created, None);
        assert_eq!(
            created,
            json!({
                "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            })
        );
        let mut changed =
            json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "b"}}});
        namespace(&mut changed, Some(&created));
        assert_eq!(
            changed["metadata"]["labels"]["kubernetes.io/metadata.name"],
            "a"
        );
        assert_eq!(changed["spec"]["finalizers"], json!(["kubernetes"]));
    }

    #[test]
    fn string_data_of_a_secret_overrides_its_data() {
        let mut object = json!({"data": {"a": "b2xk", "b": "Yg=="}, "stringData": {"a": "new"}});
        secret(&mut object, None);
        assert_eq!(object, json!({"data": {"a": "bmV3", "b": "Yg=="}}));
    }

    #[test]
    fn values_that_are_not_objects_are_left_to_validation() {
        let mut object = json!({"spec": "none", "metadata": {"name": "a", "labels": 1}});
        super::super::services::prepare(&mut object, None);
        namespace(&mut object, None);
        assert_eq!(
            (&object["spec"], &object["metadata"]["labels"]),
            (&json!("none"), &json!(1))
        );
    }

    #[test]
    fn preparing_twice_changes_nothing_more() {
        for row in super::super::table::CORE
            .iter()
            .chain(super::super::groups::NAMED)
        {
            let mut once = json!({"kind": row.kind(), "metadata": {"name": "a", "uid": "1"}, "webhooks": [{}]});
            (row.prepare)(&mut once, None);
            let mut twice = once.clone();
            (row.prepare)(&mut twice, None);
            assert_eq!(once, twice, "{}", row.plural);
        }
    }
}
