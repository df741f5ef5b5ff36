//! Reads from Go's types how they are encoded, which the API description does not contain.
//!
//! For each field this is whether Go omits its zero value, and what Go writes otherwise. The source
//! is `types.go` of the Go module `k8s.io/api` (Apache-2.0). It is parsed line by line, since these
//! files are formatted with one field per line.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fs, path::Path};

/// Types of one Go package.
#[derive(Default)]
struct Package {
    structs: BTreeMap<String, Vec<Field>>,
    /// Named types with their underlying types.
    names: BTreeMap<String, String>,
}

struct Field {
    /// JSON name. Empty for an inlined field.
    name: String,
    kind: String,
    omitempty: bool,
    omitzero: bool,
}

/// Adds `x-go-zero` and `x-go-written` to each definition of a type in the packages of `api`.
///
/// `x-go-zero` lists the scalar fields whose zero value Go omits. `x-go-written` maps the fields
/// that Go always writes to their zero values.
pub(crate) fn annotate(definitions: &mut Map<String, Value>, api: &Path) -> Result<()> {
    let mut packages = BTreeMap::new();
    for (name, definition) in definitions.iter_mut() {
        let Some(rest) = name.strip_prefix("io.k8s.api.") else {
            continue;
        };
        let [group, version, kind] = rest.split('.').collect::<Vec<_>>()[..] else {
            continue;
        };
        let at = format!("{group}/{version}");
        if !packages.contains_key(&at) {
            packages.insert(at.clone(), read_package(&api.join(&at).join("types.go"))?);
        }
        let core = "core/v1".to_owned();
        if !packages.contains_key(&core) {
            packages.insert(
                core.clone(),
                read_package(&api.join(&core).join("types.go"))?,
            );
        }
        let mut zero = Vec::new();
        let mut written = Map::new();
        collect(
            &packages[&at],
            &packages[&core],
            kind,
            &mut zero,
            &mut written,
        );
        let definition = definition
            .as_object_mut()
            .with_context(|| format!("the definition of {name} is not an object"))?;
        if !zero.is_empty() {
            definition.insert("x-go-zero".into(), zero.into());
        }
        if definition.contains_key("properties") {
            definition.insert("x-go-written".into(), written.into());
        }
    }
    Ok(())
}

fn collect(
    own: &Package,
    core: &Package,
    kind: &str,
    zero: &mut Vec<String>,
    written: &mut Map<String, Value>,
) {
    for field in own.structs.get(kind).into_iter().flatten() {
        if field.name.is_empty() {
            collect(own, core, &field.kind, zero, written);
            continue;
        }
        let Some(empty) = zero_value(own, core, &field.kind) else {
            // Go writes a nil pointer, slice or map as null, unless the field has `omitempty`.
            if !field.omitempty && !field.omitzero {
                written.insert(field.name.clone(), Value::Null);
            }
            continue;
        };
        let scalar = matches!(&empty, Value::Bool(_) | Value::Number(_)) || empty == "";
        match (scalar, field.omitempty || field.omitzero) {
            (true, true) => zero.push(field.name.clone()),
            (false, _) if field.omitzero => {}
            // `omitempty` has no effect on a struct.
            _ => drop(written.insert(field.name.clone(), empty)),
        }
    }
}

/// Returns the JSON of a type's zero value, or `None` if the zero value is nil.
fn zero_value(own: &Package, core: &Package, kind: &str) -> Option<Value> {
    match kind {
        "string" | "types.UID" => Some(json!("")),
        "bool" => Some(json!(false)),
        "int" | "int32" | "int64" | "float64" | "intstr.IntOrString" => Some(json!(0)),
        "metav1.Time" | "metav1.MicroTime" | "runtime.RawExtension" => Some(Value::Null),
        "resource.Quantity" => Some(json!("0")),
        "metav1.Duration" => Some(json!("0s")),
        _ if kind.starts_with(['*', '[']) || kind.starts_with("map[") => None,
        _ => {
            let (package, name) = match kind.split_once('.') {
                Some(("v1" | "corev1", name)) => (core, name),
                Some(_) => return Some(json!({})),
                None => (own, kind),
            };
            match package.names.get(name) {
                Some(other) => zero_value(package, core, other),
                None => Some(json!({})),
            }
        }
    }
}

fn read_package(path: &Path) -> Result<Package> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Package {
    let mut package = Package::default();
    let mut open: Option<String> = None;
    for line in text.lines() {
        if line == "}" {
            open = None;
        } else if let Some(name) = &open {
            package
                .structs
                .entry(name.clone())
                .or_default()
                .extend(parse_field(line));
        } else if let Some(rest) = line.strip_prefix("type ") {
            let mut words = rest.split_whitespace();
            let (Some(name), Some(kind)) = (words.next(), words.next()) else {
                continue;
            };
            if kind == "struct" {
                open = Some(name.into());
            } else {
                package.names.insert(name.into(), kind.into());
            }
        }
    }
    package
}

/// Parses a line with a field that has a JSON tag.
fn parse_field(line: &str) -> Option<Field> {
    let (declared, tags) = line
        .trim()
        .split_once('`')
        .filter(|(declared, _)| !declared.starts_with("//"))?;
    let (tag, _) = tags.split_once("json:\"")?.1.split_once('"')?;
    let mut tag = tag.split(',');
    let name = tag.next().filter(|name| *name != "-")?.to_owned();
    let flags: Vec<_> = tag.collect();
    let kind = declared.split_whitespace().last()?.to_owned();
    // `apiVersion` and `kind` are the same for every object.
    if kind.ends_with("TypeMeta") {
        return None;
    }
    let inline = flags.contains(&"inline");
    let name = if inline { String::new() } else { name };
    Some(Field {
        name,
        kind,
        omitempty: flags.contains(&"omitempty"),
        omitzero: flags.contains(&"omitzero"),
    })
}

#[cfg(test)]
mod tests {
    use super::{collect, parse};
    use serde_json::{Map, json};

    #[test]
    fn fields_are_omitted_or_written_as_their_tags_declare() {
        let package = parse(
            "type Policy string\n\
             type Inner struct {\n\tA string `json:\"a,omitempty\"`\n}\n\
             type T struct {\n\
             \tmetav1.TypeMeta `json:\",inline\"`\n\
             \tInner `json:\",inline\"`\n\
             \t// Was string `json:\"was\"`\n\
             \tPolicy Policy `json:\"policy,omitempty\" protobuf:\"x\"`\n\
             \tCount *int32 `json:\"count,omitempty\"`\n\
             \tName string `json:\"name\"`\n\
             \tRules []string `json:\"rules\"`\n\
             \tSpec Inner `json:\"spec,omitempty\"`\n\
             \tLate Inner `json:\"late,omitzero\"`\n\
             \tAt metav1.Time `json:\"at,omitempty\"`\n\
             }\n",
        );
        let mut zero = Vec::new();
        let mut written = Map::new();
        collect(&package, &package, "T", &mut zero, &mut written);
        assert_eq!(zero, ["a", "policy"]);
        assert_eq!(
            json!(written),
            json!({"name": "", "rules": null, "spec": {}, "at": null})
        );
    }
}
