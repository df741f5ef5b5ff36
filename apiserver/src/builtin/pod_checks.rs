//! Validation of pod specs, in pods and in pod templates.

use super::cells::{items, text};
use super::validate::{at, one_of, port_number};
use crate::meta::names;
use crate::schema::quantity::{self, Quantity};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};
use std::collections::HashSet;

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Validates the pod spec at a dotted path of an object.
pub(super) fn spec(object: &Value, path: &str) -> FieldErrors {
    let spec = at(object, path);
    let volumes = items(spec, "/volumes");
    let mut errors = unique_names(volumes, &format!("{path}.volumes"), |_| Vec::new());
    let volumes: HashSet<_> = volumes.iter().map(|volume| text(volume, "/name")).collect();
    if items(spec, "/containers").is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    for list in ["containers", "initContainers"] {
        let containers = items(spec, &format!("/{list}"));
        let field = format!("{path}.{list}");
        let all = containers.iter().enumerate();
        errors.extend(unique_names(containers, &field, names::label));
        errors.extend(
            all.flat_map(|(index, it)| container(it, &format!("{field}[{index}]"), &volumes)),
        );
    }
    errors.extend(within(
        path,
        one_of(spec, "restartPolicy", RESTART_POLICIES),
    ));
    match text(spec, "/dnsPolicy") {
        "None" if items(spec, "/dnsConfig/nameservers").is_empty() => {
            let why = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(FieldError::required(format!("{path}.dnsConfig"), why));
        }
        _ => errors.extend(within(path, one_of(spec, "dnsPolicy", DNS_POLICIES))),
    }
    for key in spec["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
    {
        let problems = names::qualified(key);
        let field = format!("{path}.nodeSelector");
        errors.extend(
            problems
                .iter()
                .map(|why| FieldError::invalid(&*field, &json!(key), why)),
        );
    }
    let deadline = &spec["activeDeadlineSeconds"];
    if deadline
        .as_i64()
        .is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds))
    {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(
            format!("{path}.activeDeadlineSeconds"),
            deadline,
            why,
        ));
    }
    errors
}

/// Checks that projected tokens have a service account. Applies to pods, not to templates.
pub(super) fn tokens(pod: &Value) -> FieldErrors {
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return FieldErrors::new();
    }
    let mut errors = FieldErrors::new();
    for (volume, it) in items(pod, "/spec/volumes").iter().enumerate() {
        let sources = items(it, "/projected/sources").iter().enumerate();
        for (source, _) in sources.filter(|(_, source)| !source["serviceAccountToken"].is_null()) {
            let field =
                format!("spec.volumes[{volume}].projected.sources[{source}].serviceAccountToken");
            errors.push(FieldError::forbidden(
                field,
                "must not be specified when serviceAccountName is not set",
            ));
        }
    }
    errors
}

fn within(path: &str, error: Option<FieldError>) -> Option<FieldError> {
    error.map(|mut error| {
        error.field = format!("{path}.{}", error.field);
        error
    })
}

/// Checks that every item has a unique name, which `rule` validates.
fn unique_names(list: &[Value], path: &str, rule: fn(&str) -> Vec<String>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut seen = HashSet::new();
    for (index, item) in list.iter().enumerate() {
        let name = &item["name"];
        let field = format!("{path}[{index}].name");
        match name.as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(field, "")),
            text => {
                errors.extend(
                    rule(text)
                        .iter()
                        .map(|why| FieldError::invalid(&*field, name, why)),
                );
                if !seen.insert(text) {
                    errors.push(FieldError::duplicate(field, name));
                }
            }
        }
    }
    errors
}

/// Validates a container except for its name.
fn container(container: &Value, path: &str, volumes: &HashSet<&str>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let image = text(container, "/image");
    if image.is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(
            format!("{path}.image"),
            &json!(image),
            why,
        ));
    }
    for (index, port) in items(container, "/ports").iter().enumerate() {
        let field = format!("{path}.ports[{index}]");
        match port["containerPort"].as_i64().unwrap_or_default() {
            0 => errors.push(FieldError::required(format!("{field}.containerPort"), "")),
            _ => errors.extend(port_number(
                &port["containerPort"],
                &format!("{field}.containerPort"),
            )),
        }
        errors.extend(within(&field, one_of(port, "protocol", PROTOCOLS)));
    }
    for (index, _) in items(container, "/env")
        .iter()
        .enumerate()
        .filter(|(_, it)| text(it, "/name").is_empty())
    {
        errors.push(FieldError::required(
            format!("{path}.env[{index}].name"),
            "",
        ));
    }
    for (index, mount) in items(container, "/volumeMounts").iter().enumerate() {
        let field = format!("{path}.volumeMounts[{index}]");
        match text(mount, "/name") {
            "" => errors.push(FieldError::required(format!("{field}.name"), "")),
            name if !volumes.contains(name) => {
                errors.push(FieldError::not_found(format!("{field}.name"), &json!(name)));
            }
            _ => {}
        }
        if text(mount, "/mountPath").is_empty() {
            errors.push(FieldError::required(format!("{field}.mountPath"), ""));
        }
    }
    errors.extend(within(
        path,
        one_of(container, "imagePullPolicy", PULL_POLICIES),
    ));
    errors.extend(resources(
        &container["resources"],
        &format!("{path}.resources"),
    ));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        errors.extend(self::probe(&container[probe], &format!("{path}.{probe}")));
    }
    errors
}

fn resources(resources: &Value, path: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let amounts = |list: &str| resources[list].as_object().into_iter().flatten();
    let amount = |list: &str, name: &str| -> Option<Quantity> {
        quantity::from_value(resources.get(list)?.get(name)?)
    };
    for list in ["limits", "requests"] {
        for (name, value) in amounts(list) {
            if quantity::from_value(value).is_some_and(Quantity::is_negative) {
                let why = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(
                    format!("{path}.{list}[{name}]"),
                    value,
                    why,
                ));
            }
        }
    }
    for (name, value) in amounts("requests") {
        if let (Some(request), Some(limit)) = (quantity::from_value(value), amount("limits", name))
            && request > limit
        {
            let why = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(format!("{path}.requests"), value, why));
        }
    }
    errors
}

fn probe(probe: &Value, path: &str) -> FieldErrors {
    if probe.is_null() {
        return FieldErrors::new();
    }
    let mut errors = FieldErrors::new();
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
    if handlers.iter().all(|handler| probe[handler].is_null()) {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
    for handler in ["httpGet", "tcpSocket"]
        .iter()
        .filter(|handler| !probe[**handler].is_null())
    {
        let port = &probe[*handler]["port"];
        let field = format!("{path}.{handler}.port");
        match port.as_str() {
            Some(name) => errors.extend(
                names::port(name)
                    .iter()
                    .map(|why| FieldError::invalid(&*field, port, why)),
            ),
            None => errors.extend(port_number(port, &field)),
        }
    }
    let counts = [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ];
    for field in counts
        .iter()
        .filter(|field| probe[**field].as_i64().is_some_and(|number| number < 0))
    {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(
            format!("{path}.{field}"),
            &probe[*field],
            why,
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(container: Value) -> Vec<String> {
        let mut pod = json!({"spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}});
        pod["spec"]["containers"] = json!([container]);
        spec(&pod, "spec").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn containers_have_names_and_images() {
        let good = json!({"name": "a", "image": "i", "imagePullPolicy": "Always"});
        assert!(messages(good).is_empty());
        let problems = [
            "spec.containers[0].name: Required value",
            "spec.containers[0].image: Required value",
        ];
        assert_eq!(messages(json!({"imagePullPolicy": "Always"})), problems);
    }

    #[test]
    fn requests_cannot_exceed_limits() {
        let resources = json!({"limits": {"memory": "1G"}, "requests": {"memory": "1Gi"}});
        let container =
            json!({"name": "a", "image": "i", "imagePullPolicy": "Never", "resources": resources});
        let problems = "spec.containers[0].resources.requests: Invalid value: \"1Gi\": \
                     must be less than or equal to memory limit of 1G";
        assert_eq!(messages(container), [problems]);
    }
}
