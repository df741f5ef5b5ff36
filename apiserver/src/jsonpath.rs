//! The JSON paths of printer columns: `.a.b`, `..b`, `[0]`, `[0:2]`, `['x']`, `[*]` and `[?(@.type=="Ready")]`.
//!
//! Paths come from users, so both reading and following one is bounded.

use serde_json::Value;
use std::cmp::Ordering;

/// More steps than any path has.
const MAX_STEPS: usize = 64;

/// More values than any cell shows; only wildcards find several.
const MAX_FOUND: usize = 1_000;

/// The cell that a column of type `kind` shows of an object: null if there is nothing, or nothing of that type.
/// Dates stay as they are written, for whoever knows the time.
pub(crate) fn cell(path: &str, kind: &str, object: &Value) -> Value {
    let found = find(path, object);
    let Some(value) = found.first() else { return Value::Null };
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("string" | "date", Value::String(_)) | ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => {
            (*value).clone()
        }
        ("string", other) => Value::String(other.to_string()),
        // A whole number is asked for, and the fraction is cut off as the real server does.
        ("integer", Value::Number(number)) => {
            number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).map_or(Value::Null, Value::from)
        }
        _ => Value::Null,
    }
}

/// All values that a path leads to; none if it is not understood.
pub(crate) fn find<'a>(path: &str, object: &'a Value) -> Vec<&'a Value> {
    let Some(steps) = parse(path) else { return Vec::new() };
    let mut found = vec![object];
    for step in &steps {
        found = found.into_iter().flat_map(|value| step.follow(value)).take(MAX_FOUND).collect();
    }
    found
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// From the end, if negative.
    Index(i64),
    All,
    /// From the first to before the second, from the end if negative.
    Slice(Option<i64>, Option<i64>),
    /// The fields of that name, however deep.
    Deep(String),
    /// Items whose field, if any, compares so with the value; `None` asks only that it is there.
    Where(Vec<Step>, Option<(Test, Value)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Test {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Test {
    /// As they are written; what begins like another one comes before it.
    const ALL: [(&str, Self); 6] = [
        ("==", Self::Equal),
        ("!=", Self::Unequal),
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("<", Self::Less),
        (">", Self::Greater),
    ];

    fn holds(self, found: &Value, wanted: &Value) -> bool {
        let order = match (found, wanted) {
            (Value::String(found), Value::String(wanted)) => Some(found.cmp(wanted)),
            _ => found.as_f64().zip(wanted.as_f64()).and_then(|(found, wanted)| found.partial_cmp(&wanted)),
        };
        match self {
            Self::Equal => found == wanted,
            Self::Unequal => found != wanted,
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::AtMost => order.is_some_and(Ordering::is_le),
            Self::Greater => order.is_some_and(Ordering::is_gt),
            Self::AtLeast => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// The fields of a name in a value and below it, what is nearer first, as many as are ever shown.
fn deep<'a>(name: &str, value: &'a Value, found: &mut Vec<&'a Value>) {
    if found.len() == MAX_FOUND {
        return;
    }
    match value {
        Value::Object(map) => {
            found.extend(map.get(name));
            map.values().for_each(|value| deep(name, value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| deep(name, value, found)),
        _ => {}
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(list)) => {
                let from_end = usize::try_from(index.unsigned_abs()).ok().and_then(|back| list.len().checked_sub(back));
                let at = if *index < 0 { from_end } else { usize::try_from(*index).ok() };
                at.and_then(|at| list.get(at)).into_iter().collect()
            }
            (Self::Slice(from, to), Value::Array(list)) => {
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let place = |at: i64| if at < 0 { at + length } else { at }.clamp(0, length);
                let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(length)));
                let count = usize::try_from(to - from).unwrap_or(0);
                list.iter().skip(usize::try_from(from).unwrap_or(0)).take(count).collect()
            }
            (Self::Deep(name), value) => {
                let mut found = Vec::new();
                deep(name, value, &mut found);
                found
            }
            (Self::All, Value::Array(list)) => list.iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::Where(steps, test), Value::Array(list)) => list
                .iter()
                .filter(|item| {
                    let inner = steps.iter().try_fold(*item, |value, step| step.follow(value).into_iter().next());
                    match (inner, test) {
                        (None, _) => false,
                        (Some(_), None) => true,
                        (Some(found), Some((test, wanted))) => test.holds(found, wanted),
                    }
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// `None` if the path is not understood.
fn parse(path: &str) -> Option<Vec<Step>> {
    let path = path.trim();
    let path = path.strip_prefix('{').and_then(|path| path.strip_suffix('}')).unwrap_or(path);
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
                steps.push(Step::Deep(name));
                rest = after;
                continue;
            }
            if after.starts_with('[') {
                rest = after;
                continue;
            }
            let (name, after) = field(after)?;
            steps.push(if name == "*" { Step::All } else { Step::Field(name) });
            rest = after;
        }
    }
    Some(steps)
}

/// A name up to the next dot or bracket; a backslash takes the next character as it is.
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
    if name.is_empty() { None } else { Some((name, &text[end..])) }
}

/// What is inside a bracket, and what comes after it. Brackets in quotes do not count.
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

fn subscript(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(name) = quoted(inner) {
        return Some(Step::Field(name.into()));
    }
    if let Some(test) = inner.strip_prefix("?(").and_then(|test| test.strip_suffix(')')) {
        let compared = Test::ALL.iter().find_map(|(sign, kind)| test.split_once(sign).map(|parts| (kind, parts)));
        let (path, test) = match compared {
            Some((kind, (path, wanted))) => (path, Some((*kind, literal(wanted.trim())?))),
            None => (test, None),
        };
        let steps = parse(path.trim().strip_prefix('@')?)?;
        // Filters in filters have no use, and would make following a path expensive; so would looking deep in them.
        let plain = steps.iter().all(|step| !matches!(step, Step::Where(..) | Step::Deep(_)));
        return plain.then_some(Step::Where(steps, test));
    }
    if let Some((from, to)) = inner.split_once(':') {
        let end = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        return Some(Step::Slice(end(from.trim())?, end(to.trim())?));
    }
    inner.parse().ok().map(Step::Index)
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

fn literal(text: &str) -> Option<Value> {
    quoted(text).map(Value::from).or_else(|| serde_json::from_str(text).ok())
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
    fn every_kind_of_step_leads_somewhere() {
        for (path, expected) in [
            (".spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            (".spec.ports[0].port", json!([1])),
            (".spec.ports[-1].port", json!([2])),
            (".spec.ports[*].port", json!([1, 2])),
            (".spec['replicas']", json!([3])),
            (r".metadata.annotations.example\.com/x", json!(["y"])),
            (r#".metadata.annotations["example.com/x"]"#, json!(["y"])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type == 'Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
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
    fn a_path_that_is_not_understood_finds_nothing() {
        for path in ["spec", ".spec[", ".spec...replicas", ".spec[?(replicas)]", &".a".repeat(100)] {
            assert_eq!(find(path, &json!({"spec": 1, "a": 1})), Vec::<&Value>::new(), "{path}");
        }
    }

    #[test]
    fn a_cell_has_its_columns_type_or_is_empty() {
        assert_eq!(cell(".spec.replicas", "integer", &object()), json!(3));
        assert_eq!(cell(".spec.replicas", "string", &object()), json!("3"));
        assert_eq!(cell(".spec.replicas", "boolean", &object()), Value::Null);
        assert_eq!(cell(".spec.ports[0]", "string", &object()), json!(r#"{"port":1}"#));
        assert_eq!(cell(".status.phase", "string", &object()), Value::Null);
    }

    steersman_testkit::properties! {
        #[test]
        fn any_text_can_be_followed(path in r#"[.\[\]a-b*?(@)=!'"\\0-1-]{0,12}"#) {
            find(&path, &json!({"a": [{"b": 1}, {"a": {"b": 2}}], "b": "x"}));
        }
    }
}
