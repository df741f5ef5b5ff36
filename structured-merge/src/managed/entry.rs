//! Entries of `metadata.managedFields`.

use super::Time;
use crate::go_text::{self, Html};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Kind of request with which a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update or patch.
    Update,
    /// Operation that this crate does not know. Decoding managed fields with it fails.
    #[serde(other)]
    Unknown,
}

/// Entry of `metadata.managedFields`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// Name of the manager.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub manager: String,
    /// Kind of request with which the manager wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Version of the object that the fields belong to.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub api_version: String,
    /// Time of the last change of the fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Format of the fields: `FieldsV1`.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub fields_type: String,
    /// Owned fields, in the wire format of [`Set`](crate::Set).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields_v1: Option<Value>,
    /// Subresource of the request. Empty for the object itself.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub subresource: String,
}

fn null_as_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn operation_name(operation: Option<Operation>) -> &'static str {
    match operation {
        Some(Operation::Apply) => "Apply",
        Some(Operation::Update) => "Update",
        Some(Operation::Unknown) | None => "",
    }
}

impl Entry {
    /// Returns the entry as a JSON value.
    pub(crate) fn into_value(self) -> Value {
        let mut fields = Map::new();
        let texts = [
            ("manager", self.manager),
            ("operation", operation_name(self.operation).to_owned()),
            ("apiVersion", self.api_version),
            ("fieldsType", self.fields_type),
            ("subresource", self.subresource),
        ];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            fields.insert(name.to_owned(), Value::String(text));
        }
        if let Some(time) = self.time {
            fields.insert("time".to_owned(), Value::String(time.to_string()));
        }
        if let Some(fields_v1) = self.fields_v1 {
            fields.insert("fieldsV1".to_owned(), fields_v1);
        }
        Value::Object(fields)
    }

    /// Compares in the order of entries in the API server's objects.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let seconds = |entry: &Self| entry.time.map_or(0, Time::seconds);
        self.operation
            .cmp(&other.operation)
            .then_with(|| seconds(self).cmp(&seconds(other)))
            .then_with(|| self.manager.cmp(&other.manager))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    /// Appends the text that identifies the entry's manager.
    pub(super) fn write_identifier(&self, out: &mut String) {
        let fields = [
            ("manager", self.manager.as_str()),
            ("operation", operation_name(self.operation)),
            ("apiVersion", self.api_version.as_str()),
            ("subresource", self.subresource.as_str()),
        ];
        let mut separator = '{';
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            out.push(separator);
            separator = ',';
            go_text::json_string(out, name, Html::Plain);
            out.push(':');
            go_text::json_string(out, value, Html::Escaped);
        }
        if separator == '{' {
            out.push('{');
        }
        out.push('}');
    }
}
