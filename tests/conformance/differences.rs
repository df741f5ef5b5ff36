//! What two transcripts differ in, and which of it is known: the table in `apiserver/DIFFERENCES.md`.
//!
//! A row binds one case and one field. A difference without a row fails the suite, and so does a row without a difference.

use crate::run::Transcript;
use serde_json::Value;
use std::fmt;

/// As many as there may be: a list that grows is a server that lies.
pub(crate) const MOST: usize = 10;

/// One field that is not the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The step's number, counted from 1, and the path of the field in its answer: `2.body.spec.replicas`.
    pub(crate) field: String,
    pub(crate) line: String,
    pub(crate) expected: Option<Value>,
    pub(crate) got: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| value.as_ref().map_or("nothing".into(), ToString::to_string);
        let (expected, got) = (shown(&self.expected), shown(&self.got));
        write!(f, "{}  ({})\n      expected {expected}\n      got      {got}", self.field, self.line)
    }
}

pub(crate) fn between(expected: &Transcript, got: &Transcript) -> Vec<Difference> {
    let mut differences = Vec::new();
    for number in 0..expected.0.len().max(got.0.len()) {
        let [a, b] = [expected, got].map(|transcript| transcript.0.get(number));
        let line = a.or(b).map(|entry| entry.line.clone()).unwrap_or_default();
        if let (Some(a), Some(b)) = (a, b)
            && a.line != b.line
        {
            let [expected, got] = [a, b].map(|entry| Some(entry.line.clone().into()));
            differences.push(Difference { field: format!("{}", number + 1), line, expected, got });
            continue;
        }
        let found = &mut |field: String, expected: Option<&Value>, got: Option<&Value>| {
            let line = line.clone();
            differences.push(Difference { field, line, expected: expected.cloned(), got: got.cloned() });
        };
        walk(format!("{}", number + 1), a.map(|entry| &entry.answer), b.map(|entry| &entry.answer), found);
    }
    differences
}

/// Down to the fields that differ.
fn walk(
    path: String,
    a: Option<&Value>,
    b: Option<&Value>,
    found: &mut impl FnMut(String, Option<&Value>, Option<&Value>),
) {
    match (a, b) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let more = b.keys().filter(|field| !a.contains_key(*field));
            for field in a.keys().chain(more) {
                walk(format!("{path}.{field}"), a.get(field), b.get(field), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                walk(format!("{path}.{index}"), a.get(index), b.get(index), found);
            }
        }
        (a, b) if a != b => found(path, a, b),
        _ => {}
    }
}

/// A difference that is known, and stays for a reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) case: String,
    pub(crate) field: String,
}

impl Known {
    /// Whether it is this field, or one inside it.
    pub(crate) fn covers(&self, case: &str, difference: &Difference) -> bool {
        let inside = difference.field.strip_prefix(&self.field);
        self.case == case && inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// The rows of the table: `| case | field | reason |`, each filled.
pub(crate) fn known(document: &str) -> Result<Vec<Known>, String> {
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        match cells[..] {
            [case, field, reason] if ![case, field, reason].contains(&"") => {
                let [case, field] = [case, field].map(|cell| cell.trim_matches('`').to_owned());
                Ok(Known { case, field })
            }
            _ => Err(format!("`{row}` is not `| case | field | reason |`")),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Entry;
    use serde_json::json;

    fn transcript(answer: Value) -> Transcript {
        Transcript(vec![Entry { line: "GET /a".into(), answer }])
    }

    #[test]
    fn a_difference_is_the_field_and_no_more() {
        let [a, b] = [json!({"a": {"b": 1, "c": [1, 2]}}), json!({"a": {"b": 2, "c": [1], "d": 3}})].map(transcript);
        let fields: Vec<_> = between(&a, &b).into_iter().map(|difference| difference.field).collect();
        assert_eq!(fields, ["1.a.b", "1.a.c.1", "1.a.d"]);
        assert!(between(&a, &a).is_empty());
    }

    #[test]
    fn a_missing_answer_is_a_difference() {
        let a = transcript(json!(1));
        assert_eq!(between(&a, &Transcript(Vec::new())).len(), 1);
    }

    #[test]
    fn a_row_covers_its_field_and_what_is_inside_it() {
        let rows = "# Title\n| case | field | reason |\n|---|---|---|\n| `c` | `1.a` | because |\n";
        let known = known(rows).expect("a well-formed table");
        assert_eq!(known, [Known { case: "c".into(), field: "1.a".into() }]);
        let difference =
            |field: &str| Difference { field: field.into(), line: String::new(), expected: None, got: None };
        assert!(known[0].covers("c", &difference("1.a")) && known[0].covers("c", &difference("1.a.b")));
        assert!(!known[0].covers("c", &difference("1.ab")) && !known[0].covers("d", &difference("1.a")));
    }

    #[test]
    fn a_row_without_a_reason_is_refused() {
        assert!(known("| `c` | `1.a` |  |\n").is_err());
    }
}
