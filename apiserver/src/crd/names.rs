//! Acceptance of the names of CRDs. Only one CRD of a group can have a name.
//!
//! Each name is checked on its own. Unused names are accepted even if another name of the CRD
//! conflicts, and names that were accepted before stay accepted. Of several conflicts the last one
//! is reported.

use super::{list, status};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Names that other CRDs use.
#[derive(Debug, Default)]
pub(crate) struct NamesInUse {
    /// Plurals, singulars and short names.
    resources: BTreeSet<String>,
    /// Kinds and list kinds.
    kinds: BTreeSet<String>,
}

impl NamesInUse {
    /// Adds the accepted names of a CRD.
    pub(crate) fn add(&mut self, names: &Value) {
        let text = |key: &str| {
            names[key]
                .as_str()
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
        };
        let short = list(&names["shortNames"])
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned));
        self.resources.extend(
            [text("plural"), text("singular")]
                .into_iter()
                .flatten()
                .chain(short),
        );
        self.kinds
            .extend([text("kind"), text("listKind")].into_iter().flatten());
    }
}

/// Accepts the names of a CRD that are not in use, and sets its conditions.
pub(crate) fn accept_names(status: &mut Value, crd: &Value, in_use: &NamesInUse, now: &str) {
    let requested = &crd["spec"]["names"];
    let mut accepted = status["acceptedNames"].clone();
    let mut conflict = None;
    let describe_conflict = |name: &Value| format!("{name} is already in use");
    for (key, reason, in_use) in [
        ("plural", "PluralConflict", &in_use.resources),
        ("singular", "SingularConflict", &in_use.resources),
        ("shortNames", "ShortNamesConflict", &in_use.resources),
        ("kind", "KindConflict", &in_use.kinds),
        ("listKind", "ListKindConflict", &in_use.kinds),
    ] {
        let is_in_use = |name: &Value| name.as_str().is_some_and(|name| in_use.contains(name));
        let conflicts: Vec<_> = match key {
            "shortNames" => {
                let own: BTreeSet<_> = list(&accepted[key]).iter().map(Value::as_str).collect();
                let new = list(&requested[key])
                    .iter()
                    .filter(|name| !own.contains(&name.as_str()));
                new.filter(|name| is_in_use(name))
                    .map(describe_conflict)
                    .collect()
            }
            _ if requested[key] != accepted[key] && is_in_use(&requested[key]) => {
                vec![describe_conflict(&requested[key])]
            }
            _ => Vec::new(),
        };
        match &conflicts[..] {
            [] => accept(&mut accepted, requested, key),
            [one] => conflict = Some((reason, one.clone())),
            all => conflict = Some((reason, format!("[{}]", all.join(", ")))),
        }
    }
    accept(&mut accepted, requested, "categories");
    status["acceptedNames"] = accepted;
    match &conflict {
        None => status::set_condition(
            status,
            ["NamesAccepted", "True", "NoConflicts", "no conflicts found"],
            now,
        ),
        Some((reason, message)) => {
            status::set_condition(status, ["NamesAccepted", "False", reason, message], now);
        }
    }
    let established = status::find(status, "Established")
        .cloned()
        .unwrap_or_default();
    if established["status"] == "True" {
        return;
    }
    if conflict.is_none() {
        let message = "the initial names have been accepted";
        status::set_condition(status, ["Established", "False", "Installing", message], now);
    } else if established.is_null() {
        status::set_condition(
            status,
            [
                "Established",
                "False",
                "NotAccepted",
                "not all names are accepted",
            ],
            now,
        );
    }
}

fn accept(accepted: &mut Value, requested: &Value, key: &str) {
    if !accepted.is_object() {
        *accepted = json!({});
    }
    match requested.get(key) {
        Some(names) => accepted[key] = names.clone(),
        None => drop(
            accepted
                .as_object_mut()
                .and_then(|accepted| accepted.remove(key)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{NamesInUse, accept_names};
    use serde_json::{Value, json};

    fn accept(names: Value, before: Value) -> (Value, Vec<String>) {
        let mut in_use = NamesInUse::default();
        in_use.add(
            &json!({"plural": "things", "singular": "thing", "shortNames": ["th"], "kind": "Thing",
                          "listKind": "ThingList"}),
        );
        let mut status = json!({"acceptedNames": before});
        accept_names(
            &mut status,
            &json!({"spec": {"names": names}}),
            &in_use,
            "now",
        );
        let reported = status["conditions"].as_array().unwrap().iter();
        let reported = reported.map(|condition| {
            format!(
                "{} {}",
                condition["reason"].as_str().unwrap(),
                condition["message"].as_str().unwrap()
            )
        });
        (status["acceptedNames"].clone(), reported.collect())
    }

    #[test]
    fn the_last_of_several_conflicts_is_reported_and_other_names_are_accepted() {
        let requested =
            json!({"plural": "stuffs", "singular": "thing", "kind": "Thing", "listKind": "Stuffs"});
        let (accepted, reported) = accept(requested, json!({"plural": "", "kind": ""}));
        assert_eq!(
            accepted,
            json!({"plural": "stuffs", "kind": "", "listKind": "Stuffs"})
        );
        assert_eq!(
            reported,
            [
                "KindConflict \"Thing\" is already in use",
                "NotAccepted not all names are accepted"
            ]
        );
    }

    #[test]
    fn short_names_are_accepted_all_or_none_and_stay_accepted() {
        let requested = json!({"plural": "stuffs", "kind": "Stuff", "shortNames": ["th", "st"]});
        let (accepted, reported) = accept(requested.clone(), json!({"shortNames": ["st"]}));
        assert_eq!(accepted["shortNames"], json!(["st"]));
        assert_eq!(reported[0], "ShortNamesConflict \"th\" is already in use");
        let (accepted, reported) = accept(requested.clone(), requested.clone());
        assert_eq!(
            (accepted, reported[0].as_str()),
            (requested, "NoConflicts no conflicts found")
        );
    }
}
