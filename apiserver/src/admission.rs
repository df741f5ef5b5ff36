//! Admission: closures that see every write before it is stored, and may change or refuse it. They stand where webhooks will.

use crate::{
    auth::Identity,
    status::{Failure, Result},
};
use serde_json::Value;
use std::{fmt, sync::Arc};

/// What is about to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed one, also when nothing changes.
    Update,
    /// It is to go.
    Delete,
}

/// A write, for a closure to look at.
#[derive(Debug)]
#[non_exhaustive]
pub struct Review<'a> {
    /// What is about to happen.
    pub operation: Operation,
    /// Empty for the core group.
    pub group: &'a str,
    /// The version of the request.
    pub version: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// `status`, `scale`, or empty.
    pub subresource: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Empty if the name is yet to be generated.
    pub name: &'a str,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// Who asks.
    pub identity: &'a Identity,
    /// The object before; `None` when it is created.
    pub old: Option<&'a Value>,
}

type Mutate = dyn Fn(&Review<'_>, &mut Value) -> Result<()> + Send + Sync;
type Validate = dyn Fn(&Review<'_>, Option<&Value>) -> Result<()> + Send + Sync;

/// The closures of a server, in the order in which they are asked.
///
/// Mutating ones come first and see an object without a uid when it is created; defaults are filled in again after them. Validating
/// ones see what would be stored, or `None` for a deletion.
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
    /// Add a closure that may change objects.
    #[must_use]
    pub fn mutate(
        mut self,
        mutate: impl Fn(&Review<'_>, &mut Value) -> Result<(), Box<Failure>> + Send + Sync + 'static,
    ) -> Self {
        self.mutating.push(Arc::new(mutate));
        self
    }

    /// Add a closure that may refuse a write.
    #[must_use]
    pub fn validate(
        mut self,
        validate: impl Fn(&Review<'_>, Option<&Value>) -> Result<(), Box<Failure>> + Send + Sync + 'static,
    ) -> Self {
        self.validating.push(Arc::new(validate));
        self
    }

    pub(crate) fn is_mutating(&self) -> bool {
        !self.mutating.is_empty()
    }

    pub(crate) fn run_mutating(&self, review: &Review<'_>, object: &mut Value) -> Result<()> {
        self.mutating.iter().try_for_each(|mutate| mutate(review, object))
    }

    pub(crate) fn run_validating(&self, review: &Review<'_>, object: Option<&Value>) -> Result<()> {
        self.validating.iter().try_for_each(|validate| validate(review, object))
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
