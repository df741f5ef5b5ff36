//! Validation and deduplication of owner references.

use super::text;
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;
use std::collections::BTreeSet;

/// Validates the owner references of `meta`.
pub(super) fn validate(meta: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut controller: Option<String> = None;
    for (at, owner) in meta["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let path = || format!("metadata.ownerReferences[{at}]");
        let [api_version, kind, name, uid] =
            ["apiVersion", "kind", "name", "uid"].map(|field| text(owner, field));
        let version = match api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => "",
            Some((_, version)) => version,
            None => api_version,
        };
        if version.is_empty() && !api_version.is_empty() {
            let why = "must be <group>/<version> or <version>";
            errors.push(FieldError::invalid(
                path() + ".apiVersion",
                &api_version.into(),
                why,
            ));
        }
        for (field, value) in [
            ("apiVersion", api_version),
            ("kind", kind),
            ("name", name),
            ("uid", uid),
        ] {
            if value.is_empty() {
                errors.push(FieldError::required(
                    format!("{}.{field}", path()),
                    "must not be empty",
                ));
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_formatted(
                path(),
                &format_owner(owner),
                why,
            ));
        }
        if owner["controller"] == true {
            let current = format!("{kind}/{name}");
            match &controller {
                None => controller = Some(current),
                // Skip formatting: each of these errors contains all owners.
                Some(_) if errors.is_full() => {}
                Some(first) => {
                    let why = "Only one reference can have Controller set to true. Found \"true\" in references for";
                    let why = format!("{why} {first} and {current}");
                    let owners: Vec<_> = meta["ownerReferences"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(format_owner)
                        .collect();
                    let formatted = format!("[{}]", owners.join(","));
                    errors.push(FieldError::invalid_formatted(
                        "metadata.ownerReferences",
                        &formatted,
                        why,
                    ));
                }
            }
        }
    }
    errors
}

/// Formats an owner reference with its fields in the order of Go's type.
fn format_owner(owner: &Value) -> String {
    let fields = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let required = &fields[..4];
    let formatted = fields
        .iter()
        .filter(|field| required.contains(field) || !owner[**field].is_null());
    let formatted: Vec<_> = formatted
        .map(|field| {
            let value = if owner[*field].is_null() {
                "\"\"".into()
            } else {
                owner[*field].to_string()
            };
            format!("\"{field}\":{value}")
        })
        .collect();
    format!("{{{}}}", formatted.join(","))
}

/// Removes duplicate owner references and returns the warning for the client. `admitted` selects
/// the text for duplicates that were found only after admission, as those of a patch are.
pub(crate) fn dedupe_owner_references(object: &mut Value, admitted: bool) -> Option<String> {
    let owners = object
        .pointer_mut("/metadata/ownerReferences")?
        .as_array_mut()?;
    let mut seen = BTreeSet::new();
    let mut duplicates = BTreeSet::new();
    owners.retain(|owner| {
        let first = seen.insert(owner.to_string());
        if !first {
            duplicates.insert(text(owner, "uid").to_owned());
        }
        first
    });
    let duplicates: Vec<_> = duplicates.into_iter().collect();
    let when = if admitted {
        " after mutating admission happens"
    } else {
        ""
    };
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}
