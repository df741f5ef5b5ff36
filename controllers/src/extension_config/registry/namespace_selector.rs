//! Selector of namespaces.

use crate::{
    cluster_api::joined,
    extension_config::{
        admission::{FieldError, labels},
        go::{json, quoted},
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Selector, SelectorExt};
use std::collections::BTreeMap;

/// Selector of namespaces by their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSelector {
    /// Selects no namespace. Created from an absent selector.
    Nothing,
    /// Selects all namespaces without reading them. Created from an empty selector.
    Everything,
    /// Selects namespaces whose labels match.
    Labels(Selector),
}

/// Error of an invalid label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The operator of a requirement does not exist.
    #[error("{} is not a valid label selector operator", quoted(.0))]
    Operator(String),
    /// A requirement has a key or values that are not valid.
    #[error("{}", joined(.0.iter().map(ToString::to_string)))]
    Requirement(Vec<FieldError>),
}

impl NamespaceSelector {
    /// Returns whether a namespace with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Labels(selector) => selector.matches(labels),
        }
    }
}

/// Errors: the first invalid requirement.
impl TryFrom<Option<&LabelSelector>> for NamespaceSelector {
    type Error = SelectorError;

    fn try_from(selector: Option<&LabelSelector>) -> Result<Self, Self::Error> {
        let Some(selector) = selector else {
            return Ok(Self::Nothing);
        };
        for (key, value) in selector.match_labels.iter().flatten() {
            check(key, std::slice::from_ref(value), None)?;
        }
        for requirement in selector.match_expressions.iter().flatten() {
            check_requirement(requirement)?;
        }
        let selector = Selector::try_from(selector.clone())
            .map_err(|error| SelectorError::Operator(error.0))?;
        Ok(if selector.selects_all() {
            Self::Everything
        } else {
            Self::Labels(selector)
        })
    }
}

fn check_requirement(requirement: &LabelSelectorRequirement) -> Result<(), SelectorError> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let detail = match (&*requirement.operator, values.is_empty()) {
        ("In" | "NotIn", true) => Some("for 'in', 'notin' operators, values set can't be empty"),
        ("Exists" | "DoesNotExist", false) => {
            Some("values set must be empty for exists and does not exist")
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => None,
        (operator, _) => return Err(SelectorError::Operator(operator.into())),
    };
    check(&requirement.key, values, detail)
}

/// Checks a key and its values. `detail` is the error text if the number of values is wrong.
fn check(key: &str, values: &[String], detail: Option<&str>) -> Result<(), SelectorError> {
    let mut errors = Vec::new();
    let texts = labels::key(key);
    if !texts.is_empty() {
        errors.push(FieldError::invalid("key", quoted(key), texts.join("; ")));
    }
    if let Some(detail) = detail {
        // Go prints no values as `null`.
        let values = (!values.is_empty()).then_some(values);
        errors.push(FieldError::invalid("values", json(&values), detail));
    }
    for (index, value) in values.iter().enumerate() {
        let texts = labels::value(value);
        if !texts.is_empty() {
            let field = format!("values[{index}][{key}]");
            errors.push(FieldError::invalid(field, quoted(value), texts.join("; ")));
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(SelectorError::Requirement(errors))
    }
}
