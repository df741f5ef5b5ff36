//! Validation of storage, scheduling, quota and network kinds.

use super::cells::{items, text};
use super::services::INVALID_ADDRESS;
use super::validate::{at, label_selector, one_of, port_number};
use crate::schema::quantity::{self, Quantity};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Highest value of a priority class that users create.
const MAX_USER_PRIORITY: i64 = 1_000_000_000;

/// Rejects changes of fields, without the new value in the error.
fn immutable_fields(object: &Value, old: Option<&Value>, fields: &[&str]) -> FieldErrors {
    let Some(old) = old else {
        return FieldErrors::new();
    };
    let changed = fields
        .iter()
        .filter(|field| object[**field] != old[**field]);
    changed
        .map(|field| FieldError::invalid(*field, &Value::Null, "field is immutable"))
        .collect()
}

/// Prefixes the field of an error with the path of its parent.
fn within(path: &str, error: Option<FieldError>) -> Option<FieldError> {
    error.map(|mut error| {
        error.field = format!("{path}.{}", error.field);
        error
    })
}

pub(super) fn priority_class(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let name = text(object, "/metadata/name");
    let value = object["value"].as_i64().unwrap_or_default();
    if let Some(old) = old {
        if object["value"] != old["value"] {
            errors.push(FieldError::forbidden(
                "value",
                "may not be changed in an update.",
            ));
        }
        return errors;
    }
    if name.starts_with("system-") {
        let why = format!(
            "priority class names with 'system-' prefix are reserved for system use only. \
             error: {name} is not a known system priority class"
        );
        errors.push(FieldError::forbidden("metadata.name", why));
    } else if value > MAX_USER_PRIORITY {
        let why =
            format!("maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}");
        errors.push(FieldError::forbidden("value", why));
    }
    errors.extend(one_of(
        object,
        "preemptionPolicy",
        &["PreemptLowerPriority", "Never"],
    ));
    errors
}

pub(super) fn storage_class(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if text(object, "/provisioner").is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    }
    errors.extend(immutable_fields(
        object,
        old,
        &[
            "parameters",
            "provisioner",
            "reclaimPolicy",
            "volumeBindingMode",
        ],
    ));
    errors
}

const MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(super) fn volume_claim(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let modes = items(object, "/spec/accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required(
            "spec.accessModes",
            "at least 1 access mode is required",
        ));
    }
    for mode in modes
        .iter()
        .filter(|mode| mode.as_str().is_none_or(|mode| !MODES.contains(&mode)))
    {
        errors.push(FieldError::not_supported("spec.accessModes", mode, MODES));
    }
    let storage = at(object, "spec.resources.requests.storage");
    match quantity::from_value(storage) {
        None => errors.push(FieldError::required("spec.resources[storage]", "")),
        Some(amount) if amount.is_zero() || amount.is_negative() => {
            errors.push(FieldError::invalid(
                "spec.resources[storage]",
                storage,
                "must be greater than zero",
            ));
        }
        Some(_) => {}
    }
    errors.extend(one_of(object, "spec.volumeMode", &["Block", "Filesystem"]));
    let immutable_spec = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| field != "volumeName" || claim["status"]["phase"] == "Bound");
            if claim["status"]["phase"] == "Bound" {
                spec.remove("resources");
                spec.remove("volumeAttributesClassName");
            }
        }
        spec
    };
    if old.is_some_and(|old| immutable_spec(old) != immutable_spec(object)) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", why));
    }
    errors
}

pub(super) fn volume(object: &Value, _: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if items(object, "/spec/accessModes").is_empty() {
        errors.push(FieldError::required("spec.accessModes", ""));
    }
    let capacity = at(object, "spec.capacity");
    if capacity.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    if capacity.get("storage").is_none() {
        errors.push(FieldError::not_supported(
            "spec.capacity",
            capacity,
            ["storage"],
        ));
    }
    let common_fields = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ];
    let fields = object["spec"].as_object().into_iter().flatten();
    if fields
        .filter(|(field, _)| !common_fields.contains(&field.as_str()))
        .count()
        == 0
    {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    errors
}

/// Validates a quota: amounts are not negative, and counts are whole numbers.
pub(super) fn quota(object: &Value, _: Option<&Value>) -> FieldErrors {
    let counted = [
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
    ];
    let counted_parts = [
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    let mut errors = FieldErrors::new();
    for (name, value) in at(object, "spec.hard").as_object().into_iter().flatten() {
        let Some(amount) = quantity::from_value(value) else {
            continue;
        };
        let field = format!("spec.hard[{name}]");
        if amount.is_negative() {
            errors.push(FieldError::invalid(
                &*field,
                value,
                "must be greater than or equal to 0",
            ));
        }
        let is_count = counted.contains(&name.as_str())
            || counted_parts.contains(&name.as_str())
            || name.starts_with("count/");
        if is_count && !amount.is_whole() {
            errors.push(FieldError::invalid(field, value, "must be an integer"));
        }
    }
    errors
}

/// Checks that minimums do not exceed maximums and defaults.
pub(super) fn limit_range(object: &Value, _: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (index, item) in items(object, "/spec/limits").iter().enumerate() {
        for (name, value) in item["min"].as_object().into_iter().flatten() {
            let amount = |list: &str| -> Option<Quantity> {
                quantity::from_value(item.get(list)?.get(name)?)
            };
            let Some(min) = quantity::from_value(value) else {
                continue;
            };
            let field = |list: &str| format!("spec.limits[{index}].{list}[{name}]");
            let quantity_value = |amount: Quantity| json!(amount.to_string());
            if let Some(max) = amount("max").filter(|max| min > *max) {
                let why = format!("min value {min} is greater than max value {max}");
                errors.push(FieldError::invalid(field("min"), &quantity_value(min), why));
            }
            if let Some(request) = amount("defaultRequest").filter(|request| min > *request) {
                let why =
                    format!("min value {min} is greater than default request value {request}");
                errors.push(FieldError::invalid(
                    field("defaultRequest"),
                    &quantity_value(request),
                    why,
                ));
            }
            if let Some(default) = amount("default").filter(|default| min > *default) {
                let why = format!("min value {min} is greater than default value {default}");
                errors.push(FieldError::invalid(
                    field("default"),
                    &quantity_value(min),
                    why,
                ));
            }
        }
    }
    errors
}

pub(super) fn webhooks(object: &Value, _: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (index, hook) in items(object, "/webhooks").iter().enumerate() {
        let field = |name: &str| format!("webhooks[{index}].{name}");
        let effects = ["None", "NoneOnDryRun"];
        if text(hook, "/sideEffects").is_empty() {
            let why = format!("must specify one of {}", effects.join(", "));
            errors.push(FieldError::required(field("sideEffects"), why));
        } else {
            errors.extend(within(
                &format!("webhooks[{index}]"),
                one_of(hook, "sideEffects", &effects),
            ));
        }
        let timeout = &hook["timeoutSeconds"];
        if timeout
            .as_i64()
            .is_some_and(|seconds| !(1..=30).contains(&seconds))
        {
            let why = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(field("timeoutSeconds"), timeout, why));
        }
        let config = &hook["clientConfig"];
        if config["url"].is_null() == config["service"].is_null() {
            let why = "exactly one of url or service is required";
            errors.push(FieldError::required(field("clientConfig"), why));
        }
        if items(hook, "/admissionReviewVersions").is_empty() {
            let why = "must specify one of v1, v1beta1";
            errors.push(FieldError::required(field("admissionReviewVersions"), why));
        }
    }
    errors
}

pub(super) fn endpoints(object: &Value, _: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (index, subset) in items(object, "/subsets").iter().enumerate() {
        for (position, address) in items(subset, "/addresses").iter().enumerate() {
            let ip = &address["ip"];
            let field = format!("subsets[{index}].addresses[{position}].ip");
            if ip.as_str().is_none_or(|ip| ip.parse::<IpAddr>().is_err()) {
                errors.push(FieldError::invalid(&*field, ip, INVALID_ADDRESS));
                errors.push(FieldError::invalid(field, ip, "must be a valid IP address"));
            }
        }
        for (position, port) in items(subset, "/ports").iter().enumerate() {
            errors.extend(port_number(
                &port["port"],
                &format!("subsets[{index}].ports[{position}].port"),
            ));
        }
    }
    errors
}

pub(super) fn endpoint_slice(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = immutable_fields(object, old, &["addressType"]);
    if old.is_none() {
        errors.extend(one_of(object, "addressType", &["FQDN", "IPv4", "IPv6"]));
    }
    for (index, endpoint) in items(object, "/endpoints").iter().enumerate() {
        if items(endpoint, "/addresses").is_empty() {
            errors.push(FieldError::required(
                format!("endpoints[{index}].addresses"),
                "",
            ));
        }
    }
    errors
}

pub(super) fn ingress(object: &Value, _: Option<&Value>) -> FieldErrors {
    let rules = items(object, "/spec/rules");
    if rules.is_empty() && at(object, "spec.defaultBackend").is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        return FieldError::invalid("spec", &Value::Null, why).into();
    }
    let mut errors = FieldErrors::new();
    for (index, rule) in rules.iter().enumerate() {
        for (position, path) in items(rule, "/http/paths").iter().enumerate() {
            errors.extend(ingress_path(
                path,
                &format!("spec.rules[{index}].http.paths[{position}]"),
            ));
        }
    }
    errors
}

fn ingress_path(path: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    match text(path, "/pathType") {
        "" => errors.push(FieldError::required(
            format!("{field}.pathType"),
            "pathType must be specified",
        )),
        "Exact" | "Prefix" if !text(path, "/path").starts_with('/') => {
            let value = json!(text(path, "/path"));
            errors.push(FieldError::invalid(
                format!("{field}.path"),
                &value,
                "must be an absolute path",
            ));
        }
        _ => {
            let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.extend(within(field, one_of(path, "pathType", &kinds)));
        }
    }
    let service = &path["backend"]["service"];
    if !service.is_null() {
        if text(service, "/name").is_empty() {
            errors.push(FieldError::required(
                format!("{field}.backend.service.name"),
                "",
            ));
        }
        let numbered = service["port"]["number"].as_i64().unwrap_or_default() != 0;
        if !numbered && text(service, "/port/name").is_empty() {
            errors.push(FieldError::required(
                format!("{field}.backend"),
                "port name or number is required",
            ));
        }
    }
    errors
}

pub(super) fn network_policy(object: &Value, _: Option<&Value>) -> FieldErrors {
    let mut errors = label_selector(at(object, "spec.podSelector"), "spec.podSelector");
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(object, &format!("/spec/{rules}")).iter().enumerate() {
            for (position, peer) in items(rule, &format!("/{peers}")).iter().enumerate() {
                if peer.as_object().is_none_or(serde_json::Map::is_empty) {
                    let field = format!("spec.{rules}[{index}].{peers}[{position}]");
                    errors.push(FieldError::required(field, "must specify a peer"));
                }
            }
        }
    }
    for (index, kind) in items(object, "/spec/policyTypes").iter().enumerate() {
        if kind != "Ingress" && kind != "Egress" {
            let field = format!("spec.policyTypes[{index}]");
            errors.push(FieldError::not_supported(
                field,
                kind,
                ["Ingress", "Egress"],
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(errors: FieldErrors) -> Vec<String> {
        errors.into_iter().map(|it| it.field).collect()
    }

    #[test]
    fn a_claim_requests_storage_and_is_immutable() {
        let claim = |size: &str| {
            let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "resources": {"requests": {"storage": size}}});
            json!({"spec": spec})
        };
        assert!(volume_claim(&claim("1Gi"), Some(&claim("1Gi"))).is_empty());
        assert_eq!(
            fields(volume_claim(&claim("0"), None)),
            ["spec.resources[storage]"]
        );
        assert_eq!(
            fields(volume_claim(&claim("2Gi"), Some(&claim("1Gi")))),
            ["spec"]
        );
    }

    #[test]
    fn counts_are_whole_numbers() {
        let hard =
            json!({"spec": {"hard": {"pods": "1500m", "requests.cpu": "1500m", "secrets": "-1"}}});
        assert_eq!(
            fields(quota(&hard, None)),
            ["spec.hard[pods]", "spec.hard[secrets]"]
        );
    }

    #[test]
    fn an_ingress_path_has_a_type_and_a_backend_port() {
        let path = json!({"pathType": "Prefix", "path": "/", "backend": {"service": {"name": "s", "port": {"number": 1}}}});
        assert!(ingress_path(&path, "p").is_empty());
        let path = json!({"backend": {"service": {"name": "s"}}});
        assert_eq!(
            fields(ingress_path(&path, "p")),
            ["p.pathType", "p.backend"]
        );
    }
}
