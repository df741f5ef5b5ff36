//! Whose a name is: of the definitions of a group, only one can have it.
//!
//! Each name is looked at by itself. What is free is given, so that of a definition with one bad name the others are still its own, and
//! what it was given before stays its own. Of several bad names the last is told.

use super::{list, status};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The names that others have.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Plurals, singulars and short names: all can be asked for.
    resources: BTreeSet<String>,
    /// Kinds, of objects and of lists.
    kinds: BTreeSet<String>,
}

impl Taken {
    /// Somebody has been given these.
    pub(crate) fn add(&mut self, names: &Value) {
        let text = |key: &str| names[key].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let short = list(&names["shortNames"]).iter().filter_map(|name| name.as_str().map(str::to_owned));
        self.resources.extend([text("plural"), text("singular")].into_iter().flatten().chain(short));
        self.kinds.extend([text("kind"), text("listKind")].into_iter().flatten());
    }
}

/// Gives a definition those of its names that are free, and says in its conditions whether that were all.
pub(crate) fn settle(status: &mut Value, crd: &Value, taken: &Taken, now: &str) {
    let wanted = &crd["spec"]["names"];
    let mut given = status["acceptedNames"].clone();
    let mut refused = None;
    let in_use = |name: &Value| format!("{name} is already in use");
    for (key, reason, taken) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let is_taken = |name: &Value| name.as_str().is_some_and(|name| taken.contains(name));
        let bad: Vec<_> = match key {
            "shortNames" => {
                let own: BTreeSet<_> = list(&given[key]).iter().map(Value::as_str).collect();
                let new = list(&wanted[key]).iter().filter(|name| !own.contains(&name.as_str()));
                new.filter(|name| is_taken(name)).map(in_use).collect()
            }
            _ if wanted[key] != given[key] && is_taken(&wanted[key]) => vec![in_use(&wanted[key])],
            _ => Vec::new(),
        };
        match &bad[..] {
            [] => give(&mut given, wanted, key),
            [one] => refused = Some((reason, one.clone())),
            all => refused = Some((reason, format!("[{}]", all.join(", ")))),
        }
    }
    give(&mut given, wanted, "categories");
    status["acceptedNames"] = given;
    match &refused {
        None => status::condition(status, ["NamesAccepted", "True", "NoConflicts", "no conflicts found"], now),
        Some((reason, message)) => status::condition(status, ["NamesAccepted", "False", reason, message], now),
    }
    let established = status::find(status, "Established").cloned().unwrap_or_default();
    if established["status"] == "True" {
        return;
    }
    if refused.is_none() {
        let message = "the initial names have been accepted";
        status::condition(status, ["Established", "False", "Installing", message], now);
    } else if established.is_null() {
        status::condition(status, ["Established", "False", "NotAccepted", "not all names are accepted"], now);
    }
}

fn give(given: &mut Value, wanted: &Value, key: &str) {
    if !given.is_object() {
        *given = json!({});
    }
    match wanted.get(key) {
        Some(names) => given[key] = names.clone(),
        None => drop(given.as_object_mut().and_then(|given| given.remove(key))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Taken, settle};
    use serde_json::{Value, json};

    fn settled(names: Value, before: Value) -> (Value, Vec<String>) {
        let mut taken = Taken::default();
        taken.add(&json!({"plural": "things", "singular": "thing", "shortNames": ["th"], "kind": "Thing",
                          "listKind": "ThingList"}));
        let mut status = json!({"acceptedNames": before});
        settle(&mut status, &json!({"spec": {"names": names}}), &taken, "now");
        let told = status["conditions"].as_array().unwrap().iter();
        let told = told.map(|it| format!("{} {}", it["reason"].as_str().unwrap(), it["message"].as_str().unwrap()));
        (status["acceptedNames"].clone(), told.collect())
    }

    #[test]
    fn of_several_bad_names_the_last_is_told_and_the_others_are_given() {
        let wanted = json!({"plural": "stuffs", "singular": "thing", "kind": "Thing", "listKind": "Stuffs"});
        let (given, told) = settled(wanted, json!({"plural": "", "kind": ""}));
        assert_eq!(given, json!({"plural": "stuffs", "kind": "", "listKind": "Stuffs"}));
        assert_eq!(told, ["KindConflict \"Thing\" is already in use", "NotAccepted not all names are accepted"]);
    }

    #[test]
    fn short_names_are_given_all_or_none_and_stay() {
        let wanted = json!({"plural": "stuffs", "kind": "Stuff", "shortNames": ["th", "st"]});
        let (given, told) = settled(wanted.clone(), json!({"shortNames": ["st"]}));
        assert_eq!(given["shortNames"], json!(["st"]));
        assert_eq!(told[0], "ShortNamesConflict \"th\" is already in use");
        let (given, told) = settled(wanted.clone(), wanted.clone());
        assert_eq!((given, told[0].as_str()), (wanted, "NoConflicts no conflicts found"));
    }
}
