//! References to owners: each is named whole, one controls, none is there twice.

use super::text;
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;
use std::collections::BTreeSet;

/// What is wrong with the owner references of metadata.
pub(super) fn validate(meta: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut controller: Option<String> = None;
    for (at, owner) in meta["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        let here = || format!("metadata.ownerReferences[{at}]");
        let [api_version, kind, name, uid] = ["apiVersion", "kind", "name", "uid"].map(|field| text(owner, field));
        let version = match api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => "",
            Some((_, version)) => version,
            None => api_version,
        };
        if version.is_empty() && !api_version.is_empty() {
            let why = "must be <group>/<version> or <version>";
            errors.push(FieldError::invalid(here() + ".apiVersion", &api_version.into(), why));
        }
        for (field, value) in [("apiVersion", api_version), ("kind", kind), ("name", name), ("uid", uid)] {
            if value.is_empty() {
                errors.push(FieldError::required(format!("{}.{field}", here()), "must not be empty"));
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_text(here(), &shown_owner(owner), why));
        }
        if owner["controller"] == true {
            let this = format!("{kind}/{name}");
            match &controller {
                None => controller = Some(this),
                // Each of these errors shows all owners.
                Some(_) if errors.is_full() => {}
                Some(first) => {
                    let why = "Only one reference can have Controller set to true. Found \"true\" in references for";
                    let why = format!("{why} {first} and {this}");
                    let owners: Vec<_> =
                        meta["ownerReferences"].as_array().into_iter().flatten().map(shown_owner).collect();
                    let shown = format!("[{}]", owners.join(","));
                    errors.push(FieldError::invalid_text("metadata.ownerReferences", &shown, why));
                }
            }
        }
    }
    errors
}

/// An owner reference in the order of Go's fields.
fn shown_owner(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let always = &fields[..4];
    let shown = fields.iter().filter(|field| always.contains(field) || !owner[**field].is_null());
    let shown: Vec<_> = shown
        .map(|field| {
            let value = if owner[*field].is_null() { "\"\"".into() } else { owner[*field].to_string() };
            format!("\"{field}\":{value}")
        })
        .collect();
    format!("{{{}}}", shown.join(","))
}

/// Leaves one of owner references that are the same, and gives the warning that the client gets for it. In what a patch made they
/// are found only once the object has been `admitted`.
pub(crate) fn dedupe_owner_references(object: &mut Value, admitted: bool) -> Option<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences")?.as_array_mut()?;
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    owners.retain(|owner| {
        let first = seen.insert(owner.to_string());
        if !first {
            twice.insert(text(owner, "uid").to_owned());
        }
        first
    });
    let twice: Vec<_> = twice.into_iter().collect();
    let when = if admitted { " after mutating admission happens" } else { "" };
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        )
    })
}
