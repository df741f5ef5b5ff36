//! Paths below a value, at which a rule reports its errors: `.spec['a.b']`.

use serde_json::Value;

/// Splits a field path: `.spec['a.b']`.
fn steps(path: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            steps.push(after[..end].into());
            rest = &after[end..];
            continue;
        }
        let mut name = String::new();
        let mut chars = rest.strip_prefix("['")?.chars();
        loop {
            match chars.next()? {
                '\'' => break,
                '\\' => name.push(match chars.next()? {
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'v' => '\u{b}',
                    other @ ('\'' | '\\') => other,
                    _ => return None,
                }),
                other => name.push(other),
            }
        }
        steps.push(name);
        rest = chars.as_str().strip_prefix(']')?;
    }
    Some(steps)
}

/// Returns the field path as it appears in errors. `None` if the schema has no such field.
pub(super) fn normalize(path: &str, schema: &Value) -> Option<String> {
    let mut schema = schema;
    let mut normalized = String::new();
    for name in &steps(path)? {
        let is_map = !schema["properties"].is_object();
        schema = if is_map {
            &schema["additionalProperties"]
        } else {
            schema["properties"].get(name)?
        };
        if !schema.is_object() {
            return None;
        }
        match (is_map, normalized.is_empty()) {
            (true, _) => normalized.extend(["[", name, "]"]),
            (false, true) => normalized.push_str(name),
            (false, false) => normalized.extend([".", name]),
        }
    }
    Some(normalized)
}

#[cfg(test)]
mod tests {
    use super::normalize;
    use serde_json::json;

    #[test]
    fn a_path_names_fields_and_keys_of_the_schema() {
        let schema = json!({"properties": {
            "a.b": {"properties": {"c": {}}},
            "map": {"additionalProperties": {"properties": {"d": {}}}},
            "it's": {},
        }});
        let normal = |path: &str| normalize(path, &schema).unwrap_or_else(|| "-".into());
        assert_eq!(normal(".map.x.d"), "map[x].d");
        assert_eq!(normal("['a.b'].c"), "a.b.c");
        assert_eq!(normal(r"['it\'s']"), "it's");
        for invalid in [
            ".x", "map", ".map[x]", "['a.b'", ".['map']", ".map.x.y", r"['\x']",
        ] {
            assert_eq!(normal(invalid), "-", "{invalid}");
        }
    }
}
