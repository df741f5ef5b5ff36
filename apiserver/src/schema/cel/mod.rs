//! CEL rules of custom resources: `x-kubernetes-validations`.
//!
//! When a CRD is created, [`rules`] walks its schema and compiles every rule: kube-cel's parser
//! reads the expression, [`check`], [`calls`] and [`macros`] check its types against the declarations
//! in [`types`] and the signatures in [`functions`], and produce [`code`]. A rule that cannot be
//! evaluated is an error of the CRD, as is one whose estimated cost is too high.
//!
//! When an object is written, [`validate`] walks it together with the old object, converts values
//! ([`value`]) and runs the code ([`eval`]). Functions come from [`library`] and [`convert`].

mod calls;
mod check;
mod code;
mod convert;
mod eval;
mod field_path;
mod functions;
mod library;
mod macros;
mod rules;
#[cfg(test)]
mod tests;
mod types;
mod validate;
mod value;

use crate::status::{FieldErrors, StrictErrors};
use serde_json::Value;

/// Compiled rules of a schema.
pub(crate) struct Rules(rules::Node);

/// Errors and warnings of the rules of an object.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    pub(crate) errors: FieldErrors,
    /// The first errors of unchanged values, which the object may keep.
    pub(crate) warnings: StrictErrors,
}

/// Compiles the rules of a schema, whose path in the CRD is `path`. `is_valid` is false if the
/// schema has other errors. Then only the fields of the rules are checked.
///
/// Returns no rules if there are errors.
pub(super) fn compile(schema: &Value, path: &str, is_valid: bool) -> (Option<Rules>, FieldErrors) {
    let (root, errors) = rules::compile(schema, path, is_valid);
    (
        root.filter(|_| is_valid && errors.is_empty()).map(Rules),
        errors,
    )
}

impl Rules {
    /// Evaluates the rules of an object that replaces `old`, if any.
    pub(super) fn check(&self, object: &Value, old: Option<&Value>) -> Violations {
        validate::validate(&self.0, object, old)
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}
