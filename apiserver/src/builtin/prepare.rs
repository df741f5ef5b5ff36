//! What the server fills in for built-in kinds, beyond schema and metadata.
//!
//! Pods and what makes them are in `pods` and `workloads`. Every function may run more than once on the same object, and
//! runs after a status that is not the client's to set has been dropped; `/finalize` of a namespace must not run it.
//! What does not depend on the rest of the object is in `defaults`.

use super::cells::items;
use serde_json::{Map, Value, json};

/// For kinds that need nothing.
pub(super) fn nothing(_: &mut Value, _: Option<&Value>) {}

/// The place at the dotted `path`, with what leads to it; nowhere if something else is in the way, which validation
/// refuses.
fn place<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut value = object;
    for key in path.split('.') {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        value = value.as_object_mut()?.entry(key).or_insert(Value::Null);
    }
    Some(value)
}

/// Puts `value` at the dotted `path`.
pub(super) fn put(object: &mut Value, path: &str, value: impl Into<Value>) {
    if let Some(place) = place(object, path) {
        *place = value.into();
    }
}

/// Puts `value` at the dotted `path` unless something is there.
pub(super) fn fill(object: &mut Value, path: &str, value: impl Into<Value>) {
    if let Some(place) = place(object, path)
        && (place.is_null() || place == "")
    {
        *place = value.into();
    }
}

/// Puts `value` under a key, which may have dots, of the map at the dotted `path`.
pub(super) fn put_key(object: &mut Value, path: &str, key: &str, value: impl Into<Value>) {
    fill(object, path, json!({}));
    if let Some(map) = place(object, path).and_then(Value::as_object_mut) {
        map.insert(key.into(), value.into());
    }
}

pub(super) fn list<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten().filter(|item| item.is_object())
}

/// What elects leaders among candidates is behind a gate that is closed. Times are kept in UTC.
pub(super) fn lease(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec", json!({}));
    let Some(spec) = object["spec"].as_object_mut() else { return };
    for gated in ["preferredHolder", "strategy"] {
        spec.remove(gated);
    }
    for time in ["acquireTime", "renewTime"] {
        if let Some(text) = spec.get(time).and_then(Value::as_str).filter(|text| !text.ends_with('Z'))
            && let Ok(time_of_day) = text.parse::<jiff::Timestamp>()
        {
            spec.insert(time.into(), format!("{time_of_day:.6}").into());
        }
    }
}

pub(super) fn namespace(object: &mut Value, old: Option<&Value>) {
    label_with_name(object);
    // Afterwards only `/finalize` changes them.
    if let Some(old) = old {
        put(object, "spec", old["spec"].clone());
        return;
    }
    fill(object, "status.phase", "Active");
    fill(object, "spec.finalizers", json!([]));
    if let Some(all) = object.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut)
        && !all.contains(&json!("kubernetes"))
    {
        all.push("kubernetes".into());
    }
}

/// A namespace after `/finalize`, which is the one that changes its spec.
pub(crate) fn namespace_finalized(object: &mut Value) {
    label_with_name(object);
    fill(object, "spec", json!({}));
    if items(object, "/spec/finalizers").is_empty()
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.remove("finalizers");
    }
}

fn label_with_name(object: &mut Value) {
    if let Some(name) = object.pointer("/metadata/name").and_then(Value::as_str).map(String::from) {
        put_key(object, "metadata.labels", "kubernetes.io/metadata.name", name);
    }
}

pub(super) fn secret(object: &mut Value, _: Option<&Value>) {
    use base64::Engine as _;
    if let Some(Value::Object(texts)) = object.as_object_mut().and_then(|object| object.remove("stringData")) {
        for (key, text) in texts {
            let bytes = text.as_str().unwrap_or_default();
            put_key(object, "data", &key, base64::engine::general_purpose::STANDARD.encode(bytes));
        }
    }
}

/// What is in use is not to go: whoever lets it go takes the finalizer away.
fn protect(object: &mut Value, finalizer: &str) {
    fill(object, "metadata.finalizers", json!([]));
    if let Some(all) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut)
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
            fill(object, "status.lastPhaseTransitionTime", now);
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
        put(object, "spec.metrics", json!([default]));
    }
}

pub(super) fn network_policy(object: &mut Value, _: Option<&Value>) {
    let both = !items(object, "/spec/egress").is_empty();
    fill(object, "spec.policyTypes", if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}

pub(super) fn role_binding(object: &mut Value, _: Option<&Value>) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    for subject in list(object, "/subjects").filter(|it| it["kind"] == "User" || it["kind"] == "Group") {
        fill(subject, "apiGroup", GROUP);
    }
}

pub(super) fn csi_driver(object: &mut Value, _: Option<&Value>) {
    fill(object, "spec.attachRequired", true);
    fill(object, "spec.podInfoOnMount", false);
    fill(object, "spec.storageCapacity", false);
    fill(object, "spec.fsGroupPolicy", "ReadWriteOnceWithFSType");
    fill(object, "spec.volumeLifecycleModes", json!(["Persistent"]));
    fill(object, "spec.requiresRepublish", false);
}

pub(super) fn webhooks(object: &mut Value, _: Option<&Value>) {
    let mutating = object["kind"] == "MutatingWebhookConfiguration";
    for webhook in list(object, "/webhooks") {
        fill(webhook, "failurePolicy", "Fail");
        fill(webhook, "matchPolicy", "Equivalent");
        fill(webhook, "namespaceSelector", json!({}));
        fill(webhook, "objectSelector", json!({}));
        fill(webhook, "timeoutSeconds", 10);
        if mutating {
            fill(webhook, "reinvocationPolicy", "Never");
        }
        if webhook.pointer("/clientConfig/service").is_some_and(Value::is_object) {
            fill(webhook, "clientConfig.service.port", 443);
        }
        for rule in list(webhook, "/rules") {
            fill(rule, "scope", "*");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_labelled_with_its_name_and_held_by_a_finalizer() {
        let mut made = json!({"metadata": {"name": "a"}});
        namespace(&mut made, None);
        assert_eq!(
            made,
            json!({
                "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            })
        );
        let mut changed = json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "b"}}});
        namespace(&mut changed, Some(&made));
        assert_eq!(changed["metadata"]["labels"]["kubernetes.io/metadata.name"], "a");
        assert_eq!(changed["spec"]["finalizers"], json!(["kubernetes"]));
    }

    #[test]
    fn a_secret_s_string_data_wins_over_its_data_and_is_not_kept() {
        let mut object = json!({"data": {"a": "b2xk", "b": "Yg=="}, "stringData": {"a": "new"}});
        secret(&mut object, None);
        assert_eq!(object, json!({"data": {"a": "bmV3", "b": "Yg=="}}));
    }

    #[test]
    fn what_is_no_object_is_left_for_validation() {
        let mut object = json!({"spec": "none", "metadata": {"name": "a", "labels": 1}});
        super::super::services::prepare(&mut object, None);
        namespace(&mut object, None);
        assert_eq!((&object["spec"], &object["metadata"]["labels"]), (&json!("none"), &json!(1)));
    }

    #[test]
    fn preparing_twice_changes_nothing_more() {
        for row in super::super::table::CORE.iter().chain(super::super::groups::NAMED) {
            let mut once = json!({"kind": row.kind(), "metadata": {"name": "a", "uid": "1"}, "webhooks": [{}]});
            (row.prepare)(&mut once, None);
            let mut twice = once.clone();
            (row.prepare)(&mut twice, None);
            assert_eq!(once, twice, "{}", row.plural);
        }
    }
}
