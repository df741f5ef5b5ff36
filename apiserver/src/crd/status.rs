//! The status of a definition on its way to being served, and to being gone.
//!
//! A definition is created without conditions; then its names are accepted; then it is established.

use super::list;
use serde_json::{Value, json};

/// What a definition's status is when it is created.
pub(crate) fn initial(crd: &Value) -> Value {
    let mut status = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
    store(&mut status, crd);
    status
}

/// Objects are stored in some version, even if somebody says that they are in none.
pub(crate) fn keep_stored(crd: &mut Value) {
    if list(&crd["status"]["storedVersions"]).is_empty() && crd["status"].is_object() {
        let mut status = crd["status"].take();
        store(&mut status, crd);
        crd["status"] = status;
    }
}

/// Adds the version that objects are now stored in to those they may be stored in.
pub(crate) fn store(status: &mut Value, crd: &Value) {
    let storage = list(&crd["spec"]["versions"]).iter().find(|version| version["storage"] == true);
    if let Some(version) = storage
        && !list(&status["storedVersions"]).contains(&version["name"])
    {
        push(&mut status["storedVersions"], version["name"].clone());
    }
}

/// The resource is served.
pub(crate) fn establish(status: &mut Value, now: &str) {
    condition(status, ["Established", "True", "InitialNamesAccepted", "the initial names have been accepted"], now);
}

/// The definition is to be deleted.
pub(crate) fn await_deletion(status: &mut Value, now: &str) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    condition(status, ["Terminating", "True", "InstanceDeletionPending", message], now);
}

/// The definition is being deleted, and its objects with it.
pub(crate) fn terminate(status: &mut Value, now: &str) {
    let message = "CustomResource deletion is in progress";
    condition(status, ["Terminating", "True", "InstanceDeletionInProgress", message], now);
}

/// Objects can be created.
pub(crate) fn is_established(crd: &Value) -> bool {
    find(&crd["status"], "Established").is_some_and(|condition| condition["status"] == "True")
}

/// All names that it asks for are its own.
pub(crate) fn has_names(crd: &Value) -> bool {
    find(&crd["status"], "NamesAccepted").is_some_and(|condition| condition["status"] == "True")
}

/// Which one is not, in words.
pub(crate) fn names_refused(crd: &Value) -> Option<&str> {
    let refused = find(&crd["status"], "NamesAccepted").filter(|condition| condition["status"] == "False");
    refused.and_then(|condition| condition["message"].as_str())
}

pub(super) fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(&status["conditions"]).iter().find(|condition| condition["type"] == kind)
}

/// Sets a condition: type, status, reason and message. Its time is that of the last change of its status.
pub(super) fn condition(status: &mut Value, [kind, is, reason, message]: [&str; 4], now: &str) {
    let since = find(status, kind).filter(|old| old["status"] == is).map(|old| old["lastTransitionTime"].clone());
    let since = since.unwrap_or_else(|| json!(now));
    let new = json!({"type": kind, "status": is, "lastTransitionTime": since, "reason": reason, "message": message});
    let conditions = &mut status["conditions"];
    let old = conditions.as_array_mut().and_then(|all| all.iter_mut().find(|old| old["type"] == kind));
    match old {
        Some(old) => *old = new,
        None => push(conditions, new),
    }
}

/// Lists that were never written are null.
fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::{establish, initial, is_established, store, terminate};
    use crate::crd::names::{Taken, settle};
    use serde_json::json;

    #[test]
    fn a_definition_is_accepted_then_established_then_terminated() {
        let names = json!({"plural": "widgets", "kind": "Widget"});
        let crd = json!({"spec": {"names": names, "versions": [{"name": "v1", "storage": true}]}});
        let mut status = initial(&crd);
        assert_eq!(status["storedVersions"], json!(["v1"]));
        assert_eq!(status["acceptedNames"], json!({"plural": "", "kind": ""}));
        settle(&mut status, &crd, &Taken::default(), "t1");
        assert_eq!(
            status["conditions"],
            json!([
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": "t1", "reason": "NoConflicts",
                 "message": "no conflicts found"},
                {"type": "Established", "status": "False", "lastTransitionTime": "t1", "reason": "Installing",
                 "message": "the initial names have been accepted"},
            ])
        );
        assert_eq!(status["acceptedNames"], names);
        assert!(!is_established(&json!({"status": status})));
        establish(&mut status, "t2");
        assert!(is_established(&json!({"status": status})));
        assert_eq!(status["conditions"][1]["reason"], "InitialNamesAccepted");
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "t2");
        // Nothing changes when the same is said again.
        let before = status.clone();
        settle(&mut status, &crd, &Taken::default(), "t3");
        establish(&mut status, "t3");
        assert_eq!(status, before);
        terminate(&mut status, "t4");
        assert_eq!(status["conditions"][2]["type"], "Terminating");
    }

    #[test]
    fn a_new_storage_version_joins_the_old_ones() {
        let crd = |name: &str| json!({"spec": {"versions": [{"name": name, "storage": true}]}});
        let mut status = initial(&crd("v1"));
        store(&mut status, &crd("v2"));
        store(&mut status, &crd("v2"));
        assert_eq!(status["storedVersions"], json!(["v1", "v2"]));
    }
}
