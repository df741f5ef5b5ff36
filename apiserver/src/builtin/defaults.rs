//! Defaults of built-in types, by type and field, wherever the type is used. Those of a pod also
//! apply to pod templates.
//!
//! Defaults that depend on another field of the same value are rules, by type. Defaults that depend
//! on the whole object, or that apply to one kind only, are in `prepare`, `pods`, `services` and
//! `workloads`.

use crate::schema::{DefaultRule, quantity};
use serde_json::{Map, Value, json};

/// Types, without the prefix `io.k8s.api.`, and the defaults of their fields as JSON.
#[rustfmt::skip]
static FIELDS: &[(&str, &[(&str, &str)])] = &[
    ("core.v1.PodSpec", &[
        ("restartPolicy", r#""Always""#), ("dnsPolicy", r#""ClusterFirst""#), ("securityContext", "{}"),
        ("schedulerName", r#""default-scheduler""#), ("terminationGracePeriodSeconds", "30"),
    ]),
    ("core.v1.Container", CONTAINER),
    ("core.v1.EphemeralContainer", CONTAINER),
    ("core.v1.ContainerPort", TCP),
    ("core.v1.Probe", &[
        ("timeoutSeconds", "1"), ("periodSeconds", "10"), ("successThreshold", "1"), ("failureThreshold", "3"),
    ]),
    ("core.v1.HTTPGetAction", &[("path", r#""/""#), ("scheme", r#""HTTP""#)]),
    ("core.v1.GRPCAction", &[("service", r#""""#)]),
    ("core.v1.SecretVolumeSource", MODE),
    ("core.v1.ConfigMapVolumeSource", MODE),
    ("core.v1.DownwardAPIVolumeSource", MODE),
    ("core.v1.ProjectedVolumeSource", MODE),
    ("core.v1.ServiceAccountTokenProjection", &[("expirationSeconds", "3600")]),
    ("core.v1.HostPathVolumeSource", &[("type", r#""""#)]),
    ("core.v1.ISCSIVolumeSource", &[("iscsiInterface", r#""default""#)]),
    ("core.v1.ISCSIPersistentVolumeSource", &[("iscsiInterface", r#""default""#)]),
    ("core.v1.RBDVolumeSource", &[
        ("pool", r#""rbd""#), ("user", r#""admin""#), ("keyring", r#""/etc/ceph/keyring""#),
    ]),
    ("core.v1.AzureDiskVolumeSource", &[
        ("cachingMode", r#""ReadWrite""#), ("kind", r#""Shared""#), ("fsType", r#""ext4""#), ("readOnly", "false"),
    ]),
    ("core.v1.ScaleIOVolumeSource", &[("storageMode", r#""ThinProvisioned""#), ("fsType", r#""xfs""#)]),
    ("core.v1.ObjectFieldSelector", &[("apiVersion", r#""v1""#)]),
    ("core.v1.PersistentVolumeClaimSpec", &[("volumeMode", r#""Filesystem""#)]),
    ("core.v1.PersistentVolumeClaimStatus", &[("phase", r#""Pending""#)]),
    ("core.v1.PersistentVolumeSpec", &[
        ("persistentVolumeReclaimPolicy", r#""Retain""#), ("volumeMode", r#""Filesystem""#),
    ]),
    ("core.v1.PersistentVolumeStatus", &[("phase", r#""Pending""#)]),
    ("core.v1.Secret", &[("type", r#""Opaque""#)]),
    ("core.v1.EndpointPort", TCP),
    ("core.v1.ServicePort", TCP),
    ("core.v1.ServiceSpec", &[("type", r#""ClusterIP""#), ("sessionAffinity", r#""None""#)]),
    ("discovery.v1.EndpointPort", &[("name", r#""""#), ("protocol", r#""TCP""#)]),
    ("networking.v1.NetworkPolicyPort", TCP),
    ("scheduling.v1.PriorityClass", &[("preemptionPolicy", r#""PreemptLowerPriority""#)]),
    ("storage.v1.StorageClass", &[("reclaimPolicy", r#""Delete""#), ("volumeBindingMode", r#""Immediate""#)]),
    ("rbac.v1.RoleRef", &[("apiGroup", r#""rbac.authorization.k8s.io""#)]),
    ("autoscaling.v1.HorizontalPodAutoscalerSpec", &[("minReplicas", "1")]),
    ("autoscaling.v2.HorizontalPodAutoscalerSpec", &[("minReplicas", "1")]),
];

const CONTAINER: &[(&str, &str)] = &[
    ("terminationMessagePath", r#""/dev/termination-log""#),
    ("terminationMessagePolicy", r#""File""#),
];
const TCP: &[(&str, &str)] = &[("protocol", r#""TCP""#)];
const MODE: &[(&str, &str)] = &[("defaultMode", "420")];

/// Returns the defaults of the fields of a type.
pub(crate) fn field_defaults(kind: &str) -> impl Iterator<Item = (&'static str, Value)> {
    let fields = FIELDS
        .iter()
        .filter(move |(name, _)| *name == kind)
        .flat_map(|(_, fields)| *fields);
    fields.map(|(field, text)| {
        (
            *field,
            serde_json::from_str(text).expect("values of the table are valid JSON"),
        )
    })
}

/// Returns the rule that sets fields of a type depending on other fields.
pub(crate) fn rule(kind: &str) -> Option<DefaultRule> {
    match kind {
        "core.v1.PodSpec" => Some(service_account),
        "core.v1.Container" | "core.v1.EphemeralContainer" => Some(container),
        "core.v1.Volume" => Some(volume),
        "core.v1.ResourceRequirements"
        | "core.v1.VolumeResourceRequirements"
        | "core.v1.ResourceQuotaSpec" => Some(resources),
        "core.v1.LoadBalancerIngress" => Some(ingress),
        "core.v1.ServicePort" => Some(service_port),
        "core.v1.ServiceSpec" => Some(session_affinity),
        "core.v1.LimitRangeItem" => Some(limit),
        "autoscaling.v2.HorizontalPodAutoscalerBehavior" => Some(behavior),
        _ => None,
    }
}

fn text<'a>(map: &'a Map<String, Value>, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Sets the deprecated `serviceAccount` to the same value as `serviceAccountName`.
fn service_account(spec: &mut Map<String, Value>) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    };
    if !name.is_empty() {
        let name = Value::from(name);
        spec.insert("serviceAccount".into(), name.clone());
        spec.insert("serviceAccountName".into(), name);
    }
}

/// Sets the pull policy: images without a fixed tag are always pulled.
fn container(container: &mut Map<String, Value>) {
    if text(container, "imagePullPolicy").is_empty() {
        let image = text(container, "image");
        let name = image.rsplit_once('/').map_or(image, |(_, name)| name);
        let latest =
            !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
        let policy = if latest { "Always" } else { "IfNotPresent" };
        container.insert("imagePullPolicy".into(), policy.into());
    }
}

/// Makes a volume without a source an empty directory.
fn volume(volume: &mut Map<String, Value>) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
}

/// Rounds amounts of resources up to thousandths.
fn resources(resources: &mut Map<String, Value>) {
    for list in ["limits", "requests", "hard"] {
        let list = resources.get_mut(list).and_then(Value::as_object_mut);
        for (_, amount) in list.into_iter().flatten() {
            if let Some(finer) =
                quantity::from_value(amount).filter(|it| it.round_up_to_thousandths() != *it)
            {
                *amount = finer.round_up_to_thousandths().to_string().into();
            }
        }
    }
}

fn service_port(port: &mut Map<String, Value>) {
    if port
        .get("targetPort")
        .is_none_or(|target| *target == 0 || target == "")
        && let Some(number) = port.get("port").cloned()
    {
        port.insert("targetPort".into(), number);
    }
}

fn ingress(ingress: &mut Map<String, Value>) {
    if !text(ingress, "ip").is_empty() {
        ingress.entry("ipMode").or_insert("VIP".into());
    }
}

fn session_affinity(spec: &mut Map<String, Value>) {
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            let timeout = spec
                .get("sessionAffinityConfig")
                .and_then(|it| it.pointer("/clientIP/timeoutSeconds"));
            if timeout.is_none_or(Value::is_null) {
                spec.insert(
                    "sessionAffinityConfig".into(),
                    json!({"clientIP": {"timeoutSeconds": 10800}}),
                );
            }
        }
        "None" => drop(spec.remove("sessionAffinityConfig")),
        _ => {}
    }
}

/// Sets the default limit to the maximum, and the default request to the default limit or the
/// minimum.
fn limit(item: &mut Map<String, Value>) {
    if item.get("type").is_none_or(|kind| kind != "Container") {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let Some(Value::Object(amounts)) = item.get(from).cloned() else {
            continue;
        };
        let target = item.entry(to).or_insert_with(|| json!({}));
        for (resource, amount) in amounts {
            target
                .as_object_mut()
                .map(|target| target.entry(resource).or_insert(amount));
        }
    }
}

/// Sets the defaults of both scaling directions if one of them is set.
fn behavior(behavior: &mut Map<String, Value>) {
    let policy =
        |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 15});
    for (direction, stabilization, policies) in [
        (
            "scaleUp",
            Some(0),
            json!([policy("Pods", 4), policy("Percent", 100)]),
        ),
        ("scaleDown", None, json!([policy("Percent", 100)])),
    ] {
        let rules = behavior.entry(direction).or_insert_with(|| json!({}));
        let Some(rules) = rules.as_object_mut() else {
            continue;
        };
        if let Some(seconds) = stabilization {
            rules
                .entry("stabilizationWindowSeconds")
                .or_insert(seconds.into());
        }
        rules.entry("selectPolicy").or_insert("Max".into());
        rules.entry("policies").or_insert(policies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    fn apply_defaults(definition: &'static str, mut object: Value) -> Value {
        let schema = Schema::builtin(definition);
        assert!(schema.prune(&mut object).is_empty());
        schema.default(&mut object);
        object
    }

    #[test]
    fn every_row_is_about_an_existing_field() {
        for (kind, fields) in FIELDS {
            let name: &'static str = format!("io.k8s.api.{kind}").leak();
            let schema = Schema::builtin(name);
            for (field, _) in *fields {
                assert!(
                    schema.field(schema.root(), field).is_some(),
                    "{kind}.{field}"
                );
            }
            assert_eq!(field_defaults(kind).count(), fields.len());
        }
    }

    #[test]
    fn the_pull_policy_depends_on_the_tag() {
        let policy = |image: &str| {
            apply_defaults(
                "io.k8s.api.core.v1.Container",
                json!({"image": image, "imagePullPolicy": ""}),
            )["imagePullPolicy"]
                .take()
        };
        for image in ["nginx", "nginx:latest", "host:5000/nginx"] {
            assert_eq!(policy(image), "Always", "{image}");
        }
        for image in ["nginx:1", "host:5000/nginx:1", "nginx@sha256:00"] {
            assert_eq!(policy(image), "IfNotPresent", "{image}");
        }
    }

    #[test]
    fn pod_templates_get_the_defaults_of_pods() {
        let container =
            json!({"name": "a", "resources": {"limits": {"cpu": "0.0001", "memory": "1024Mi"}}});
        let spec =
            json!({"template": {"spec": {"containers": [container], "volumes": [{"name": "v"}]}}});
        let deployment = apply_defaults("io.k8s.api.apps.v1.Deployment", json!({"spec": spec}));
        let template = &deployment["spec"]["template"];
        assert_eq!(
            (&template["metadata"], &template["spec"]["dnsPolicy"]),
            (&json!({}), &json!("ClusterFirst"))
        );
        assert_eq!(
            template["spec"]["volumes"],
            json!([{"name": "v", "emptyDir": {}}])
        );
        let limits = &template["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(*limits, json!({"cpu": "1m", "memory": "1Gi"}));
        assert_eq!(deployment["status"], json!({}));
    }

    #[test]
    fn zero_values_are_omitted_where_go_omits_them() {
        let pod = json!({"spec": {"hostNetwork": false, "terminationGracePeriodSeconds": 0, "nodeName": ""}});
        let spec = apply_defaults("io.k8s.api.core.v1.Pod", pod)["spec"].take();
        assert_eq!(spec["terminationGracePeriodSeconds"], 0);
        assert!(spec.get("hostNetwork").is_none() && spec.get("nodeName").is_none());
        assert_eq!(
            apply_defaults("io.k8s.api.rbac.v1.Role", json!({"rules": []}))["rules"],
            Value::Null
        );
    }
}
