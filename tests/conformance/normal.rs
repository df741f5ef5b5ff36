//! Takes out of a transcript what no two servers have in common, and keeps what it says about order and identity: uids become
//! `$uid1`, `$uid2` by first sight, revisions `$rv1 < $rv2` by rank, generated names `$gen1`, allocated addresses `$ip1` and ports `$port1`.
//!
//! A list's own revision is only `$list`: it depends on what others write. Where it matters, a case compares it.

use crate::run::{Entry, Names, Transcript};
use regex::Regex;
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::LazyLock};

static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"));
static MICRO_TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"));
/// How long ago something was, as tables tell it.
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d+[smhdy]){1,2}$"));
/// What services are given of the range 10.0.0.0/24.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b10\.0\.0\.\d+\b"));
/// What services are given of the default range.
const PORTS: std::ops::RangeInclusive<u64> = 30000..=32767;
/// Where a text names a revision.
static REVISION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(resource ?version[: ]+|revision[: ]+|object meta: |precondition: |precondition \(|record \()(\d+)")
});
/// Words that come from inside Go, and say the same as the code and the reason do.
static GO: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    vec![
        // What a patch made of an object, with its managedFields and revision.
        (pattern(r#"Invalid value: "\{\\"(?:\\.|[^"\\])*": "#), "Invalid value: <object>: "),
        (pattern(r"is missing in '\{.*\}'"), "is missing in <object>"),
        // Where the scheme is made in the real server's source, and how its storage wraps a failed precondition.
        (pattern(r#" in scheme "[^"]*""#), ""),
        (pattern(r"StorageError: invalid object, Code: 4, Key: \S+, ResourceVersion: \S+, AdditionalErrorMsg: "), ""),
        (pattern(r"json: cannot unmarshal .*"), "$$go"),
        // What of a spec changed, as a diff of Go's structs; and a pod template as one of them.
        (pattern(r"(?s)\n@@ -.*"), ""),
        (
            pattern(r#"Invalid value: \{.*"(?:[Ss]pec|[Cc]ontainers)":[\[{].*\}: field is immutable"#),
            "Invalid value: $$go: field is immutable",
        ),
        (pattern(r"strconv\.\w+: .*"), "$$go"),
        (
            pattern(r"(converting|error decoding|yaml:|invalid character|unexpected end of JSON|json parse error).*"),
            "$$go",
        ),
        // The version that a server is at: of the type in one, of everything in the other.
        (pattern(r"current: \d+"), "current: $$rv"),
        (pattern(r"(?s)(valid regular expression, but isn't:) .*"), "$1 $$go"),
        // How a definition's structures look inside of it.
        (
            pattern(
                r#"Invalid value: (\[\{"(Name|additionalPrinterColumns|name)"|\{"(ID|oneOf)").*?[\]}]: (must|only) "#,
            ),
            "Invalid value: $$go: $4 ",
        ),
    ]
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// What was written down, without what differs from run to run.
pub(crate) fn normalise(transcript: Transcript, names: &Names) -> Transcript {
    let mut sight = Sight::default();
    for entry in &transcript.0 {
        sight.look(&entry.answer);
    }
    let entries = transcript.0.into_iter().map(|Entry { line, answer }| {
        let answer = sight.rewrite(answer, names);
        Entry { line, answer }
    });
    Transcript(entries.collect())
}

/// What has been seen, in the order it was.
#[derive(Default)]
struct Sight {
    uids: Vec<String>,
    revisions: BTreeSet<u64>,
    generated: Vec<String>,
    addresses: Vec<String>,
    ports: Vec<u64>,
}

impl Sight {
    fn look(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(metadata) = map.get("metadata").and_then(Value::as_object) {
                    self.look_at_metadata(metadata);
                }
                self.look_at_allocated(map);
                map.values().for_each(|value| self.look(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.look(value)),
            Value::String(text) => {
                for uid in UUID.find_iter(text) {
                    if !self.uids.iter().any(|seen| seen == uid.as_str()) {
                        self.uids.push(uid.as_str().into());
                    }
                }
            }
            _ => {}
        }
    }

    fn look_at_allocated(&mut self, map: &Map<String, Value>) {
        if let Some(address) = map.get("clusterIP").and_then(Value::as_str).filter(|address| ADDRESS.is_match(address))
            && !self.addresses.iter().any(|seen| seen == address)
        {
            self.addresses.push(address.into());
        }
        if let Some(port) = map.get("nodePort").and_then(Value::as_u64).filter(|port| PORTS.contains(port))
            && !self.ports.contains(&port)
        {
            self.ports.push(port);
        }
    }

    fn look_at_metadata(&mut self, metadata: &Map<String, Value>) {
        let text = |field: &str| metadata.get(field).and_then(Value::as_str);
        if !is_of_a_list(metadata) {
            self.revisions.extend(text("resourceVersion").and_then(|revision| revision.parse::<u64>().ok()));
        }
        if let (Some(prefix), Some(name)) = (text("generateName"), text("name"))
            && name.len() == prefix.len() + 5
            && name.starts_with(prefix)
            && !self.generated.iter().any(|seen| seen == name)
        {
            self.generated.push(name.into());
        }
    }

    fn rewrite(&self, value: Value, names: &Names) -> Value {
        match value {
            Value::Object(map) => self.rewrite_object(map, names),
            Value::Array(values) => values.into_iter().map(|value| self.rewrite(value, names)).collect(),
            Value::String(text) => self.rewrite_text(&text, names).into(),
            other => other,
        }
    }

    fn rewrite_object(&self, mut map: Map<String, Value>, names: &Names) -> Value {
        sort_errors(&mut map);
        let mut rewritten = Map::new();
        for (field, mut value) in map {
            if field == "metadata"
                && let Some(metadata) = value.as_object_mut()
            {
                self.rewrite_metadata(metadata);
            }
            if field == "warning"
                && let Some(warnings) = value.as_str()
            {
                value = in_order(warnings).into();
            }
            if field == "cells"
                && let Some(cells) = value.as_array_mut()
            {
                for cell in cells.iter_mut().filter(|cell| cell.as_str().is_some_and(|text| AGE.is_match(text))) {
                    *cell = "$age".into();
                }
            }
            match field.as_str() {
                // They depend on names that only this run uses.
                "etag" => value = "$etag".into(),
                "storageVersionHash" => value = "$hash".into(),
                "serverAddress" => value = "$address".into(),
                _ => {}
            }
            if field == "nodePort"
                && let Some(number) = self.ports.iter().position(|port| Some(*port) == value.as_u64())
            {
                value = format!("$port{}", number + 1).into();
            }
            if field == "causes"
                && let Some(causes) = value.as_array_mut()
            {
                causes.sort_by_key(ToString::to_string);
            }
            rewritten.insert(self.rewrite_text(&field, names), self.rewrite(value, names));
        }
        rewritten.into()
    }

    fn rewrite_metadata(&self, metadata: &mut Map<String, Value>) {
        // Until server-side apply has landed.
        metadata.remove("managedFields");
        let of_a_list = is_of_a_list(metadata);
        if let Some(token) = metadata.get_mut("continue").filter(|token| token.as_str() != Some("")) {
            *token = "$continue".into();
        }
        if let Some(revision) = metadata.get_mut("resourceVersion") {
            let number = revision.as_str().and_then(|text| text.parse().ok());
            match number {
                Some(_) if of_a_list => *revision = "$list".into(),
                Some(number) => *revision = self.revision(number).into(),
                None => {}
            }
        }
    }

    fn revision(&self, number: u64) -> String {
        match self.revisions.iter().position(|seen| *seen == number) {
            Some(rank) => format!("$rv{}", rank + 1),
            None => "$rv".into(),
        }
    }

    fn rewrite_text(&self, text: &str, names: &Names) -> String {
        if TIME.is_match(text) {
            return "$time".into();
        }
        if MICRO_TIME.is_match(text) {
            return "$microtime".into();
        }
        let mut text = text.to_owned();
        for (brace, name) in names.all() {
            text = text.replace(name, &format!("{{{brace}}}"));
        }
        for (number, generated) in self.generated.iter().enumerate() {
            text = text.replace(generated, &format!("$gen{}", number + 1));
        }
        for (number, uid) in self.uids.iter().enumerate() {
            text = text.replace(uid, &format!("$uid{}", number + 1));
        }
        if !self.addresses.is_empty() {
            let given = ADDRESS.replace_all(&text, |found: &regex::Captures<'_>| {
                let number = self.addresses.iter().position(|seen| seen == &found[0]);
                number.map_or_else(|| found[0].to_owned(), |number| format!("$ip{}", number + 1))
            });
            text = given.into_owned();
        }
        for (words, instead) in GO.iter() {
            text = words.replace_all(&text, *instead).into_owned();
        }
        let revision = REVISION.replace_all(&text, |found: &regex::Captures<'_>| {
            let revision = found[2].parse().map_or_else(|_| "$rv".into(), |number| self.revision(number));
            format!("{}{revision}", &found[1])
        });
        revision.into_owned()
    }
}

/// Several warnings, in an order: the real server's is that of the body's fields, which is nobody's business.
fn in_order(warnings: &str) -> String {
    let mut warnings: Vec<_> = warnings.split(", 299 - ").map(|warning| warning.trim_start_matches("299 - ")).collect();
    warnings.sort_unstable();
    format!("299 - {}", warnings.join(", 299 - "))
}

/// The errors in the message of a `Status` are those of its causes, in the order of Go's maps: by chance. They are sorted like these.
fn sort_errors(status: &mut Map<String, Value>) {
    let causes = status.get("details").and_then(|details| details["causes"].as_array()).cloned().unwrap_or_default();
    let texts =
        causes.iter().filter_map(|cause| Some(format!("{}: {}", cause["field"].as_str()?, cause["message"].as_str()?)));
    let texts: BTreeSet<_> = texts.collect();
    let Some(Value::String(message)) = status.get_mut("message") else { return };
    let Some((begin, errors)) = message.split_once(" is invalid: [").map(|(begin, rest)| (begin.to_owned(), rest))
    else {
        return;
    };
    let told: usize = texts.iter().map(|text| text.len() + 2).sum();
    if texts.iter().all(|text| errors.contains(text.as_str())) && told == errors.len() + 1 {
        let errors: Vec<_> = texts.into_iter().collect();
        *message = format!("{begin} is invalid: [{}]", errors.join(", "));
    }
}

/// An object has a name or a uid; the metadata of a list, of a table or of a bookmark has not.
fn is_of_a_list(metadata: &Map<String, Value>) -> bool {
    !metadata.contains_key("name") && !metadata.contains_key("uid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn normal(answer: Value) -> Value {
        let transcript = Transcript(vec![Entry { line: String::new(), answer }]);
        normalise(transcript, &Names::new("w")).0.remove(0).answer
    }

    #[test]
    fn errors_and_warnings_are_in_one_order() {
        let status = |message: &str| {
            let causes =
                json!([{"field": "b", "message": "x"}, {"field": "a", "message": "y"}, {"field": "b", "message": "x"}]);
            json!({"message": message, "details": {"causes": causes}})
        };
        let sorted = normal(status("W \"w\" is invalid: [a: y, b: x]"));
        assert_eq!(normal(status("W \"w\" is invalid: [b: x, a: y]")), sorted);
        assert_eq!(normal(status("W \"w\" is invalid: [b: x]"))["message"], "W \"w\" is invalid: [b: x]");
        let warnings = normal(json!({"warning": "299 - \"b\", 299 - \"a\""}));
        assert_eq!(warnings["warning"], "299 - \"a\", 299 - \"b\"");
    }

    #[test]
    fn a_patched_object_is_not_compared() {
        let text = r#"patch: Invalid value: "{\"a\":\"b\"}": strict decoding error: unknown field "c""#;
        let normal = normal(json!(text));
        assert_eq!(normal, "patch: Invalid value: <object>: strict decoding error: unknown field \"c\"");
    }

    #[test]
    fn what_was_allocated_is_numbered_by_first_sight() {
        let entry = |answer: Value| Entry { line: String::new(), answer };
        let service = |address: &str, port: u64| json!({"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 80, "nodePort": port}]});
        let said = json!({"message": "10.0.0.12: taken; 10.0.0.9 is free", "nodePort": 80});
        let transcript =
            Transcript(vec![entry(service("10.0.0.1", 30123)), entry(service("10.0.0.12", 30124)), entry(said)]);
        let answers: Vec<_> = normalise(transcript, &Names::new("w")).0.into_iter().map(|entry| entry.answer).collect();
        assert_eq!(
            answers[0],
            json!({"clusterIP": "$ip1", "clusterIPs": ["$ip1"], "ports": [{"port": 80, "nodePort": "$port1"}]})
        );
        assert_eq!(answers[1]["ports"][0]["nodePort"], "$port2");
        assert_eq!(answers[2], json!({"message": "$ip2: taken; 10.0.0.9 is free", "nodePort": 80}));
    }
}
