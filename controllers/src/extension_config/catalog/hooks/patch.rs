//! Formats of patches.

use serde::{Deserialize, Serialize};

/// Format of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum PatchType {
    /// JSON patch, RFC 6902.
    JsonPatch,
    /// JSON merge patch, RFC 7386.
    JsonMergePatch,
    /// Any other format. Clients treat it as an error.
    Other(String),
    /// The patch has no format. Clients treat it as an error.
    #[default]
    Missing,
}

impl From<String> for PatchType {
    fn from(text: String) -> Self {
        match &*text {
            "JSONPatch" => Self::JsonPatch,
            "JSONMergePatch" => Self::JsonMergePatch,
            "" => Self::Missing,
            _ => Self::Other(text),
        }
    }
}

impl From<PatchType> for String {
    fn from(format: PatchType) -> Self {
        match format {
            PatchType::JsonPatch => "JSONPatch".into(),
            PatchType::JsonMergePatch => "JSONMergePatch".into(),
            PatchType::Other(text) => text,
            PatchType::Missing => Self::new(),
        }
    }
}
