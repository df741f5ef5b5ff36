//! Cells of `kubectl get` that are computed from several fields.

use super::age;
use crate::clock::Clock;
use serde_json::Value;

pub(super) const NONE: &str = "<none>";

/// Cells of one field, with a value for a missing field.
macro_rules! fields {
    ($missing:expr => $($name:ident $pointer:literal),* $(,)?) => {$(
        pub(super) fn $name(object: &Value, _: &Clock) -> Value {
            object.pointer($pointer).cloned().unwrap_or_else(|| $missing.into())
        }
    )*};
}

/// Cells with the length of a list.
macro_rules! lengths {
    ($($name:ident $pointer:literal),* $(,)?) => {$(
        pub(super) fn $name(object: &Value, _: &Clock) -> Value {
            items(object, $pointer).len().into()
        }
    )*};
}

fields! { 0 =>
    daemons_available "/status/numberAvailable",
    daemons_current "/status/currentNumberScheduled",
    daemons_desired "/status/desiredNumberScheduled",
    daemons_ready "/status/numberReady",
    daemons_updated "/status/updatedNumberScheduled",
    disruptions_allowed "/status/disruptionsAllowed",
    replicas_available "/status/availableReplicas",
    replicas_current "/status/replicas",
    replicas_ready_count "/status/readyReplicas",
    replicas_updated "/status/updatedReplicas",
    scaled_replicas "/status/currentReplicas",
}
fields! { NONE =>
    cluster_ip "/spec/clusterIP",
    ingress_class "/spec/ingressClassName",
    pod_node "/spec/nodeName",
    pod_nominated_node "/status/nominatedNodeName",
    time_zone "/spec/timeZone",
}
fields! { "N/A" => max_unavailable "/spec/maxUnavailable", min_available "/spec/minAvailable" }
fields! { "<unset>" => attributes_class "/spec/volumeAttributesClassName", param_kind "/spec/paramKind/kind" }
fields! { "<unset>" => param_ref "/spec/paramRef/name" }
fields! { false => global_default "/globalDefault", suspended "/spec/suspend" }
lengths! {
    active_jobs "/status/active",
    drivers "/spec/drivers",
    validations "/spec/validations",
    webhooks "/webhooks",
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn entries(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn or_none(text: String) -> Value {
    if text.is_empty() {
        NONE.into()
    } else {
        text.into()
    }
}

fn join<S: Into<String>>(texts: impl IntoIterator<Item = S>) -> String {
    texts
        .into_iter()
        .map(Into::into)
        .collect::<Vec<String>>()
        .join(",")
}

fn texts(object: &Value, list: &str, pointer: &str) -> String {
    join(items(object, list).iter().map(|item| text(item, pointer)))
}

/// Formats labels as `a=1,b=2`.
fn labels(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    join(labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())))
}

/// Formats a label selector, or the plain labels of older kinds.
fn selector_text(selector: &Value) -> String {
    if selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none() {
        return labels(Some(selector));
    }
    let plain = labels(selector.get("matchLabels"));
    let expressions = items(selector, "/matchExpressions").iter().map(|it| {
        let key = text(it, "/key");
        let values = join(items(it, "/values").iter().filter_map(Value::as_str));
        match text(it, "/operator") {
            "Exists" => key.to_string(),
            "DoesNotExist" => format!("!{key}"),
            operator => format!("{key} {} ({values})", operator.to_lowercase()),
        }
    });
    join(
        std::iter::once(plain)
            .filter(|plain| !plain.is_empty())
            .chain(expressions),
    )
}

fn age_of(object: &Value, pointer: &str, clock: &Clock) -> String {
    age::age(object.pointer(pointer).unwrap_or(&Value::Null), clock.now())
}

pub(super) fn has_condition(object: &Value, kind: &str) -> bool {
    items(object, "/status/conditions")
        .iter()
        .any(|it| text(it, "/type") == kind && text(it, "/status") == "True")
}

pub(super) fn age(object: &Value, clock: &Clock) -> Value {
    age_of(object, "/metadata/creationTimestamp", clock).into()
}

pub(super) fn created_at(object: &Value, _: &Clock) -> Value {
    object
        .pointer("/metadata/creationTimestamp")
        .cloned()
        .unwrap_or_default()
}

pub(super) fn data_count(object: &Value, _: &Clock) -> Value {
    (entries(object, "/data") + entries(object, "/binaryData")).into()
}

pub(super) fn containers(object: &Value, _: &Clock) -> Value {
    join(
        template_containers(object)
            .iter()
            .map(|it| text(it, "/name")),
    )
    .into()
}

pub(super) fn images(object: &Value, _: &Clock) -> Value {
    join(
        template_containers(object)
            .iter()
            .map(|it| text(it, "/image")),
    )
    .into()
}

fn template_containers(object: &Value) -> &[Value] {
    match items(object, "/spec/template/spec/containers") {
        [] => items(object, "/template/spec/containers"),
        found => found,
    }
}

pub(super) fn template_labels(object: &Value, _: &Clock) -> Value {
    or_none(labels(object.pointer("/template/metadata/labels")))
}

pub(super) fn selector(object: &Value, _: &Clock) -> Value {
    or_none(
        object
            .pointer("/spec/selector")
            .map(selector_text)
            .unwrap_or_default(),
    )
}

pub(super) fn pod_selector(object: &Value, _: &Clock) -> Value {
    or_none(
        object
            .pointer("/spec/podSelector")
            .map(selector_text)
            .unwrap_or_default(),
    )
}

pub(super) fn node_selector(object: &Value, _: &Clock) -> Value {
    or_none(labels(object.pointer("/spec/template/spec/nodeSelector")))
}

pub(super) fn replicas_ready(object: &Value, _: &Clock) -> Value {
    format!(
        "{}/{}",
        number(object, "/status/readyReplicas"),
        number(object, "/spec/replicas")
    )
    .into()
}

pub(super) fn controller(object: &Value, _: &Clock) -> Value {
    let owner = items(object, "/metadata/ownerReferences")
        .iter()
        .find(|it| it["controller"] == true);
    owner.map_or_else(
        || NONE.into(),
        |it| {
            let kind = text(it, "/kind").to_lowercase();
            let group = text(it, "/apiVersion")
                .split_once('/')
                .map_or_else(String::new, |(group, _)| format!(".{group}"));
            format!("{kind}{group}/{}", text(it, "/name")).into()
        },
    )
}

pub(super) fn job_status(object: &Value, _: &Clock) -> Value {
    let first = |kinds: &[&'static str]| {
        kinds
            .iter()
            .find(|kind| has_condition(object, kind))
            .copied()
    };
    let deleted = object
        .pointer("/metadata/deletionTimestamp")
        .map(|_| "Terminating");
    first(&["Complete", "Failed"])
        .or(deleted)
        .or_else(|| first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]))
        .unwrap_or("Running")
        .into()
}

pub(super) fn job_completions(object: &Value, _: &Clock) -> Value {
    let done = number(object, "/status/succeeded");
    match (
        object.pointer("/spec/completions"),
        number(object, "/spec/parallelism"),
    ) {
        (Some(wanted), _) => format!("{done}/{wanted}").into(),
        (None, parallel @ 2..) => format!("{done}/1 of {parallel}").into(),
        (None, _) => format!("{done}/1").into(),
    }
}

pub(super) fn job_duration(object: &Value, clock: &Clock) -> Value {
    let Ok(start) = text(object, "/status/startTime").parse() else {
        return "".into();
    };
    let end = text(object, "/status/completionTime")
        .parse()
        .unwrap_or_else(|_| clock.now());
    age::format_duration(start, end).into()
}

pub(super) fn last_schedule(object: &Value, clock: &Clock) -> Value {
    match object.pointer("/status/lastScheduleTime") {
        None => NONE.into(),
        Some(at) => age::age(at, clock.now()).into(),
    }
}

pub(super) fn scale_target(object: &Value, _: &Clock) -> Value {
    format!(
        "{}/{}",
        text(object, "/spec/scaleTargetRef/kind"),
        text(object, "/spec/scaleTargetRef/name")
    )
    .into()
}

pub(super) fn node_status(object: &Value, _: &Clock) -> Value {
    let ready = items(object, "/status/conditions")
        .iter()
        .find(|it| text(it, "/type") == "Ready");
    let mut status = match ready.map(|it| text(it, "/status")) {
        None => "Unknown".to_string(),
        Some("True") => "Ready".into(),
        Some(_) => "NotReady".into(),
    };
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status += ",SchedulingDisabled";
    }
    status.into()
}

pub(super) fn node_roles(object: &Value, _: &Clock) -> Value {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    or_none(join(
        labels
            .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
            .filter(|it| !it.is_empty()),
    ))
}

fn node_address(object: &Value, kind: &str) -> Value {
    let address = items(object, "/status/addresses")
        .iter()
        .find(|it| text(it, "/type") == kind);
    or_none(
        address
            .map(|it| text(it, "/address").to_string())
            .unwrap_or_default(),
    )
}

pub(super) fn node_internal_ip(object: &Value, _: &Clock) -> Value {
    node_address(object, "InternalIP")
}

pub(super) fn node_external_ip(object: &Value, _: &Clock) -> Value {
    node_address(object, "ExternalIP")
}

pub(super) fn external_ip(object: &Value, clock: &Clock) -> Value {
    let given = join(
        items(object, "/spec/externalIPs")
            .iter()
            .filter_map(Value::as_str),
    );
    match text(object, "/spec/type") {
        "ExternalName" => text(object, "/spec/externalName").into(),
        "LoadBalancer" if given.is_empty() => match load_balancer(object, clock) {
            Value::String(address) if address.is_empty() => "<pending>".into(),
            address => address,
        },
        _ => or_none(given),
    }
}

pub(super) fn load_balancer(object: &Value, _: &Clock) -> Value {
    let addresses = items(object, "/status/loadBalancer/ingress").iter();
    join(addresses.map(|it| it["ip"].as_str().unwrap_or_else(|| text(it, "/hostname")))).into()
}

pub(super) fn service_ports(object: &Value, _: &Clock) -> Value {
    or_none(join(items(object, "/spec/ports").iter().map(|it| {
        let node_port = it
            .get("nodePort")
            .map_or_else(String::new, |port| format!(":{port}"));
        format!(
            "{}{node_port}/{}",
            it["port"],
            it["protocol"].as_str().unwrap_or("TCP")
        )
    })))
}

pub(super) fn endpoints(object: &Value, _: &Clock) -> Value {
    or_none(join(items(object, "/subsets").iter().flat_map(|subset| {
        items(subset, "/addresses")
            .iter()
            .flat_map(move |address| match items(subset, "/ports") {
                [] => vec![text(address, "/ip").to_string()],
                ports => ports
                    .iter()
                    .map(|port| format!("{}:{}", text(address, "/ip"), port["port"]))
                    .collect(),
            })
    })))
}

pub(super) fn slice_ports(object: &Value, _: &Clock) -> Value {
    let ports = items(object, "/ports").iter();
    ports.len().checked_sub(1).map_or_else(
        || "<unset>".into(),
        |_| {
            join(ports.map(|it| it.get("port").map_or_else(|| "*".into(), Value::to_string))).into()
        },
    )
}

pub(super) fn slice_endpoints(object: &Value, _: &Clock) -> Value {
    let addresses = items(object, "/endpoints")
        .iter()
        .flat_map(|it| items(it, "/addresses"));
    let shown = join(addresses.filter_map(Value::as_str));
    if shown.is_empty() {
        "<unset>".into()
    } else {
        shown.into()
    }
}

pub(super) fn ingress_hosts(object: &Value, _: &Clock) -> Value {
    let hosts = texts(object, "/spec/rules", "/host");
    if hosts.is_empty() {
        "*".into()
    } else {
        hosts.into()
    }
}

pub(super) fn ingress_ports(object: &Value, _: &Clock) -> Value {
    if items(object, "/spec/tls").is_empty() {
        "80".into()
    } else {
        "80, 443".into()
    }
}

pub(super) fn ingress_parameters(object: &Value, _: &Clock) -> Value {
    let Some(parameters) = object.pointer("/spec/parameters") else {
        return NONE.into();
    };
    let group = parameters["apiGroup"]
        .as_str()
        .map_or_else(String::new, |group| format!(".{group}"));
    format!(
        "{}{group}/{}",
        text(parameters, "/kind"),
        text(parameters, "/name")
    )
    .into()
}

pub(super) fn role(object: &Value, _: &Clock) -> Value {
    format!(
        "{}/{}",
        text(object, "/roleRef/kind"),
        text(object, "/roleRef/name")
    )
    .into()
}

pub(super) fn access_modes(object: &Value, _: &Clock) -> Value {
    let short = |mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    };
    // A claim prints the modes that it got, a volume those that it supports.
    let modes = if object.pointer("/spec/claimRef").is_none()
        && object.pointer("/status/accessModes").is_some()
    {
        items(object, "/status/accessModes")
    } else {
        items(object, "/spec/accessModes")
    };
    join(modes.iter().filter_map(Value::as_str).map(short)).into()
}

pub(super) fn volume_claim(object: &Value, _: &Clock) -> Value {
    let claim = |key| text(object, key);
    match claim("/spec/claimRef/name") {
        "" => "".into(),
        name => format!("{}/{name}", claim("/spec/claimRef/namespace")).into(),
    }
}

pub(super) fn event_object(object: &Value, _: &Clock) -> Value {
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    match text(object, "/involvedObject/name") {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

pub(super) fn event_source(object: &Value, _: &Clock) -> Value {
    let component = match text(object, "/source/component") {
        "" => text(object, "/reportingComponent"),
        component => component,
    };
    let host = match text(object, "/source/host") {
        "" => text(object, "/reportingInstance"),
        host => host,
    };
    [component, host]
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
        .into()
}

pub(super) fn event_subobject(object: &Value, _: &Clock) -> Value {
    text(object, "/involvedObject/fieldPath").into()
}

pub(super) fn event_message(object: &Value, _: &Clock) -> Value {
    text(object, "/message").trim().into()
}

pub(super) fn event_first_seen(object: &Value, clock: &Clock) -> Value {
    let at = if text(object, "/firstTimestamp").is_empty() {
        "/eventTime"
    } else {
        "/firstTimestamp"
    };
    age_of(object, at, clock).into()
}

pub(super) fn event_last_seen(object: &Value, clock: &Clock) -> Value {
    let at = ["/series/lastObservedTime", "/lastTimestamp"]
        .into_iter()
        .find(|at| !text(object, at).is_empty());
    at.map_or_else(
        || event_first_seen(object, clock),
        |at| age_of(object, at, clock).into(),
    )
}

pub(super) fn event_count(object: &Value, _: &Clock) -> Value {
    let count = object
        .pointer("/series/count")
        .or_else(|| object.get("count"))
        .and_then(Value::as_i64);
    count.filter(|count| *count > 0).unwrap_or(1).into()
}
