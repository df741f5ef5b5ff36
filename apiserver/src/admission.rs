//! Admission: closures that can change or reject each write before it is stored. They take the
//! place of webhooks.

use crate::{
    auth::Identity,
    status::{Failure, Result},
};
use serde_json::Value;
use std::{fmt, sync::Arc};

/// Kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object is updated, even if nothing changes.
    Update,
    /// An object is deleted.
    Delete,
}

/// Description of a write, for admission closures.
#[derive(Debug)]
#[non_exhaustive]
pub struct Review<'a> {
    /// Kind of the write.
    pub operation: Operation,
    /// API group. Empty for the core group.
    pub group: &'a str,
    /// API version of the request.
    pub version: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource: `status`, `scale`, or empty.
    pub subresource: &'a str,
    /// Namespace. Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Name of the object. Empty if the server generates it later.
    pub name: &'a str,
    /// The write is a dry run and is not stored.
    pub dry_run: bool,
    /// User of the request.
    pub identity: &'a Identity,
    /// Object before the write. `None` for a creation.
    pub old: Option<&'a Value>,
}

type Mutate = dyn Fn(&Review<'_>, &mut Value) -> Result<()> + Send + Sync;
type Validate = dyn Fn(&Review<'_>, Option<&Value>) -> Result<()> + Send + Sync;

/// Admission closures of a server, called in the order in which they were added.
///
/// Mutating closures run first. On creation they see an object without a uid. The server applies
/// defaults again after them. Validating closures see the object that would be stored, or `None`
/// for a deletion.
///
/// ```
/// use steersman_apiserver::{Admission, Failure, Operation};
///
/// let admission = Admission::default()
///     .mutate(|review, object| {
///         if review.operation == Operation::Create && review.resource == "widgets" {
///             object["metadata"]["labels"]["seen"] = "yes".into();
///         }
///         Ok(())
///     })
///     .validate(|review, _| match review.name {
///         "forbidden" => Err(Failure::new(403, None, "not that one")),
///         _ => Ok(()),
///     });
/// # _ = admission;
/// ```
#[derive(Clone, Default)]
pub struct Admission {
    mutating: Vec<Arc<Mutate>>,
    validating: Vec<Arc<Validate>>,
}

impl Admission {
    /// Adds a closure that can change objects.
    #[must_use]
    pub fn mutate(
        mut self,
        mutate: impl Fn(&Review<'_>, &mut Value) -> Result<(), Box<Failure>> + Send + Sync + 'static,
    ) -> Self {
        self.mutating.push(Arc::new(mutate));
        self
    }

    /// Adds a closure that can reject a write.
    #[must_use]
    pub fn validate(
        mut self,
        validate: impl Fn(&Review<'_>, Option<&Value>) -> Result<(), Box<Failure>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.validating.push(Arc::new(validate));
        self
    }

    pub(crate) fn is_mutating(&self) -> bool {
        !self.mutating.is_empty()
    }

    pub(crate) fn run_mutating(&self, review: &Review<'_>, object: &mut Value) -> Result<()> {
        self.mutating
            .iter()
            .try_for_each(|mutate| mutate(review, object))
    }

    pub(crate) fn run_validating(&self, review: &Review<'_>, object: Option<&Value>) -> Result<()> {
        self.validating
            .iter()
            .try_for_each(|validate| validate(review, object))
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("mutating", &self.mutating.len())
            .field("validating", &self.validating.len())
            .finish()
    }
}
