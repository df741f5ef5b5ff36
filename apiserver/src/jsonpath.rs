//! JSON paths of printer columns: `.a.b`, `..b`, `[0]`, `[0:2]`, `['x']`, `[*]` and
//! `[?(@.type=="Ready")]`.
//!
//! Paths come from users, so the work of parsing and evaluating one is bounded.

use serde_json::Value;
use std::cmp::Ordering;

/// Steps of one path. Longer paths are invalid.
const MAX_STEPS: usize = 64;

/// Values that one path can find. Only wildcards and recursive steps find several.
const MAX_FOUND: usize = 1_000;

/// Returns the cell of a column of type `kind`, or null if the object has no value of that type.
pub(crate) fn cell(path: &str, kind: &str, object: &Value) -> Value {
    let found = find(path, object);
    let Some(value) = found.first() else {
        return Value::Null;
    };
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("string" | "date", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_)) => (*value).clone(),
        ("string", other) => Value::String(other.to_string()),
        // A fraction is cut off, as on the real server.
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|number| number as i64))
            .map_or(Value::Null, Value::from),
        _ => Value::Null,
    }
}

/// Returns all values at a path; none if the path is invalid.
pub(crate) fn find<'a>(path: &str, object: &'a Value) -> Vec<&'a Value> {
    let Some(steps) = parse(path) else {
        return Vec::new();
    };
    let mut found = vec![object];
    for step in &steps {
        found = found
            .into_iter()
            .flat_map(|value| step.follow(value))
            .take(MAX_FOUND)
            .collect();
    }
    found
}

#[derive(Debug, PartialEq)]
enum PathStep {
    Field(String),
    /// A negative index counts from the end.
    Index(i64),
    All,
    /// Start, inclusive, and end, exclusive. Negative ones count from the end.
    Slice(Option<i64>, Option<i64>),
    /// Fields of that name at any depth.
    Recursive(String),
    /// Items with a value at the path, and for which the comparison holds if there is one.
    Filter(Vec<PathStep>, Option<(Comparison, Value)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparison {
    /// Operators in the order of matching: a longer one is before its prefix.
    const ALL: [(&str, Self); 6] = [
        ("==", Self::Equal),
        ("!=", Self::Unequal),
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("<", Self::Less),
        (">", Self::Greater),
    ];

    fn holds(self, found: &Value, expected: &Value) -> bool {
        let order = match (found, expected) {
            (Value::String(found), Value::String(expected)) => Some(found.cmp(expected)),
            _ => found
                .as_f64()
                .zip(expected.as_f64())
                .and_then(|(found, expected)| found.partial_cmp(&expected)),
        };
        match self {
            Self::Equal => found == expected,
            Self::Unequal => found != expected,
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::AtMost => order.is_some_and(Ordering::is_le),
            Self::Greater => order.is_some_and(Ordering::is_gt),
            Self::AtLeast => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// Collects the fields called `name` in `value` and below it, up to [`MAX_FOUND`].
fn find_recursively<'a>(name: &str, value: &'a Value, found: &mut Vec<&'a Value>) {
    if found.len() == MAX_FOUND {
        return;
    }
    match value {
        Value::Object(map) => {
            found.extend(map.get(name));
            map.values()
                .for_each(|value| find_recursively(name, value, found));
        }
        Value::Array(list) => list
            .iter()
            .for_each(|value| find_recursively(name, value, found)),
        _ => {}
    }
}

impl PathStep {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(list)) => {
                let from_end = usize::try_from(index.unsigned_abs())
                    .ok()
                    .and_then(|back| list.len().checked_sub(back));
                let at = if *index < 0 {
                    from_end
                } else {
                    usize::try_from(*index).ok()
                };
                at.and_then(|at| list.get(at)).into_iter().collect()
            }
            (Self::Slice(from, to), Value::Array(list)) => {
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let resolve = |at: i64| if at < 0 { at + length } else { at }.clamp(0, length);
                let from = resolve(from.unwrap_or(0));
                let to = resolve(to.unwrap_or(length));
                let count = usize::try_from(to - from).unwrap_or(0);
                list.iter()
                    .skip(usize::try_from(from).unwrap_or(0))
                    .take(count)
                    .collect()
            }
            (Self::Recursive(name), value) => {
                let mut found = Vec::new();
                find_recursively(name, value, &mut found);
                found
            }
            (Self::All, Value::Array(list)) => list.iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::Filter(steps, test), Value::Array(list)) => list
                .iter()
                .filter(|item| {
                    let inner = steps
                        .iter()
                        .try_fold(*item, |value, step| step.follow(value).into_iter().next());
                    match (inner, test) {
                        (None, _) => false,
                        (Some(_), None) => true,
                        (Some(found), Some((test, expected))) => test.holds(found, expected),
                    }
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// Parses a path. Returns `None` if it is invalid.
fn parse(path: &str) -> Option<Vec<PathStep>> {
    let path = path.trim();
    let path = path
        .strip_prefix('{')
        .and_then(|path| path.strip_suffix('}'))
        .unwrap_or(path);
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() && rest != "." {
        if steps.len() == MAX_STEPS {
            return None;
        }
        if let Some(after) = rest.strip_prefix('[') {
            let (inner, after) = bracket(after)?;
            steps.push(subscript(inner.trim())?);
            rest = after;
        } else {
            let after = rest.strip_prefix('.')?;
            if let Some(after) = after.strip_prefix('.') {
                let (name, after) = field(after)?;
                steps.push(PathStep::Recursive(name));
                rest = after;
                continue;
            }
            if after.starts_with('[') {
                rest = after;
                continue;
            }
            let (name, after) = field(after)?;
            steps.push(if name == "*" {
                PathStep::All
            } else {
                PathStep::Field(name)
            });
            rest = after;
        }
    }
    Some(steps)
}

/// Parses a name up to the next dot or bracket. A backslash escapes the next character.
fn field(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            _ => name.push(c),
        }
    }
    if name.is_empty() {
        None
    } else {
        Some((name, &text[end..]))
    }
}

/// Splits at the closing bracket that is not in quotes.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some((&text[..at], &text[at + 1..])),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

fn subscript(inner: &str) -> Option<PathStep> {
    if inner == "*" {
        return Some(PathStep::All);
    }
    if let Some(name) = quoted(inner) {
        return Some(PathStep::Field(name.into()));
    }
    if let Some(test) = inner
        .strip_prefix("?(")
        .and_then(|test| test.strip_suffix(')'))
    {
        let compared = Comparison::ALL
            .iter()
            .find_map(|(sign, kind)| test.split_once(sign).map(|parts| (kind, parts)));
        let (path, test) = match compared {
            Some((kind, (path, expected))) => (path, Some((*kind, literal(expected.trim())?))),
            None => (test, None),
        };
        let steps = parse(path.trim().strip_prefix('@')?)?;
        // Filters and recursive steps inside of filters would make evaluation expensive.
        let is_cheap = steps
            .iter()
            .all(|step| !matches!(step, PathStep::Filter(..) | PathStep::Recursive(_)));
        return is_cheap.then_some(PathStep::Filter(steps, test));
    }
    if let Some((from, to)) = inner.split_once(':') {
        let end = |text: &str| {
            if text.is_empty() {
                Some(None)
            } else {
                text.parse().ok().map(Some)
            }
        };
        return Some(PathStep::Slice(end(from.trim())?, end(to.trim())?));
    }
    inner.parse().ok().map(PathStep::Index)
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

fn literal(text: &str) -> Option<Value> {
    quoted(text)
        .map(Value::from)
        .or_else(|| serde_json::from_str(text).ok())
}

#[cfg(test)]
mod tests {
    use super::{cell, find};
    use serde_json::{Value, json};

    fn object() -> Value {
        json!({
            "metadata": {"annotations": {"example.com/x": "y"}},
            "spec": {"replicas": 3, "ports": [{"port": 1}, {"port": 2}]},
            "status": {"conditions": [
                {"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"},
            ]},
        })
    }

    #[test]
    fn every_kind_of_step_finds_its_values() {
        for (path, expected) in [
            (".spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            (".spec.ports[0].port", json!([1])),
            (".spec.ports[-1].port", json!([2])),
            (".spec.ports[*].port", json!([1, 2])),
            (".spec['replicas']", json!([3])),
            (r".metadata.annotations.example\.com/x", json!(["y"])),
            (r#".metadata.annotations["example.com/x"]"#, json!(["y"])),
            (
                r#".status.conditions[?(@.type=="Ready")].status"#,
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type == 'Ready')].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type!='Ready')].status",
                json!(["False"]),
            ),
            (".status.conditions[?(@.reason)].status", json!([])),
            (".spec.ports[?(@.port>1)].port", json!([2])),
            (".spec.ports[?(@.port<=1)].port", json!([1])),
            (".spec.ports[0:1].port", json!([1])),
            (".spec.ports[-1:].port", json!([2])),
            (".spec..port", json!([1, 2])),
            (".nope.nope", json!([])),
            (".spec.ports[7]", json!([])),
        ] {
            assert_eq!(json!(find(path, &object())), expected, "{path}");
        }
    }

    #[test]
    fn an_invalid_path_finds_nothing() {
        for path in [
            "spec",
            ".spec[",
            ".spec...replicas",
            ".spec[?(replicas)]",
            &".a".repeat(100),
        ] {
            assert_eq!(
                find(path, &json!({"spec": 1, "a": 1})),
                Vec::<&Value>::new(),
                "{path}"
            );
        }
    }

    #[test]
    fn a_cell_has_its_columns_type_or_is_empty() {
        assert_eq!(cell(".spec.replicas", "integer", &object()), json!(3));
        assert_eq!(cell(".spec.replicas", "string", &object()), json!("3"));
        assert_eq!(cell(".spec.replicas", "boolean", &object()), Value::Null);
        assert_eq!(
            cell(".spec.ports[0]", "string", &object()),
            json!(r#"{"port":1}"#)
        );
        assert_eq!(cell(".status.phase", "string", &object()), Value::Null);
    }

    steersman_testkit::properties! {
        #[test]
        fn any_path_is_evaluated_without_a_panic(path in r#"[.\[\]a-b*?(@)=!'"\\0-1-]{0,12}"#) {
            find(&path, &json!({"a": [{"b": 1}, {"a": {"b": 2}}], "b": "x"}));
        }
    }
}
