//! `openapi`: makes the API server's table of built-in types from Kubernetes' own API description.
//!
//! The document is `api/openapi-spec/swagger.json` of the Go module `k8s.io/kubernetes` (Apache-2.0). What is kept is
//! what says how an object is put together; descriptions and paths are dropped. What it does not say of Go's types `gotypes` adds. The same document always gives the
//! same bytes.

use crate::gotypes;
use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, fs, io::Write, path::PathBuf};

/// Whose types are kept, with all that they refer to.
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

/// The keys of a schema that are kept, besides `x-kubernetes-*`.
const KEPT: &[&str] =
    &["$ref", "additionalProperties", "default", "enum", "format", "items", "properties", "required", "type"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kubernetes' API description (swagger.json)
    swagger: PathBuf,
    /// The folder of the Go module `k8s.io/api` of the same version
    api: PathBuf,
    /// Where the table goes
    #[arg(long, default_value = "apiserver/src/schema/builtin.json.gz")]
    output: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let text = fs::read(&options.swagger).with_context(|| format!("reading {}", options.swagger.display()))?;
    let document: Value = serde_json::from_slice(&text).context("the document is not JSON")?;
    let definitions = document["definitions"].as_object().context("the document has no definitions")?;
    let mut kept = reduced(definitions);
    gotypes::annotate(&mut kept, &options.api)?;
    let mut gz = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gz.write_all(&serde_json::to_vec(&kept)?)?;
    let bytes = gz.finish()?;
    fs::write(&options.output, &bytes).with_context(|| format!("writing {}", options.output.display()))?;
    println!("{} definitions, {} bytes: {}", kept.len(), bytes.len(), options.output.display());
    Ok(true)
}

/// The definitions that the roots reach, without what is not needed.
fn reduced(definitions: &Map<String, Value>) -> Map<String, Value> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> =
        definitions.keys().map(String::as_str).filter(|name| ROOTS.iter().any(|root| name.starts_with(root))).collect();
    while let Some(name) = open.pop() {
        if let Some(definition) = definitions.get(name)
            && reached.insert(name)
        {
            references(definition, &mut open);
        }
    }
    reached.into_iter().map(|name| (name.to_owned(), stripped(&definitions[name]))).collect()
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            let target = map.get("$ref").and_then(Value::as_str).and_then(|at| at.strip_prefix("#/definitions/"));
            found.extend(target);
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// A schema without descriptions and the like. The keys of `properties` are names, not keywords: all stay.
fn stripped(schema: &Value) -> Value {
    let Value::Object(schema) = schema else { return schema.clone() };
    let kept = schema.iter().filter(|(key, _)| KEPT.contains(&key.as_str()) || key.starts_with("x-kubernetes-"));
    let of = |(key, value): (&String, &Value)| {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(all)) => {
                all.iter().map(|(name, schema)| (name.clone(), stripped(schema))).collect()
            }
            ("items" | "additionalProperties", schema) => stripped(schema),
            (_, value) => value.clone(),
        };
        (key.clone(), value)
    };
    Value::Object(kept.map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::reduced;
    use serde_json::json;

    #[test]
    fn what_roots_refer_to_is_kept_and_the_rest_is_not() {
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
        assert_eq!(reduced(document.as_object().unwrap()), *expected.as_object().unwrap());
    }
}
