//! Managers of an object's fields and their encoding as `metadata.managedFields`.
//!
//! - `entry`: one entry of the wire format
//! - `time`: timestamps of entries
//! - `cap`: limit of the number of update managers

mod cap;
mod entry;
mod time;

pub use entry::{Entry, Operation};
pub use time::{Time, TimeError};

pub(crate) use cap::cap_update_managers;

use crate::set::Set;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Owned fields by manager.
pub type Managers = BTreeMap<ManagerKey, VersionedSet>;

/// Identity of a manager, which owns one set of fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerKey {
    /// Name of the manager.
    pub manager: String,
    /// Operation of the manager.
    pub operation: Operation,
    /// Version that an update wrote. `None` for an apply, whose version may change.
    pub api_version: Option<String>,
    /// Subresource of the request. Empty for the object itself.
    pub subresource: String,
}

impl ManagerKey {
    /// Returns the key of a manager that applies.
    pub fn apply(manager: impl Into<String>, subresource: impl Into<String>) -> Self {
        Self {
            manager: manager.into(),
            operation: Operation::Apply,
            api_version: None,
            subresource: subresource.into(),
        }
    }

    /// Returns the key of a manager that creates, updates or patches.
    pub fn update(
        manager: impl Into<String>,
        api_version: impl Into<String>,
        subresource: impl Into<String>,
    ) -> Self {
        Self {
            manager: manager.into(),
            operation: Operation::Update,
            api_version: Some(api_version.into()),
            subresource: subresource.into(),
        }
    }

    /// Returns the text by which the API server sorts managers.
    ///
    /// It is the JSON of an entry without fields and time.
    pub(crate) fn identifier(&self) -> String {
        let entry = Entry {
            manager: self.manager.clone(),
            operation: Some(self.operation),
            api_version: self.api_version.clone().unwrap_or_default(),
            subresource: self.subresource.clone(),
            ..Entry::default()
        };
        let mut out = String::new();
        entry.write_identifier(&mut out);
        out
    }
}

/// Fields that one manager owns, at one version of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedSet {
    /// Owned fields.
    pub set: Set,
    /// Version of the object that the paths refer to, such as `apps/v1`.
    pub api_version: String,
}

/// Managers of an object, with their fields and the times of their last changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedFields {
    /// Fields of each manager.
    pub managers: Managers,
    /// Time of each manager's last change. A manager may have none.
    pub times: BTreeMap<ManagerKey, Time>,
}

/// Error of decoding `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The list or an entry has a value of the wrong type, or a malformed field set.
    #[error("error decoding managed fields: {0}")]
    Malformed(String),
    /// An entry has neither of the two operations.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry has no version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// An entry has no format.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// An entry has an unknown format.
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
}

impl ManagedFields {
    /// Decodes `metadata.managedFields`. Null decodes as no managers.
    pub fn decode(entries: &Value) -> Result<Self, DecodeError> {
        if entries.is_null() {
            return Ok(Self::default());
        }
        let entries = Vec::<Entry>::deserialize(entries)
            .map_err(|error| DecodeError::Malformed(error.to_string()))?;
        Self::from_entries(entries)
    }

    /// Collects the managers of entries. The last entry of a manager replaces its earlier ones.
    pub fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Result<Self, DecodeError> {
        let mut managed = Self::default();
        for (index, entry) in entries.into_iter().enumerate() {
            let operation = entry
                .operation
                .filter(|operation| *operation != Operation::Unknown)
                .ok_or(DecodeError::Operation)?;
            if entry.api_version.is_empty() {
                return Err(DecodeError::ApiVersion);
            }
            match entry.fields_type.as_str() {
                "FieldsV1" => {}
                "" => return Err(DecodeError::NoFieldsType(index)),
                _ => return Err(DecodeError::FieldsType(index, entry.fields_type)),
            }
            let set = match &entry.fields_v1 {
                None => Set::new(),
                Some(fields) => Set::deserialize(fields)
                    .map_err(|error| DecodeError::Malformed(error.to_string()))?,
            };
            let key = ManagerKey {
                manager: entry.manager,
                operation,
                api_version: (operation == Operation::Update).then(|| entry.api_version.clone()),
                subresource: entry.subresource,
            };
            match entry.time {
                Some(time) => managed.times.insert(key.clone(), time),
                None => managed.times.remove(&key),
            };
            let api_version = entry.api_version;
            managed
                .managers
                .insert(key, VersionedSet { set, api_version });
        }
        Ok(managed)
    }

    /// Returns the entries in the order of the API server.
    ///
    /// Applies come first. Then the order is by time, name, version and subresource.
    pub fn to_entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self
            .managers
            .iter()
            .map(|(key, versioned)| Entry {
                manager: key.manager.clone(),
                operation: Some(key.operation),
                api_version: versioned.api_version.clone(),
                time: self.times.get(key).copied(),
                fields_type: "FieldsV1".to_owned(),
                fields_v1: Some(versioned.set.to_value()),
                subresource: key.subresource.clone(),
            })
            .collect();
        entries.sort_by(Entry::compare);
        entries
    }

    /// Encodes `metadata.managedFields`. Returns `None` if there are no managers.
    pub fn encode(&self) -> Option<Value> {
        if self.managers.is_empty() {
            return None;
        }
        let entries = self.to_entries().into_iter().map(Entry::into_value);
        Some(entries.collect())
    }
}
