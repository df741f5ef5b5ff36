//! Services: fields that the server sets, allocation of addresses and ports, and validation.
//!
//! Addresses and node ports come from fixed ranges. The stored services are the only record of
//! those in use. The caller of [`allocate`] holds
//! [`Core::allocation`](crate::server::Core::allocation) until the service is stored.

use super::cells::{items, text};
use super::prepare::{list, set, set_default};
use super::validate::{at, one_of, port_number};
use crate::meta::names;
use crate::status::{FieldError, FieldErrors};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;

fn spec(service: &mut Value) -> Option<&mut Map<String, Value>> {
    service.get_mut("spec")?.as_object_mut()
}

fn kind(service: &Value) -> &str {
    text(service, "/spec/type")
}

fn has_node_ports(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

pub(super) fn prepare(service: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        keep_allocated(service, old);
        drop_fields_of_previous_type(service, old);
    }
    let address = at(service, "spec.clusterIP").clone();
    if items(service, "/spec/clusterIPs").is_empty()
        && address.as_str().is_some_and(|it| !it.is_empty())
    {
        set(service, "spec.clusterIPs", json!([address]));
    }
    match kind(service) {
        "ExternalName" => drop(spec(service).map(|spec| spec.remove("internalTrafficPolicy"))),
        "ClusterIP" => set_default(service, "spec.internalTrafficPolicy", "Cluster"),
        "NodePort" => {
            set_default(service, "spec.internalTrafficPolicy", "Cluster");
            set_default(service, "spec.externalTrafficPolicy", "Cluster");
        }
        "LoadBalancer" => {
            set_default(service, "spec.internalTrafficPolicy", "Cluster");
            set_default(service, "spec.externalTrafficPolicy", "Cluster");
            set_default(service, "spec.allocateLoadBalancerNodePorts", true);
        }
        _ => {}
    }
    if kind(service) != "LoadBalancer" && old.is_some() {
        set(service, "status.loadBalancer", json!({}));
    }
}

/// Keeps allocated addresses and ports if they are still needed and no others are requested.
fn keep_allocated(service: &mut Value, old: &Value) {
    if kind(service) != "ExternalName" && kind(old) != "ExternalName" {
        let none = text(service, "/spec/clusterIP").is_empty();
        if none && items(service, "/spec/clusterIPs").is_empty() {
            for field in ["spec.clusterIP", "spec.clusterIPs"] {
                set(service, field, at(old, field).clone());
            }
        }
    }
    if has_node_ports(service) && has_node_ports(old) {
        let mut allocated: HashMap<_, &Value> = HashMap::new();
        for port in items(old, "/spec/ports") {
            allocated
                .entry(protocol_and_number(port))
                .or_insert(&port["nodePort"]);
        }
        for port in list(service, "/spec/ports").filter(|port| port["nodePort"].is_null()) {
            if let Some(number) = allocated
                .get(&protocol_and_number(port))
                .filter(|number| !number.is_null())
            {
                port["nodePort"] = (*number).clone();
            }
        }
    }
}

/// Returns the two fields that are unique among the ports of a service.
fn protocol_and_number(port: &Value) -> (String, Option<i64>) {
    (text(port, "/protocol").to_owned(), port["port"].as_i64())
}

/// Removes fields that only the previous type needed. Fields that were also changed stay, and
/// validation rejects them.
fn drop_fields_of_previous_type(service: &mut Value, old: &Value) {
    let mut obsolete: Vec<&str> = Vec::new();
    if kind(old) != "ExternalName" && kind(service) == "ExternalName" {
        obsolete.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if has_node_ports(old) && !has_node_ports(service) {
        obsolete.push("externalTrafficPolicy");
        let allocated: HashSet<_> = items(old, "/spec/ports")
            .iter()
            .map(|port| port["nodePort"].as_u64())
            .collect();
        for port in list(service, "/spec/ports") {
            let known = allocated.contains(&port["nodePort"].as_u64());
            if let (true, Some(port)) = (known, port.as_object_mut()) {
                port.remove("nodePort");
            }
        }
    }
    if kind(old) == "LoadBalancer" && kind(service) != "LoadBalancer" {
        obsolete.extend([
            "allocateLoadBalancerNodePorts",
            "loadBalancerClass",
            "healthCheckNodePort",
        ]);
    }
    let before = &old["spec"];
    if let Some(spec) = spec(service) {
        spec.retain(|field, value| !obsolete.contains(&field.as_str()) || before[field] != *value);
    }
}

/// Error of allocating addresses or ports.
#[derive(Debug)]
pub(super) enum AllocationError {
    Invalid(FieldError),
    NodePortsExhausted,
}

impl From<FieldError> for AllocationError {
    fn from(error: FieldError) -> Self {
        Self::Invalid(error)
    }
}

/// Allocates addresses and ports that none of the `others` has. `draw` returns a number below its
/// argument.
pub(super) fn allocate(
    service: &mut Value,
    others: &[Value],
    draw: &mut dyn FnMut(usize) -> usize,
) -> Result<(), AllocationError> {
    if kind(service) == "ExternalName" || !service["spec"].is_object() {
        return Ok(());
    }
    let headless = text(service, "/spec/clusterIP") == "None";
    let dual_stack = headless
        && at(service, "spec.selector")
            .as_object()
            .is_none_or(Map::is_empty);
    set_default(
        service,
        "spec.ipFamilyPolicy",
        if dual_stack {
            "RequireDualStack"
        } else {
            "SingleStack"
        },
    );
    let families = if dual_stack {
        json!(["IPv4", "IPv6"])
    } else {
        json!(["IPv4"])
    };
    let requested: Vec<_> = items(service, "/spec/clusterIPs").to_vec();
    for (index, address) in requested
        .iter()
        .enumerate()
        .filter(|(_, address)| *address != "None")
    {
        if address
            .as_str()
            .is_none_or(|address| address.parse::<IpAddr>().is_err())
        {
            return Err(FieldError::invalid(
                format!("spec.clusterIPs[{index}]"),
                address,
                INVALID_ADDRESS,
            )
            .into());
        }
    }
    set_default(service, "spec.ipFamilies", families);
    if !headless {
        allocate_address(service, &requested, others, draw)?;
    }
    let allocates_node_ports =
        kind(service) == "NodePort" || at(service, "spec.allocateLoadBalancerNodePorts") == true;
    if has_node_ports(service) {
        allocate_node_ports(service, others, allocates_node_ports, draw)
    } else {
        Ok(())
    }
}

pub(super) const INVALID_ADDRESS: &str =
    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn allocate_address(
    service: &mut Value,
    requested: &[Value],
    others: &[Value],
    draw: &mut dyn FnMut(usize) -> usize,
) -> Result<(), AllocationError> {
    // The first address belongs to the API server.
    let range = (1..=254).map(|last| Ipv4Addr::new(10, 0, 0, last));
    let in_use = |address: &str| {
        others
            .iter()
            .any(|other| text(other, "/spec/clusterIP") == address)
    };
    if let [requested_value, ..] = requested {
        let requested_value = requested_value.as_str().unwrap_or_default();
        let why = match requested_value.parse::<Ipv4Addr>() {
            Ok(address) if !range.clone().any(|it| it == address) => {
                "the provided network does not match the current range"
            }
            _ if in_use(requested_value) => "provided IP is already allocated",
            _ => return Ok(()),
        };
        let why = format!("failed to allocate IP {requested_value}: {why}");
        return Err(FieldError::invalid("spec.clusterIPs", &json!(requested), why).into());
    }
    let free: Vec<_> = range
        .skip(1)
        .map(|it| it.to_string())
        .filter(|it| !in_use(it))
        .collect();
    if free.is_empty() {
        let why = "failed to allocate a serviceIP: range is full";
        return Err(FieldError::invalid("spec.clusterIPs", &json!(requested), why).into());
    }
    let allocated = &free[draw(free.len())];
    set(service, "spec.clusterIP", allocated.as_str());
    set(service, "spec.clusterIPs", json!([allocated]));
    Ok(())
}

fn allocate_node_ports(
    service: &mut Value,
    others: &[Value],
    allocates_node_ports: bool,
    draw: &mut dyn FnMut(usize) -> usize,
) -> Result<(), AllocationError> {
    let numbers = |service: &Value| -> Vec<u64> {
        items(service, "/spec/ports")
            .iter()
            .filter_map(|port| port["nodePort"].as_u64())
            .collect()
    };
    let mut in_use: HashSet<u64> = others.iter().flat_map(numbers).collect();
    for (index, number) in items(service, "/spec/ports")
        .iter()
        .enumerate()
        .map(|(at, port)| (at, &port["nodePort"]))
    {
        let Some(requested_value) = number.as_u64() else {
            continue;
        };
        let why = if !NODE_PORTS.contains(&u16::try_from(requested_value).unwrap_or_default()) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if in_use.contains(&requested_value) {
            "provided port is already allocated"
        } else {
            continue;
        };
        return Err(
            FieldError::invalid(format!("spec.ports[{index}].nodePort"), number, why).into(),
        );
    }
    in_use.extend(numbers(service));
    let mut free: Vec<_> = NODE_PORTS
        .map(u64::from)
        .filter(|port| !in_use.contains(port))
        .collect();
    for port in list(service, "/spec/ports")
        .filter(|port| allocates_node_ports && port["nodePort"].is_null())
    {
        if free.is_empty() {
            return Err(AllocationError::NodePortsExhausted);
        }
        port["nodePort"] = free.remove(draw(free.len())).into();
    }
    Ok(())
}

pub(super) fn validate(service: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let headless = text(service, "/spec/clusterIP") == "None";
    let ports = items(service, "/spec/ports");
    if ports.is_empty() && kind(service) != "ExternalName" && !headless {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind(service) == "ExternalName" {
        let name = text(service, "/spec/externalName");
        if name.is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        } else {
            let problems = names::subdomain(name.trim_end_matches('.'));
            errors.extend(
                problems
                    .iter()
                    .map(|why| FieldError::invalid("spec.externalName", &json!(name), why)),
            );
        }
    }
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        errors.extend(validate_port(
            port,
            &format!("spec.ports[{index}]"),
            ports.len() > 1,
            &mut seen,
        ));
    }
    for key in at(service, "spec.selector")
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
    {
        errors.extend(
            names::qualified(key)
                .iter()
                .map(|why| FieldError::invalid("spec.selector", &json!(key), why)),
        );
    }
    errors.extend(one_of(
        service,
        "spec.sessionAffinity",
        &["ClientIP", "None"],
    ));
    errors.extend(one_of(
        service,
        "spec.type",
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    ));
    if kind(service) == "ClusterIP" {
        for (index, _) in ports
            .iter()
            .enumerate()
            .filter(|(_, port)| !port["nodePort"].is_null())
        {
            let why = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(
                format!("spec.ports[{index}].nodePort"),
                why,
            ));
        }
    }
    errors.extend(duplicate_ports(ports));
    if let Some(old) = old {
        let addresses = |service| items(service, "/spec/clusterIPs");
        let new = addresses(service);
        let before = addresses(old);
        let both = kind(service) != "ExternalName" && kind(old) != "ExternalName";
        if both && !before.is_empty() && new.first() != before.first() {
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                &json!(new),
                "may not change once set",
            ));
        }
    }
    errors
}

fn validate_port<'a>(
    port: &'a Value,
    field: &str,
    named: bool,
    seen: &mut HashSet<&'a str>,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let name = text(port, "/name");
    if name.is_empty() {
        if named {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        }
    } else {
        let at = format!("{field}.name");
        let problems = names::label(name);
        errors.extend(
            problems
                .iter()
                .map(|why| FieldError::invalid(&*at, &json!(name), why)),
        );
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(at, &json!(name)));
        }
    }
    errors.extend(port_number(&port["port"], &format!("{field}.port")));
    errors.extend(
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"]).map(|mut error| {
            error.field = format!("{field}.protocol");
            error
        }),
    );
    errors.extend(target_port(
        &port["targetPort"],
        &format!("{field}.targetPort"),
    ));
    errors
}

fn target_port(target: &Value, field: &str) -> FieldErrors {
    match target.as_str() {
        Some(name) => names::port(name)
            .into_iter()
            .map(|why| FieldError::invalid(field, target, why))
            .collect(),
        None => port_number(target, field).into_iter().collect(),
    }
}

/// Rejects two ports with the same number and protocol. The real server prints a Go struct of only
/// these fields.
fn duplicate_ports(ports: &[Value]) -> FieldErrors {
    let mut seen = HashSet::new();
    let mut errors = FieldErrors::new();
    for (index, port) in ports.iter().enumerate() {
        if !seen.insert(protocol_and_number(port)) {
            let protocol = &port["protocol"];
            let number = &port["port"];
            let text = format!(
                r#"{{"Name":"","Protocol":{protocol},"AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            errors.push(FieldError::duplicate_formatted(
                format!("spec.ports[{index}]"),
                &text,
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare_and_allocate(
        mut service: Value,
        old: Option<&Value>,
        others: &[Value],
    ) -> Result<Value, AllocationError> {
        prepare(&mut service, old);
        allocate(&mut service, others, &mut |_| 0)?;
        Ok(service["spec"].take())
    }

    #[test]
    fn a_service_gets_an_unused_address() {
        let service = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
        let first = prepare_and_allocate(service.clone(), None, &[]).unwrap();
        assert_eq!(
            (&first["clusterIP"], &first["clusterIPs"]),
            (&json!("10.0.0.2"), &json!(["10.0.0.2"]))
        );
        let second = prepare_and_allocate(service, None, &[json!({"spec": first})]).unwrap();
        assert_eq!(second["clusterIP"], "10.0.0.3");
        let requesting = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.3"}});
        let Err(AllocationError::Invalid(error)) =
            prepare_and_allocate(requesting, None, &[json!({"spec": second})])
        else {
            panic!("the address is in use")
        };
        assert!(
            error
                .body
                .ends_with("failed to allocate IP 10.0.0.3: provided IP is already allocated"),
            "{error}"
        );
    }

    #[test]
    fn a_headless_service_gets_no_address() {
        let spec = json!({"type": "ClusterIP", "clusterIP": "None", "selector": {"a": "b"}});
        let prepare_and_allocate = prepare_and_allocate(json!({"spec": spec}), None, &[]).unwrap();
        assert_eq!(
            (
                &prepare_and_allocate["clusterIPs"],
                &prepare_and_allocate["ipFamilyPolicy"]
            ),
            (&json!(["None"]), &json!("SingleStack"))
        );
    }

    #[test]
    fn node_ports_depend_on_the_type() {
        let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{"port": 80, "protocol": "TCP"}]}});
        let with = prepare_and_allocate(service("NodePort"), None, &[]).unwrap();
        assert_eq!(with["ports"][0]["nodePort"], 30000);
        let old = json!({"spec": with});
        let kept = prepare_and_allocate(service("NodePort"), Some(&old), &[]).unwrap();
        assert_eq!(kept["ports"], old["spec"]["ports"]);
        let mut plain = old.clone();
        plain["spec"]["type"] = json!("ClusterIP");
        let without = prepare_and_allocate(plain, Some(&old), &[]).unwrap();
        assert!(
            without["ports"][0].get("nodePort").is_none()
                && without.get("externalTrafficPolicy").is_none()
        );
        assert_eq!(without["clusterIP"], old["spec"]["clusterIP"]);
    }

    #[test]
    fn a_service_requires_ports_unless_it_is_headless() {
        let invalid_fields = |spec: Value| -> Vec<String> {
            validate(&json!({"spec": spec}), None)
                .iter()
                .map(|error| error.field.clone())
                .collect()
        };
        assert_eq!(
            invalid_fields(json!({"type": "ClusterIP", "sessionAffinity": "None"})),
            ["spec.ports"]
        );
        assert!(
            invalid_fields(
                json!({"type": "ClusterIP", "sessionAffinity": "None", "clusterIP": "None"})
            )
            .is_empty()
        );
        let port = |number: u32| json!({"port": number, "protocol": "TCP", "targetPort": 1});
        let ports = json!([port(0), port(1)]);
        let problems = [
            "spec.ports[0].name",
            "spec.ports[0].port",
            "spec.ports[1].name",
        ];
        assert_eq!(
            invalid_fields(json!({"type": "NodePort", "sessionAffinity": "None", "ports": ports})),
            problems
        );
    }
}
