//! Validation of roles and role bindings.

use super::cells::{items, text};
use super::validate::one_of;
use crate::clock::Clock;
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;

const GROUP: &[&str] = &["rbac.authorization.k8s.io"];

pub(super) fn role(object: &Value, _: Option<&Value>) -> FieldErrors {
    rules(object, true)
}

/// Validates a cluster role, including the aggregated rules that the server sets.
pub(super) fn cluster_role(object: &Value, _: Option<&Value>) -> FieldErrors {
    rules(object, false)
}

fn rules(object: &Value, namespaced: bool) -> FieldErrors {
    let rules = items(object, "/rules").iter().enumerate();
    rules
        .flat_map(|(index, rule)| validate_rule(rule, &format!("rules[{index}]"), namespaced))
        .collect()
}

fn validate_rule(rule: &Value, field: &str, namespaced: bool) -> FieldErrors {
    let has = |key: &str| rule[key].as_array().is_some_and(|list| !list.is_empty());
    let mut errors = FieldErrors::new();
    let mut require = |key: &str, why: &str| {
        if !has(key) {
            errors.push(FieldError::required(format!("{field}.{key}"), why));
        }
    };
    require("verbs", "");
    if !has("nonResourceURLs") {
        require(
            "apiGroups",
            "resource rules must supply at least one api group",
        );
        require(
            "resources",
            "resource rules must supply at least one resource",
        );
        return errors;
    }
    let mut reject = |why: &str| {
        errors.push(FieldError::invalid(
            format!("{field}.nonResourceURLs"),
            &rule["nonResourceURLs"],
            why,
        ));
    };
    if namespaced {
        reject("namespaced rules cannot apply to non-resource URLs");
    }
    if ["apiGroups", "resources", "resourceNames"]
        .iter()
        .any(|key| has(key))
    {
        reject("rules cannot apply to both regular resources and non-resource URLs");
    }
    errors
}

pub(super) fn role_binding(object: &Value, old: Option<&Value>) -> FieldErrors {
    binding(object, old, &["Role", "ClusterRole"], true)
}

pub(super) fn cluster_role_binding(object: &Value, old: Option<&Value>) -> FieldErrors {
    binding(object, old, &["ClusterRole"], false)
}

fn binding(object: &Value, old: Option<&Value>, roles: &[&str], namespaced: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    errors.extend(one_of(object, "roleRef.apiGroup", GROUP));
    errors.extend(one_of(object, "roleRef.kind", roles));
    for (index, subject) in items(object, "/subjects").iter().enumerate() {
        let field = format!("subjects[{index}]");
        let within = |mut error: FieldError| {
            error.field = format!("{field}.{}", error.field);
            error
        };
        let (account, group): (_, &[_]) = match text(subject, "/kind") {
            "ServiceAccount" => (true, &[""]),
            _ => (false, GROUP),
        };
        if text(subject, "/name").is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        }
        let kind = one_of(subject, "kind", &["ServiceAccount", "User", "Group"]);
        errors.extend(
            kind.or_else(|| one_of(subject, "apiGroup", group))
                .map(within),
        );
        if account && !namespaced && text(subject, "/namespace").is_empty() {
            errors.push(FieldError::required(format!("{field}.namespace"), ""));
        }
    }
    if text(object, "/roleRef/name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    let role = &object["roleRef"];
    if old.is_some_and(|old| old["roleRef"] != *role) {
        // The real server prints the Go struct.
        let formatted = format!(
            r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#,
            role["apiGroup"], role["kind"], role["name"]
        );
        errors.push(FieldError::invalid_formatted(
            "roleRef",
            &formatted,
            "field is immutable",
        ));
    }
    errors
}

/// Returns the names of the subjects of a kind.
fn subject_names(object: &Value, kind: &str) -> Value {
    let subjects = items(object, "/subjects")
        .iter()
        .filter(|subject| subject["kind"] == kind);
    let subjects: Vec<_> = subjects
        .map(|subject| match text(subject, "/namespace") {
            namespace if kind == "ServiceAccount" => {
                format!("{namespace}/{}", text(subject, "/name"))
            }
            _ => text(subject, "/name").to_owned(),
        })
        .collect();
    subjects.join(", ").into()
}

pub(super) fn bound_users(object: &Value, _: &Clock) -> Value {
    subject_names(object, "User")
}

pub(super) fn bound_groups(object: &Value, _: &Clock) -> Value {
    subject_names(object, "Group")
}

pub(super) fn bound_accounts(object: &Value, _: &Clock) -> Value {
    subject_names(object, "ServiceAccount")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: FieldErrors) -> Vec<String> {
        errors.into_iter().map(|it| it.field).collect()
    }

    #[test]
    fn a_rule_has_verbs_groups_and_resources() {
        let rules =
            json!({"rules": [{"verbs": ["get"]}, {"apiGroups": [""], "resources": ["pods"]}]});
        assert_eq!(
            fields(role(&rules, None)),
            ["rules[0].apiGroups", "rules[0].resources", "rules[1].verbs"]
        );
    }

    #[test]
    fn only_cluster_roles_have_non_resource_urls() {
        let rules = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]});
        assert_eq!(fields(role(&rules, None)), ["rules[0].nonResourceURLs"]);
        assert!(cluster_role(&rules, None).is_empty());
    }

    #[test]
    fn the_role_of_a_binding_is_immutable() {
        let binding = |name: &str| {
            json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": "a"}],
            })
        };
        assert!(role_binding(&binding("a"), Some(&binding("a"))).is_empty());
        assert_eq!(
            fields(role_binding(&binding("b"), Some(&binding("a")))),
            ["roleRef"]
        );
        // A cluster role binding requires the namespace of a service account.
        assert_eq!(
            fields(cluster_role_binding(&binding("a"), None)),
            ["subjects[0].namespace"]
        );
    }

    #[test]
    fn a_binding_has_a_role_and_valid_subjects() {
        let binding =
            json!({"roleRef": {"kind": "Pod"}, "subjects": [{"kind": "Robot", "name": "r"}]});
        let wrong = [
            "roleRef.apiGroup",
            "roleRef.kind",
            "subjects[0].kind",
            "roleRef.name",
        ];
        assert_eq!(fields(role_binding(&binding, None)), wrong);
    }
}
