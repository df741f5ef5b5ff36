//! Replaces values that differ from run to run by placeholders that keep order and identity.
//!
//! Uids become `$uid1`, `$uid2` in order of appearance, resource versions `$rv1 < $rv2` by rank,
//! generated names `$gen1`, allocated addresses `$ip1` and ports `$port1`. The resource version of
//! a list becomes `$list`, since it depends on other cases. Cases that need it compare it
//! explicitly.

use crate::runner::{Entry, Names, Transcript};
use regex::Regex;
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::LazyLock};

static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"));
static MICRO_TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"));
/// Age of an object, as printed in tables.
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d+[smhdy]){1,2}$"));
/// Cluster IPs of services, in the range 10.0.0.0/24.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b10\.0\.0\.\d+\b"));
/// Default range of node ports.
const PORTS: std::ops::RangeInclusive<u64> = 30000..=32767;
/// Resource versions in messages.
static REVISION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(resource ?version[: ]+|revision[: ]+|object meta: |precondition: |precondition \(|record \()(\d+)",
    )
});
/// Texts of Go internals that repeat what code and reason say, and their replacements.
static GO: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    vec![
        // The patched object as JSON, with managedFields and resource version.
        (
            pattern(r#"Invalid value: "\{\\"(?:\\.|[^"\\])*": "#),
            "Invalid value: <object>: ",
        ),
        (pattern(r"is missing in '\{.*\}'"), "is missing in <object>"),
        // The source location of the scheme, and the storage error around a failed precondition.
        (pattern(r#" in scheme "[^"]*""#), ""),
        (
            pattern(
                r"StorageError: invalid object, Code: 4, Key: \S+, ResourceVersion: \S+, AdditionalErrorMsg: ",
            ),
            "",
        ),
        (pattern(r"json: cannot unmarshal .*"), "$$go"),
        // A diff of Go structs, and a pod template printed as a Go struct.
        (pattern(r"(?s)\n@@ -.*"), ""),
        (
            pattern(
                r#"Invalid value: \{.*"(?:[Ss]pec|[Cc]ontainers)":[\[{].*\}: field is immutable"#,
            ),
            "Invalid value: $$go: field is immutable",
        ),
        (pattern(r"strconv\.\w+: .*"), "$$go"),
        (
            pattern(
                r"(converting|error decoding|yaml:|invalid character|unexpected end of JSON|json parse error).*",
            ),
            "$$go",
        ),
        // The current revision: of the kind on the real server, of the whole store on the embedded
        // one.
        (pattern(r"current: \d+"), "current: $$rv"),
        (
            pattern(r"(?s)(valid regular expression, but isn't:) .*"),
            "$1 $$go",
        ),
        // The compiler of CEL shows the position of an error in the rule. The estimate of a rule's cost
        // is not exact.
        (
            pattern(r"(?s)ompilation failed: .*"),
            "ompilation failed: $$go",
        ),
        (pattern(r"(exceeds budget by factor of) [^(]*"), "$1 $$go "),
        // Parts of a CRD printed as Go structs.
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

/// Returns a transcript without the values that differ from run to run.
pub(crate) fn normalize(transcript: Transcript, names: &Names) -> Transcript {
    let mut seen_values = Seen::default();
    for entry in &transcript.0 {
        seen_values.collect_values(&entry.response);
    }
    let entries = transcript.0.into_iter().map(|Entry { line, response }| {
        let response = seen_values.rewrite(response, names);
        Entry { line, response }
    });
    Transcript(entries.collect())
}

/// Values that get a numbered placeholder, in order of appearance.
#[derive(Default)]
struct Seen {
    uids: Vec<String>,
    revisions: BTreeSet<u64>,
    generated: Vec<String>,
    addresses: Vec<String>,
    ports: Vec<u64>,
}

impl Seen {
    fn collect_values(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(metadata) = map.get("metadata").and_then(Value::as_object) {
                    self.collect_metadata(metadata);
                }
                self.collect_allocated(map);
                map.values().for_each(|value| self.collect_values(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.collect_values(value)),
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

    fn collect_allocated(&mut self, map: &Map<String, Value>) {
        if let Some(address) = map
            .get("clusterIP")
            .and_then(Value::as_str)
            .filter(|address| ADDRESS.is_match(address))
            && !self.addresses.iter().any(|seen| seen == address)
        {
            self.addresses.push(address.into());
        }
        if let Some(port) = map
            .get("nodePort")
            .and_then(Value::as_u64)
            .filter(|port| PORTS.contains(port))
            && !self.ports.contains(&port)
        {
            self.ports.push(port);
        }
    }

    fn collect_metadata(&mut self, metadata: &Map<String, Value>) {
        let text = |field: &str| metadata.get(field).and_then(Value::as_str);
        if !is_list_metadata(metadata) {
            self.revisions
                .extend(text("resourceVersion").and_then(|revision| revision.parse::<u64>().ok()));
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
            Value::Array(values) => values
                .into_iter()
                .map(|value| self.rewrite(value, names))
                .collect(),
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
                value = sort_warnings(warnings).into();
            }
            if field == "cells"
                && let Some(cells) = value.as_array_mut()
            {
                for cell in cells
                    .iter_mut()
                    .filter(|cell| cell.as_str().is_some_and(|text| AGE.is_match(text)))
                {
                    *cell = "$age".into();
                }
            }
            match field.as_str() {
                // These depend on names that are unique to the run.
                "etag" => value = "$etag".into(),
                "storageVersionHash" => value = "$hash".into(),
                "serverAddress" => value = "$address".into(),
                _ => {}
            }
            if field == "nodePort"
                && let Some(number) = self
                    .ports
                    .iter()
                    .position(|port| Some(*port) == value.as_u64())
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
        // The embedded server has no managed fields, since it does not support server-side apply.
        metadata.remove("managedFields");
        let is_list = is_list_metadata(metadata);
        if let Some(token) = metadata
            .get_mut("continue")
            .filter(|token| token.as_str() != Some(""))
        {
            *token = "$continue".into();
        }
        if let Some(revision) = metadata.get_mut("resourceVersion") {
            let number = revision.as_str().and_then(|text| text.parse().ok());
            match number {
                Some(_) if is_list => *revision = "$list".into(),
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
        text = sort_strict_errors(&text);
        for (brace, name) in names.placeholders() {
            text = text.replace(name, &format!("{{{brace}}}"));
        }
        for (number, generated) in self.generated.iter().enumerate() {
            text = text.replace(generated, &format!("$gen{}", number + 1));
        }
        for (number, uid) in self.uids.iter().enumerate() {
            text = text.replace(uid, &format!("$uid{}", number + 1));
        }
        if !self.addresses.is_empty() {
            let replaced = ADDRESS.replace_all(&text, |found: &regex::Captures<'_>| {
                let number = self.addresses.iter().position(|seen| seen == &found[0]);
                number.map_or_else(
                    || found[0].to_owned(),
                    |number| format!("$ip{}", number + 1),
                )
            });
            text = replaced.into_owned();
        }
        for (pattern, instead) in GO.iter() {
            text = pattern.replace_all(&text, *instead).into_owned();
        }
        let revision = REVISION.replace_all(&text, |found: &regex::Captures<'_>| {
            let revision = found[2]
                .parse()
                .map_or_else(|_| "$rv".into(), |number| self.revision(number));
            format!("{}{revision}", &found[1])
        });
        revision.into_owned()
    }
}

/// Sorts warnings. The real server orders them by the fields of the body.
fn sort_warnings(warnings: &str) -> String {
    let mut warnings: Vec<_> = warnings
        .split(", 299 - ")
        .map(|warning| warning.trim_start_matches("299 - "))
        .collect();
    warnings.sort_unstable();
    format!("299 - {}", warnings.join(", 299 - "))
}

/// Sorts the errors about unknown and duplicate fields in a message. The real server orders them by
/// the fields of the body.
fn sort_strict_errors(message: &str) -> String {
    const PREFIX: &str = "strict decoding error: ";
    let Some((begin, errors)) = message.split_once(PREFIX) else {
        return message.into();
    };
    let mut errors: Vec<_> = errors.split(", ").collect();
    errors.sort_unstable();
    format!("{begin}{PREFIX}{}", errors.join(", "))
}

/// Sorts the errors in the message of a `Status` like its causes. Go's map iteration makes their
/// order random.
fn sort_errors(status: &mut Map<String, Value>) {
    let causes = status
        .get("details")
        .and_then(|details| details["causes"].as_array())
        .cloned()
        .unwrap_or_default();
    let texts = causes.iter().filter_map(|cause| {
        Some(format!(
            "{}: {}",
            cause["field"].as_str()?,
            cause["message"].as_str()?
        ))
    });
    let texts: BTreeSet<_> = texts.collect();
    let Some(Value::String(message)) = status.get_mut("message") else {
        return;
    };
    let Some((begin, errors)) = message
        .split_once(" is invalid: [")
        .map(|(begin, rest)| (begin.to_owned(), rest))
    else {
        return;
    };
    let length: usize = texts.iter().map(|text| text.len() + 2).sum();
    if texts.iter().all(|text| errors.contains(text.as_str())) && length == errors.len() + 1 {
        let errors: Vec<_> = texts.into_iter().collect();
        *message = format!("{begin} is invalid: [{}]", errors.join(", "));
    }
}

/// Returns whether the metadata is that of a list, table or bookmark, which have no name and uid.
fn is_list_metadata(metadata: &Map<String, Value>) -> bool {
    !metadata.contains_key("name") && !metadata.contains_key("uid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn normal(response: Value) -> Value {
        let transcript = Transcript(vec![Entry {
            line: String::new(),
            response,
        }]);
        normalize(transcript, &Names::new("w")).0.remove(0).response
    }

    #[test]
    fn errors_and_warnings_are_sorted() {
        let status = |message: &str| {
            let causes = json!([{"field": "b", "message": "x"}, {"field": "a", "message": "y"}, {"field": "b", "message": "x"}]);
            json!({"message": message, "details": {"causes": causes}})
        };
        let sorted = normal(status("W \"w\" is invalid: [a: y, b: x]"));
        assert_eq!(normal(status("W \"w\" is invalid: [b: x, a: y]")), sorted);
        assert_eq!(
            normal(status("W \"w\" is invalid: [b: x]"))["message"],
            "W \"w\" is invalid: [b: x]"
        );
        assert_eq!(
            normal(json!(
                "strict decoding error: unknown field \"b\", unknown field \"a\""
            )),
            "strict decoding error: unknown field \"a\", unknown field \"b\""
        );
        let warnings = normal(json!({"warning": "299 - \"b\", 299 - \"a\""}));
        assert_eq!(warnings["warning"], "299 - \"a\", 299 - \"b\"");
    }

    #[test]
    fn a_patched_object_in_a_message_is_replaced() {
        let text =
            r#"patch: Invalid value: "{\"a\":\"b\"}": strict decoding error: unknown field "c""#;
        let normal = normal(json!(text));
        assert_eq!(
            normal,
            "patch: Invalid value: <object>: strict decoding error: unknown field \"c\""
        );
    }

    #[test]
    fn allocated_addresses_and_ports_are_numbered_in_order_of_appearance() {
        let entry = |response: Value| Entry {
            line: String::new(),
            response,
        };
        let service = |address: &str, port: u64| json!({"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 80, "nodePort": port}]});
        let message = json!({"message": "10.0.0.12: taken; 10.0.0.9 is free", "nodePort": 80});
        let transcript = Transcript(vec![
            entry(service("10.0.0.1", 30123)),
            entry(service("10.0.0.12", 30124)),
            entry(message),
        ]);
        let responses: Vec<_> = normalize(transcript, &Names::new("w"))
            .0
            .into_iter()
            .map(|entry| entry.response)
            .collect();
        assert_eq!(
            responses[0],
            json!({"clusterIP": "$ip1", "clusterIPs": ["$ip1"], "ports": [{"port": 80, "nodePort": "$port1"}]})
        );
        assert_eq!(responses[1]["ports"][0]["nodePort"], "$port2");
        assert_eq!(
            responses[2],
            json!({"message": "$ip2: taken; 10.0.0.9 is free", "nodePort": 80})
        );
    }
}
