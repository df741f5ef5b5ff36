//! Differences between two transcripts, and the known ones in `apiserver/DIFFERENCES.md`.
//!
//! A row of that table names one case and one field. The suite fails on a difference without a row
//! and on a row without a difference.

use crate::runner::Transcript;
use serde_json::Value;
use std::fmt;

/// Maximum number of known differences, so that the list does not grow unnoticed.
pub(crate) const MAX_KNOWN: usize = 10;

/// A field that differs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// Number of the step, from 1, and path of the field in its response: `2.body.spec.replicas`.
    pub(crate) field: String,
    pub(crate) line: String,
    pub(crate) expected: Option<Value>,
    pub(crate) got: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let display =
            |value: &Option<Value>| value.as_ref().map_or("nothing".into(), ToString::to_string);
        let expected = display(&self.expected);
        let got = display(&self.got);
        write!(
            f,
            "{}  ({})\n      expected {expected}\n      got      {got}",
            self.field, self.line
        )
    }
}

pub(crate) fn compare(expected: &Transcript, got: &Transcript) -> Vec<Difference> {
    let mut differences = Vec::new();
    for number in 0..expected.0.len().max(got.0.len()) {
        let [a, b] = [expected, got].map(|transcript| transcript.0.get(number));
        let line = a.or(b).map(|entry| entry.line.clone()).unwrap_or_default();
        if let (Some(a), Some(b)) = (a, b)
            && a.line != b.line
        {
            let [expected, got] = [a, b].map(|entry| Some(entry.line.clone().into()));
            differences.push(Difference {
                field: format!("{}", number + 1),
                line,
                expected,
                got,
            });
            continue;
        }
        let found = &mut |field: String, expected: Option<&Value>, got: Option<&Value>| {
            let line = line.clone();
            differences.push(Difference {
                field,
                line,
                expected: expected.cloned(),
                got: got.cloned(),
            });
        };
        walk(
            format!("{}", number + 1),
            a.map(|entry| &entry.response),
            b.map(|entry| &entry.response),
            found,
        );
    }
    differences
}

/// Calls `found` for every field that differs below `path`.
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

/// Row of the table in `apiserver/DIFFERENCES.md`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownDifference {
    pub(crate) case: String,
    pub(crate) field: String,
}

impl KnownDifference {
    /// Returns whether `difference` is in this field or inside it.
    pub(crate) fn covers(&self, case: &str, difference: &Difference) -> bool {
        let inside = difference.field.strip_prefix(&self.field);
        self.case == case && inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Parses the rows of the table, `| case | field | reason |`.
///
/// Every line that starts with `|` is a row, since an ignored row could not be found stale. A field
/// is inside a response: a row cannot cover a whole response.
pub(crate) fn parse_known(document: &str) -> Result<Vec<KnownDifference>, String> {
    let rows = document
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with('|'));
    let mut known: Vec<KnownDifference> = Vec::new();
    for row in rows.filter(|row| *row != "| case | field | reason |" && *row != "|---|---|---|") {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let name = |cell: &str| {
            cell.strip_prefix('`')?
                .strip_suffix('`')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
        };
        let row_key = match cells[..] {
            [case, field, reason] if !reason.is_empty() => name(case).zip(name(field)),
            _ => None,
        };
        let (case, field) = row_key
            .ok_or_else(|| format!("invalid row {row}; write | `case` | `field` | reason |"))?;
        if !field.contains('.') {
            return Err(format!(
                "invalid row {row}: `{field}` is a whole response; name a field such as `2.body.spec`"
            ));
        }
        let row_key = KnownDifference { case, field };
        if known.contains(&row_key) {
            return Err(format!("duplicate row {row}"));
        }
        known.push(row_key);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Entry;
    use serde_json::json;

    fn transcript(response: Value) -> Transcript {
        Transcript(vec![Entry {
            line: "GET /a".into(),
            response,
        }])
    }

    #[test]
    fn compare_reports_exactly_the_fields_that_differ() {
        let [a, b] = [
            json!({"a": {"b": 1, "c": [1, 2]}}),
            json!({"a": {"b": 2, "c": [1], "d": 3}}),
        ]
        .map(transcript);
        let fields: Vec<_> = compare(&a, &b)
            .into_iter()
            .map(|difference| difference.field)
            .collect();
        assert_eq!(fields, ["1.a.b", "1.a.c.1", "1.a.d"]);
        assert!(compare(&a, &a).is_empty());
    }

    #[test]
    fn a_missing_response_is_a_difference() {
        let a = transcript(json!(1));
        assert_eq!(compare(&a, &Transcript(Vec::new())).len(), 1);
    }

    #[test]
    fn a_row_covers_its_field_and_what_is_inside_it() {
        let rows = "# Title\n| case | field | reason |\n|---|---|---|\n| `c` | `1.a` | because |\n";
        let known = parse_known(rows).expect("a well-formed table");
        assert_eq!(
            known,
            [KnownDifference {
                case: "c".into(),
                field: "1.a".into()
            }]
        );
        let difference = |field: &str| Difference {
            field: field.into(),
            line: String::new(),
            expected: None,
            got: None,
        };
        assert!(
            known[0].covers("c", &difference("1.a")) && known[0].covers("c", &difference("1.a.b"))
        );
        assert!(
            !known[0].covers("c", &difference("1.ab")) && !known[0].covers("d", &difference("1.a"))
        );
    }

    #[test]
    fn an_invalid_row_is_rejected() {
        for row in [
            "| `c` | `1.a` |  |",
            "| c | 1.a | why |",
            "|`c`|`1.a`|",
            "| `` | `1.a` | why |",
            "| `c` | `1` | why |",
        ] {
            assert!(parse_known(row).is_err(), "{row}");
        }
        assert!(
            parse_known("| `c` | `1.a` | why |\n| `c` | `1.a` | why not |\n").is_err(),
            "duplicate row"
        );
        assert!(
            parse_known("  |`c`|`1.a`| why |  ").is_ok(),
            "spaces around cells are ignored"
        );
    }
}
