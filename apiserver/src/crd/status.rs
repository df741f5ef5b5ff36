//! Status of CRDs, from creation to deletion.
//!
//! A CRD is created without conditions. Then its names are accepted, then it is established.

use super::list;
use serde_json::{Value, json};

/// Returns the status of a new CRD.
pub(crate) fn initial(crd: &Value) -> Value {
    let mut status = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
    add_storage_version(&mut status, crd);
    status
}

/// Restores `status.storedVersions` if a client has emptied it.
pub(crate) fn restore_stored_versions(crd: &mut Value) {
    if list(&crd["status"]["storedVersions"]).is_empty() && crd["status"].is_object() {
        let mut status = crd["status"].take();
        add_storage_version(&mut status, crd);
        crd["status"] = status;
    }
}

/// Adds the storage version to the stored versions.
pub(crate) fn add_storage_version(status: &mut Value, crd: &Value) {
    let storage = list(&crd["spec"]["versions"])
        .iter()
        .find(|version| version["storage"] == true);
    if let Some(version) = storage
        && !list(&status["storedVersions"]).contains(&version["name"])
    {
        push(&mut status["storedVersions"], version["name"].clone());
    }
}

/// Sets the condition `Established` to true.
pub(crate) fn establish(status: &mut Value, now: &str) {
    set_condition(
        status,
        [
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ],
        now,
    );
}

/// Sets the condition `Terminating`: deletion of the objects has not begun.
pub(crate) fn await_deletion(status: &mut Value, now: &str) {
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(
        status,
        ["Terminating", "True", "InstanceDeletionPending", message],
        now,
    );
}

/// Sets the condition `Terminating`: deletion of the objects is in progress.
pub(crate) fn terminate(status: &mut Value, now: &str) {
    let message = "CustomResource deletion is in progress";
    set_condition(
        status,
        ["Terminating", "True", "InstanceDeletionInProgress", message],
        now,
    );
}

/// Reports whether the CRD is established.
pub(crate) fn is_established(crd: &Value) -> bool {
    find(&crd["status"], "Established").is_some_and(|condition| condition["status"] == "True")
}

/// Reports whether all names of the CRD are accepted.
pub(crate) fn names_accepted(crd: &Value) -> bool {
    find(&crd["status"], "NamesAccepted").is_some_and(|condition| condition["status"] == "True")
}

/// Returns the message about a name that is not accepted.
pub(crate) fn name_conflict(crd: &Value) -> Option<&str> {
    let conflict =
        find(&crd["status"], "NamesAccepted").filter(|condition| condition["status"] == "False");
    conflict.and_then(|condition| condition["message"].as_str())
}

pub(super) fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(&status["conditions"])
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Sets a condition. Keeps its transition time unless its status changes.
pub(super) fn set_condition(
    status: &mut Value,
    [kind, value, reason, message]: [&str; 4],
    now: &str,
) {
    let since = find(status, kind)
        .filter(|old| old["status"] == value)
        .map(|old| old["lastTransitionTime"].clone());
    let since = since.unwrap_or_else(|| json!(now));
    let new = json!({"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message});
    let conditions = &mut status["conditions"];
    let old = conditions
        .as_array_mut()
        .and_then(|all| all.iter_mut().find(|old| old["type"] == kind));
    match old {
        Some(old) => *old = new,
        None => push(conditions, new),
    }
}

/// Appends to a list, which is null if it was never written.
fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::{add_storage_version, establish, initial, is_established, terminate};
    use crate::crd::names::{NamesInUse, accept_names};
    use serde_json::json;

    #[test]
    fn a_crd_is_accepted_then_established_then_terminated() {
        let names = json!({"plural": "widgets", "kind": "Widget"});
        let crd = json!({"spec": {"names": names, "versions": [{"name": "v1", "storage": true}]}});
        let mut status = initial(&crd);
        assert_eq!(status["storedVersions"], json!(["v1"]));
        assert_eq!(status["acceptedNames"], json!({"plural": "", "kind": ""}));
        accept_names(&mut status, &crd, &NamesInUse::default(), "t1");
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
        // Repeating the calls changes nothing.
        let before = status.clone();
        accept_names(&mut status, &crd, &NamesInUse::default(), "t3");
        establish(&mut status, "t3");
        assert_eq!(status, before);
        terminate(&mut status, "t4");
        assert_eq!(status["conditions"][2]["type"], "Terminating");
    }

    #[test]
    fn a_new_storage_version_is_added_to_the_stored_versions() {
        let crd = |name: &str| json!({"spec": {"versions": [{"name": name, "storage": true}]}});
        let mut status = initial(&crd("v1"));
        add_storage_version(&mut status, &crd("v2"));
        add_storage_version(&mut status, &crd("v2"));
        assert_eq!(status["storedVersions"], json!(["v1", "v2"]));
    }
}
