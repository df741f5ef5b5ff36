//! Label selectors as arguments: text, or one of the API's types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube_core::Selector;

/// Label selector as an argument: text, a `LabelSelector`, or kube's `Selector`.
///
/// Text has the syntax of `kubectl -l`. Functions that take `impl Into<LabelQuery>` accept each of
/// these. The selector is checked where it is used, so an invalid one is an error of that function
/// or of the declaration that it is part of. An empty selector matches every object.
///
/// ```
/// use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector};
/// use steersman::cache::{Query, Select};
///
/// let selector = LabelSelector {
///     match_labels: Some([("app".into(), "web".into())].into()),
///     ..LabelSelector::default()
/// };
/// let query = Query::<Pod>::default().labels(&selector)?;
/// let select = Select::<Pod>::new().labels("app=web,tier in (a,b)");
/// # Ok::<_, steersman::cache::CacheError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelQuery(pub(crate) String);

impl From<&str> for LabelQuery {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for LabelQuery {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&String> for LabelQuery {
    fn from(text: &String) -> Self {
        Self(text.clone())
    }
}

impl From<&Selector> for LabelQuery {
    fn from(selector: &Selector) -> Self {
        Self(selector.to_string())
    }
}

impl From<Selector> for LabelQuery {
    fn from(selector: Selector) -> Self {
        Self::from(&selector)
    }
}

impl From<LabelSelector> for LabelQuery {
    fn from(selector: LabelSelector) -> Self {
        Self::from(&selector)
    }
}

impl From<&LabelSelector> for LabelQuery {
    fn from(selector: &LabelSelector) -> Self {
        let labels = selector.match_labels.iter().flatten();
        let labels = labels.map(|(key, value)| format!("{key}={value}"));
        let expressions = selector.match_expressions.iter().flatten();
        let all: Vec<_> = labels.chain(expressions.map(requirement)).collect();
        Self(all.join(","))
    }
}

/// Returns an expression as text. The text of an invalid expression does not parse.
fn requirement(expression: &LabelSelectorRequirement) -> String {
    let key = &expression.key;
    let values = expression.values.as_deref().unwrap_or_default();
    let set = values.join(",");
    match expression.operator.as_str() {
        "Exists" if values.is_empty() => key.clone(),
        "DoesNotExist" if values.is_empty() => format!("!{key}"),
        "In" if !values.is_empty() => format!("{key} in ({set})"),
        "NotIn" if !values.is_empty() => format!("{key} notin ({set})"),
        // Not `in ()`, which selects the empty value.
        operator => format!("{key} {operator} {set}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Selector as Parsed;

    fn expression(operator: &str, values: &[&str]) -> LabelSelector {
        let values = values.iter().map(ToString::to_string).collect();
        let expression = LabelSelectorRequirement {
            key: "tier".into(),
            operator: operator.into(),
            values: Some(values),
        };
        LabelSelector {
            match_labels: Some([("app".into(), "web".into())].into()),
            match_expressions: Some(vec![expression]),
        }
    }

    #[test]
    fn a_label_selector_means_the_same_as_its_text() {
        for (operator, values, text) in [
            ("In", &["a", "b"][..], "app=web,tier in (a,b)"),
            ("NotIn", &["a"], "app=web,tier notin (a)"),
            ("Exists", &[], "app=web,tier"),
            ("DoesNotExist", &[], "app=web,!tier"),
        ] {
            let query = LabelQuery::from(&expression(operator, values));
            assert_eq!(Parsed::parse(&query.0), Parsed::parse(text), "{text}");
        }
        assert_eq!(LabelQuery::from(LabelSelector::default()).0, "");
    }

    #[test]
    fn an_invalid_expression_does_not_parse() {
        for (operator, values) in [
            ("In", &[][..]),
            ("NotIn", &[]),
            ("Exists", &["a"]),
            ("DoesNotExist", &["a"]),
            ("Near", &["a"]),
        ] {
            let query = LabelQuery::from(expression(operator, values));
            assert!(Parsed::parse(&query.0).is_err(), "{query:?}");
        }
    }

    #[test]
    fn a_selector_of_kube_is_accepted() {
        let selector: Selector = [("app", "web")].into_iter().collect();
        let query = LabelQuery::from(selector);
        assert_eq!(Parsed::parse(&query.0), Parsed::parse("app=web"));
    }
}
