//! `cargo xtask openapi`: generates the API server's table of built-in types.
//!
//! The input is `api/openapi-spec/swagger.json` of the Go module `k8s.io/kubernetes` (Apache-2.0).
//! The table keeps the schemas and drops descriptions and paths. [`gotypes`] adds how Go encodes
//! the fields. The same input always produces the same bytes.

use crate::gotypes;
use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, fs, io::Write, path::PathBuf};

/// Prefixes of the types to keep. The types that they refer to are kept, too.
const ROOTS: &[&str] = &[
    "io.k8s.api.admissionregistration.",
    "io.k8s.api.apps.",
    "io.k8s.api.authentication.",
    "io.k8s.api.authorization.",
    "io.k8s.api.autoscaling.",
    "io.k8s.api.batch.",
    "io.k8s.api.coordination.",
    "io.k8s.api.core.",
    "io.k8s.api.discovery.",
    "io.k8s.api.events.",
    "io.k8s.api.networking.",
    "io.k8s.api.node.",
    "io.k8s.api.policy.",
    "io.k8s.api.rbac.",
    "io.k8s.api.scheduling.",
    "io.k8s.api.storage.",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.",
    // Request bodies such as DeleteOptions, to which no object refers.
    "io.k8s.apimachinery.pkg.apis.meta.",
];

/// Keys of a schema to keep, besides `x-kubernetes-*`.
const KEPT_KEYS: &[&str] = &[
    "$ref",
    "additionalProperties",
    "default",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "type",
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kubernetes' API description (swagger.json)
    swagger: PathBuf,
    /// Directory of the Go module `k8s.io/api` of the same version
    api: PathBuf,
    /// File to write the table to
    #[arg(long, default_value = "apiserver/src/schema/builtin.json.gz")]
    output: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let text = fs::read(&options.swagger)
        .with_context(|| format!("cannot read {}", options.swagger.display()))?;
    let document: Value =
        serde_json::from_slice(&text).context("the API description is not valid JSON")?;
    let definitions = document["definitions"]
        .as_object()
        .context("the API description has no definitions")?;
    let mut kept = reduce(definitions);
    gotypes::annotate(&mut kept, &options.api)?;
    let mut gz = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    gz.write_all(&serde_json::to_vec(&kept)?)?;
    let bytes = gz.finish()?;
    fs::write(&options.output, &bytes)
        .with_context(|| format!("cannot write {}", options.output.display()))?;
    println!(
        "{} definitions, {} bytes: {}",
        kept.len(),
        bytes.len(),
        options.output.display()
    );
    Ok(true)
}

/// Returns the definitions that are reachable from [`ROOTS`], reduced to [`KEPT_KEYS`].
fn reduce(definitions: &Map<String, Value>) -> Map<String, Value> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = definitions
        .keys()
        .map(String::as_str)
        .filter(|name| ROOTS.iter().any(|root| name.starts_with(root)))
        .collect();
    while let Some(name) = open.pop() {
        if let Some(definition) = definitions.get(name)
            && reached.insert(name)
        {
            references(definition, &mut open);
        }
    }
    reached
        .into_iter()
        .map(|name| (name.to_owned(), strip(&definitions[name])))
        .collect()
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            let target = map
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|at| at.strip_prefix("#/definitions/"));
            found.extend(target);
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Removes keys that are not in [`KEPT_KEYS`]. The keys of `properties` are field names, and stay.
fn strip(schema: &Value) -> Value {
    let Value::Object(schema) = schema else {
        return schema.clone();
    };
    let kept = schema
        .iter()
        .filter(|(key, _)| KEPT_KEYS.contains(&key.as_str()) || key.starts_with("x-kubernetes-"));
    let strip_entry = |(key, value): (&String, &Value)| {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(all)) => all
                .iter()
                .map(|(name, schema)| (name.clone(), strip(schema)))
                .collect(),
            ("items" | "additionalProperties", schema) => strip(schema),
            (_, value) => value.clone(),
        };
        (key.clone(), value)
    };
    Value::Object(kept.map(strip_entry).collect())
}

#[cfg(test)]
mod tests {
    use super::reduce;
    use serde_json::json;

    #[test]
    fn types_that_the_roots_refer_to_are_kept() {
        let document = json!({
            "io.k8s.api.core.v1.A": {
                "description": "long",
                "type": "object",
                "properties": {
                    "description": {"type": "string", "description": "long"},
                    "b": {"$ref": "#/definitions/io.k8s.other.B"},
                },
            },
            "io.k8s.other.B": {"type": "string", "x-kubernetes-map-type": "atomic"},
            "io.k8s.other.C": {"type": "string"},
        });
        let expected = json!({
            "io.k8s.api.core.v1.A": {
                "type": "object",
                "properties": {"description": {"type": "string"}, "b": {"$ref": "#/definitions/io.k8s.other.B"}},
            },
            "io.k8s.other.B": {"type": "string", "x-kubernetes-map-type": "atomic"},
        });
        assert_eq!(
            reduce(document.as_object().unwrap()),
            *expected.as_object().unwrap()
        );
    }
}
