//! Conflicts of an apply with other managers.

use crate::{go_text, managed::ManagerKey, path::Path};
use std::fmt::{self, Display, Formatter};

/// A field that an apply would change and that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Owner of the field.
    pub manager: ManagerKey,
    /// Path of the field.
    pub path: Path,
}

impl Conflict {
    /// Returns the owner as in the API server's messages.
    ///
    /// For example `"name" with subresource "status" using v1`.
    pub fn owner(&self) -> String {
        let key = &self.manager;
        let mut text = go_text::quote(&key.manager);
        if !key.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&go_text::quote(&key.subresource));
        }
        if let Some(api_version) = &key.api_version {
            text.push_str(" using ");
            text.push_str(api_version);
        }
        text
    }

    /// Returns the message of the status cause `FieldManagerConflict`.
    ///
    /// The `field` of this cause is [`path`](Self::path).
    pub fn cause_message(&self) -> String {
        format!("conflict with {}", self.owner())
    }
}

/// Conflicts of one apply, sorted by owner and path: at least one.
///
/// The `Display` text is the message of the API server's status, which has the code 409 and the
/// reason `Conflict`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(Vec<Conflict>);

impl Conflicts {
    /// Sorts the conflicts. Returns `None` if there are none.
    pub(crate) fn new(mut conflicts: Vec<Conflict>) -> Option<Self> {
        conflicts.sort_by_cached_key(|conflict| conflict.manager.identifier());
        (!conflicts.is_empty()).then_some(Self(conflicts))
    }

    /// Returns the conflicts, sorted by owner and path.
    pub fn as_slice(&self) -> &[Conflict] {
        &self.0
    }
}

impl std::error::Error for Conflicts {}

impl Display for Conflicts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            let (owner, path) = (only.owner(), &only.path);
            return write!(
                f,
                "Apply failed with 1 conflict: conflict with {owner}: {path}"
            );
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut previous = None;
        for conflict in &self.0 {
            if previous != Some(&conflict.manager) {
                if previous.is_some() {
                    f.write_str("\n")?;
                }
                write!(f, "conflicts with {}:", conflict.owner())?;
                previous = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.path)?;
        }
        Ok(())
    }
}
