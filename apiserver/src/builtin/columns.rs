//! What `kubectl get` shows of the built-in kinds, after their names.

use super::{cells, more_cells, pod_cells, rbac};
use crate::clock::Clock;
use crate::resource::{Cell, Column};
use serde_json::Value;

/// A column, as it can stand in a table.
pub(super) struct Col {
    name: &'static str,
    kind: &'static str,
    priority: i32,
    cell: Source,
}

#[derive(Clone, Copy)]
enum Source {
    Path(&'static str),
    Code(fn(&Value, &Clock) -> Value),
}

impl From<&Col> for Column {
    fn from(col: &Col) -> Self {
        Self {
            name: col.name.into(),
            kind: col.kind.into(),
            format: String::new(),
            description: String::new(),
            priority: col.priority,
            cell: match col.cell {
                Source::Path(path) => Cell::Path(path.into()),
                Source::Code(code) => Cell::Code(code),
            },
        }
    }
}

/// A text from the object.
const fn text(name: &'static str, path: &'static str) -> Col {
    Col { name, kind: "string", priority: 0, cell: Source::Path(path) }
}

/// A number from the object.
const fn number(name: &'static str, path: &'static str) -> Col {
    Col { kind: "integer", ..text(name, path) }
}

/// A text that code makes.
const fn code(name: &'static str, code: fn(&Value, &Clock) -> Value) -> Col {
    Col { name, kind: "string", priority: 0, cell: Source::Code(code) }
}

/// Shown only with `-o wide`.
const fn wide(col: Col) -> Col {
    Col { priority: 1, ..col }
}

const OLD: Col = code("Age", cells::age);
const CONTAINERS: Col = wide(code("Containers", cells::containers));
const IMAGES: Col = wide(code("Images", cells::images));
const SELECTOR: Col = wide(code("Selector", cells::selector));

pub(super) const AGE: &[Col] = &[OLD];
/// Of kinds for which the real server has no columns of their own.
pub(super) const DEFINITION: &[Col] = &[
    text("Scope", ".spec.scope"),
    code("Versions", more_cells::served_versions),
    Col { kind: "date", ..code("Created At", cells::created_at) },
    wide(text("Group", ".spec.group")),
    wide(text("Kind", ".spec.names.kind")),
    wide(code("ShortNames", more_cells::short_names)),
    wide(Col { kind: "boolean", ..code("Established", more_cells::is_established) }),
];
pub(super) const CREATED_AT: &[Col] = &[Col { kind: "date", ..code("Created At", cells::created_at) }];
pub(super) const CONFIG_MAP: &[Col] = &[code("Data", cells::data_count), OLD];
pub(super) const SECRET: &[Col] = &[text("Type", ".type"), code("Data", cells::data_count), OLD];
pub(super) const NAMESPACE: &[Col] = &[text("Status", ".status.phase"), OLD];
pub(super) const ENDPOINTS: &[Col] = &[code("Endpoints", cells::endpoints), OLD];
pub(super) const LEASE: &[Col] = &[text("Holder", ".spec.holderIdentity"), OLD];

pub(super) const POD: &[Col] = &[
    code("Ready", pod_cells::ready),
    code("Status", pod_cells::status),
    code("Restarts", pod_cells::restarts),
    OLD,
    wide(code("IP", pod_cells::ip)),
    wide(code("Node", cells::pod_node)),
    wide(code("Nominated Node", cells::pod_nominated_node)),
    wide(code("Readiness Gates", pod_cells::gates)),
];
pub(super) const POD_TEMPLATE: &[Col] =
    &[code("Containers", cells::containers), code("Images", cells::images), code("Pod Labels", cells::template_labels)];
pub(super) const NODE: &[Col] = &[
    code("Status", cells::node_status),
    code("Roles", cells::node_roles),
    OLD,
    text("Version", ".status.nodeInfo.kubeletVersion"),
    wide(code("Internal-IP", cells::node_internal_ip)),
    wide(code("External-IP", cells::node_external_ip)),
    wide(text("OS-Image", ".status.nodeInfo.osImage")),
    wide(text("Kernel-Version", ".status.nodeInfo.kernelVersion")),
    wide(text("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion")),
];
pub(super) const SERVICE: &[Col] = &[
    text("Type", ".spec.type"),
    code("Cluster-IP", cells::cluster_ip),
    code("External-IP", cells::external_ip),
    code("Port(s)", cells::service_ports),
    OLD,
    SELECTOR,
];
/// Both views print the stored event, whose name comes last.
pub(super) const EVENT: &[Col] = &[
    code("Last Seen", cells::event_last_seen),
    text("Type", ".type"),
    text("Reason", ".reason"),
    code("Object", cells::event_object),
    wide(code("Subobject", cells::event_subobject)),
    wide(code("Source", cells::event_source)),
    code("Message", cells::event_message),
    wide(code("First Seen", cells::event_first_seen)),
    wide(code("Count", cells::event_count)),
    wide(text("Name", ".metadata.name")),
];
pub(super) const VOLUME: &[Col] = &[
    text("Capacity", ".spec.capacity.storage"),
    code("Access Modes", cells::access_modes),
    text("Reclaim Policy", ".spec.persistentVolumeReclaimPolicy"),
    text("Status", ".status.phase"),
    code("Claim", cells::volume_claim),
    text("StorageClass", ".spec.storageClassName"),
    code("VolumeAttributesClass", cells::attributes_class),
    text("Reason", ".status.reason"),
    OLD,
    wide(text("VolumeMode", ".spec.volumeMode")),
];
pub(super) const VOLUME_CLAIM: &[Col] = &[
    text("Status", ".status.phase"),
    text("Volume", ".spec.volumeName"),
    text("Capacity", ".status.capacity.storage"),
    code("Access Modes", cells::access_modes),
    text("StorageClass", ".spec.storageClassName"),
    code("VolumeAttributesClass", cells::attributes_class),
    OLD,
    wide(text("VolumeMode", ".spec.volumeMode")),
];

pub(super) const RESOURCE_QUOTA: &[Col] =
    &[code("Request", more_cells::quota_requests), code("Limit", more_cells::quota_limits), OLD];

pub(super) const CONTROLLER_REVISION: &[Col] =
    &[code("Controller", cells::controller), text("Revision", ".revision"), OLD];
pub(super) const DEPLOYMENT: &[Col] = &[
    code("Ready", cells::replicas_ready),
    code("Up-to-date", cells::replicas_updated),
    code("Available", cells::replicas_available),
    OLD,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const STATEFUL_SET: &[Col] = &[code("Ready", cells::replicas_ready), OLD, CONTAINERS, IMAGES];
pub(super) const REPLICA_SET: &[Col] = &[
    number("Desired", ".spec.replicas"),
    Col { kind: "integer", ..code("Current", cells::replicas_current) },
    Col { kind: "integer", ..code("Ready", cells::replicas_ready_count) },
    OLD,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const DAEMON_SET: &[Col] = &[
    Col { kind: "integer", ..code("Desired", cells::daemons_desired) },
    Col { kind: "integer", ..code("Current", cells::daemons_current) },
    Col { kind: "integer", ..code("Ready", cells::daemons_ready) },
    Col { kind: "integer", ..code("Up-to-date", cells::daemons_updated) },
    Col { kind: "integer", ..code("Available", cells::daemons_available) },
    code("Node Selector", cells::node_selector),
    OLD,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const JOB: &[Col] = &[
    code("Status", cells::job_status),
    code("Completions", cells::job_completions),
    code("Duration", cells::job_duration),
    OLD,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const CRON_JOB: &[Col] = &[
    text("Schedule", ".spec.schedule"),
    code("Timezone", cells::time_zone),
    Col { kind: "boolean", ..code("Suspend", cells::suspended) },
    Col { kind: "integer", ..code("Active", cells::active_jobs) },
    code("Last Schedule", cells::last_schedule),
    OLD,
    wide(code("Containers", more_cells::cron_containers)),
    wide(code("Images", more_cells::cron_images)),
    wide(code("Selector", more_cells::cron_selector)),
];
pub(super) const AUTOSCALER: &[Col] = &[
    code("Reference", cells::scale_target),
    code("Targets", more_cells::scaler_targets),
    code("MinPods", more_cells::scaler_min_pods),
    code("MaxPods", more_cells::scaler_max_pods),
    code("Replicas", cells::scaled_replicas),
    OLD,
];
pub(super) const DISRUPTION_BUDGET: &[Col] = &[
    code("Min Available", cells::min_available),
    code("Max Unavailable", cells::max_unavailable),
    Col { kind: "integer", ..code("Allowed Disruptions", cells::disruptions_allowed) },
    OLD,
];

pub(super) const INGRESS: &[Col] = &[
    code("Class", cells::ingress_class),
    code("Hosts", cells::ingress_hosts),
    code("Address", cells::load_balancer),
    code("Ports", cells::ingress_ports),
    OLD,
];
pub(super) const INGRESS_CLASS: &[Col] =
    &[text("Controller", ".spec.controller"), code("Parameters", cells::ingress_parameters), OLD];
pub(super) const NETWORK_POLICY: &[Col] = &[code("Pod-Selector", cells::pod_selector), OLD];
pub(super) const ENDPOINT_SLICE: &[Col] = &[
    text("AddressType", ".addressType"),
    code("Ports", cells::slice_ports),
    code("Endpoints", cells::slice_endpoints),
    OLD,
];
pub(super) const ROLE_BINDING: &[Col] = &[
    code("Role", cells::role),
    OLD,
    wide(code("Users", rbac::bound_users)),
    wide(code("Groups", rbac::bound_groups)),
    wide(code("ServiceAccounts", rbac::bound_accounts)),
];
pub(super) const WEBHOOKS: &[Col] = &[Col { kind: "integer", ..code("Webhooks", cells::webhooks) }, OLD];
pub(super) const ADMISSION_POLICY: &[Col] =
    &[Col { kind: "integer", ..code("Validations", cells::validations) }, code("ParamKind", cells::param_kind), OLD];
pub(super) const ADMISSION_POLICY_BINDING: &[Col] =
    &[text("PolicyName", ".spec.policyName"), code("ParamRef", cells::param_ref), OLD];
pub(super) const PRIORITY_CLASS: &[Col] = &[
    number("Value", ".value"),
    Col { kind: "boolean", ..code("Global-Default", cells::global_default) },
    OLD,
    text("PreemptionPolicy", ".preemptionPolicy"),
];
pub(super) const RUNTIME_CLASS: &[Col] = &[text("Handler", ".handler"), OLD];
pub(super) const STORAGE_CLASS: &[Col] = &[
    text("Provisioner", ".provisioner"),
    text("ReclaimPolicy", ".reclaimPolicy"),
    text("VolumeBindingMode", ".volumeBindingMode"),
    text("AllowVolumeExpansion", ".allowVolumeExpansion"),
    OLD,
];
pub(super) const CSI_DRIVER: &[Col] = &[
    Col { kind: "boolean", ..text("AttachRequired", ".spec.attachRequired") },
    Col { kind: "boolean", ..text("PodInfoOnMount", ".spec.podInfoOnMount") },
    Col { kind: "boolean", ..text("StorageCapacity", ".spec.storageCapacity") },
    code("TokenRequests", more_cells::token_requests),
    Col { kind: "boolean", ..code("RequiresRepublish", more_cells::requires_republish) },
    code("Modes", more_cells::lifecycle_modes),
    OLD,
];
pub(super) const CSI_NODE: &[Col] = &[Col { kind: "integer", ..code("Drivers", cells::drivers) }, OLD];
pub(super) const VOLUME_ATTACHMENT: &[Col] = &[
    text("Attacher", ".spec.attacher"),
    text("PV", ".spec.source.persistentVolumeName"),
    text("Node", ".spec.nodeName"),
    Col { kind: "boolean", ..text("Attached", ".status.attached") },
    OLD,
];
pub(super) const VOLUME_ATTRIBUTES_CLASS: &[Col] = &[text("DriverName", ".driverName"), OLD];
