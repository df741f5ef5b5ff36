//! Columns that `kubectl get` prints for built-in kinds, after the name.

use super::{cells, more_cells, pod_cells, rbac};
use crate::clock::Clock;
use crate::resource::{Cell, Column};
use serde_json::Value;

/// A column that can be declared as a constant.
pub(super) struct ColumnSpec {
    name: &'static str,
    kind: &'static str,
    priority: i32,
    cell: CellSource,
}

#[derive(Clone, Copy)]
enum CellSource {
    Path(&'static str),
    Code(fn(&Value, &Clock) -> Value),
}

impl From<&ColumnSpec> for Column {
    fn from(spec: &ColumnSpec) -> Self {
        Self {
            name: spec.name.into(),
            kind: spec.kind.into(),
            format: String::new(),
            description: String::new(),
            priority: spec.priority,
            cell: match spec.cell {
                CellSource::Path(path) => Cell::Path(path.into()),
                CellSource::Code(computed) => Cell::Code(computed),
            },
        }
    }
}

/// Returns a column with a text of the object.
const fn text(name: &'static str, path: &'static str) -> ColumnSpec {
    ColumnSpec {
        name,
        kind: "string",
        priority: 0,
        cell: CellSource::Path(path),
    }
}

/// Returns a column with a number of the object.
const fn number(name: &'static str, path: &'static str) -> ColumnSpec {
    ColumnSpec {
        kind: "integer",
        ..text(name, path)
    }
}

/// Returns a column with a text that a function computes.
const fn computed(name: &'static str, computed: fn(&Value, &Clock) -> Value) -> ColumnSpec {
    ColumnSpec {
        name,
        kind: "string",
        priority: 0,
        cell: CellSource::Code(computed),
    }
}

/// Makes a column print only with `-o wide`.
const fn wide(spec: ColumnSpec) -> ColumnSpec {
    ColumnSpec {
        priority: 1,
        ..spec
    }
}

const AGE_COLUMN: ColumnSpec = computed("Age", cells::age);
const CONTAINERS: ColumnSpec = wide(computed("Containers", cells::containers));
const IMAGES: ColumnSpec = wide(computed("Images", cells::images));
const SELECTOR: ColumnSpec = wide(computed("Selector", cells::selector));

pub(super) const AGE: &[ColumnSpec] = &[AGE_COLUMN];
/// Columns of kinds for which the real server defines none.
pub(super) const DEFINITION: &[ColumnSpec] = &[
    text("Scope", ".spec.scope"),
    computed("Versions", more_cells::served_versions),
    ColumnSpec {
        kind: "date",
        ..computed("Created At", cells::created_at)
    },
    wide(text("Group", ".spec.group")),
    wide(text("Kind", ".spec.names.kind")),
    wide(computed("ShortNames", more_cells::short_names)),
    wide(ColumnSpec {
        kind: "boolean",
        ..computed("Established", more_cells::is_established)
    }),
];
pub(super) const CREATED_AT: &[ColumnSpec] = &[ColumnSpec {
    kind: "date",
    ..computed("Created At", cells::created_at)
}];
pub(super) const CONFIG_MAP: &[ColumnSpec] = &[computed("Data", cells::data_count), AGE_COLUMN];
pub(super) const SECRET: &[ColumnSpec] = &[
    text("Type", ".type"),
    computed("Data", cells::data_count),
    AGE_COLUMN,
];
pub(super) const NAMESPACE: &[ColumnSpec] = &[text("Status", ".status.phase"), AGE_COLUMN];
pub(super) const ENDPOINTS: &[ColumnSpec] = &[computed("Endpoints", cells::endpoints), AGE_COLUMN];
pub(super) const LEASE: &[ColumnSpec] = &[text("Holder", ".spec.holderIdentity"), AGE_COLUMN];

pub(super) const POD: &[ColumnSpec] = &[
    computed("Ready", pod_cells::ready),
    computed("Status", pod_cells::status),
    computed("Restarts", pod_cells::restarts),
    AGE_COLUMN,
    wide(computed("IP", pod_cells::ip)),
    wide(computed("Node", cells::pod_node)),
    wide(computed("Nominated Node", cells::pod_nominated_node)),
    wide(computed("Readiness Gates", pod_cells::gates)),
];
pub(super) const POD_TEMPLATE: &[ColumnSpec] = &[
    computed("Containers", cells::containers),
    computed("Images", cells::images),
    computed("Pod Labels", cells::template_labels),
];
pub(super) const NODE: &[ColumnSpec] = &[
    computed("Status", cells::node_status),
    computed("Roles", cells::node_roles),
    AGE_COLUMN,
    text("Version", ".status.nodeInfo.kubeletVersion"),
    wide(computed("Internal-IP", cells::node_internal_ip)),
    wide(computed("External-IP", cells::node_external_ip)),
    wide(text("OS-Image", ".status.nodeInfo.osImage")),
    wide(text("Kernel-Version", ".status.nodeInfo.kernelVersion")),
    wide(text(
        "Container-Runtime",
        ".status.nodeInfo.containerRuntimeVersion",
    )),
];
pub(super) const SERVICE: &[ColumnSpec] = &[
    text("Type", ".spec.type"),
    computed("Cluster-IP", cells::cluster_ip),
    computed("External-IP", cells::external_ip),
    computed("Port(s)", cells::service_ports),
    AGE_COLUMN,
    SELECTOR,
];
/// Both groups print the stored event, with its name in the last column.
pub(super) const EVENT: &[ColumnSpec] = &[
    computed("Last Seen", cells::event_last_seen),
    text("Type", ".type"),
    text("Reason", ".reason"),
    computed("Object", cells::event_object),
    wide(computed("Subobject", cells::event_subobject)),
    wide(computed("Source", cells::event_source)),
    computed("Message", cells::event_message),
    wide(computed("First Seen", cells::event_first_seen)),
    wide(computed("Count", cells::event_count)),
    wide(text("Name", ".metadata.name")),
];
pub(super) const VOLUME: &[ColumnSpec] = &[
    text("Capacity", ".spec.capacity.storage"),
    computed("Access Modes", cells::access_modes),
    text("Reclaim Policy", ".spec.persistentVolumeReclaimPolicy"),
    text("Status", ".status.phase"),
    computed("Claim", cells::volume_claim),
    text("StorageClass", ".spec.storageClassName"),
    computed("VolumeAttributesClass", cells::attributes_class),
    text("Reason", ".status.reason"),
    AGE_COLUMN,
    wide(text("VolumeMode", ".spec.volumeMode")),
];
pub(super) const VOLUME_CLAIM: &[ColumnSpec] = &[
    text("Status", ".status.phase"),
    text("Volume", ".spec.volumeName"),
    text("Capacity", ".status.capacity.storage"),
    computed("Access Modes", cells::access_modes),
    text("StorageClass", ".spec.storageClassName"),
    computed("VolumeAttributesClass", cells::attributes_class),
    AGE_COLUMN,
    wide(text("VolumeMode", ".spec.volumeMode")),
];

pub(super) const RESOURCE_QUOTA: &[ColumnSpec] = &[
    computed("Request", more_cells::quota_requests),
    computed("Limit", more_cells::quota_limits),
    AGE_COLUMN,
];

pub(super) const CONTROLLER_REVISION: &[ColumnSpec] = &[
    computed("Controller", cells::controller),
    text("Revision", ".revision"),
    AGE_COLUMN,
];
pub(super) const DEPLOYMENT: &[ColumnSpec] = &[
    computed("Ready", cells::replicas_ready),
    computed("Up-to-date", cells::replicas_updated),
    computed("Available", cells::replicas_available),
    AGE_COLUMN,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const STATEFUL_SET: &[ColumnSpec] = &[
    computed("Ready", cells::replicas_ready),
    AGE_COLUMN,
    CONTAINERS,
    IMAGES,
];
pub(super) const REPLICA_SET: &[ColumnSpec] = &[
    number("Desired", ".spec.replicas"),
    ColumnSpec {
        kind: "integer",
        ..computed("Current", cells::replicas_current)
    },
    ColumnSpec {
        kind: "integer",
        ..computed("Ready", cells::replicas_ready_count)
    },
    AGE_COLUMN,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const DAEMON_SET: &[ColumnSpec] = &[
    ColumnSpec {
        kind: "integer",
        ..computed("Desired", cells::daemons_desired)
    },
    ColumnSpec {
        kind: "integer",
        ..computed("Current", cells::daemons_current)
    },
    ColumnSpec {
        kind: "integer",
        ..computed("Ready", cells::daemons_ready)
    },
    ColumnSpec {
        kind: "integer",
        ..computed("Up-to-date", cells::daemons_updated)
    },
    ColumnSpec {
        kind: "integer",
        ..computed("Available", cells::daemons_available)
    },
    computed("Node Selector", cells::node_selector),
    AGE_COLUMN,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const JOB: &[ColumnSpec] = &[
    computed("Status", cells::job_status),
    computed("Completions", cells::job_completions),
    computed("Duration", cells::job_duration),
    AGE_COLUMN,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const CRON_JOB: &[ColumnSpec] = &[
    text("Schedule", ".spec.schedule"),
    computed("Timezone", cells::time_zone),
    ColumnSpec {
        kind: "boolean",
        ..computed("Suspend", cells::suspended)
    },
    ColumnSpec {
        kind: "integer",
        ..computed("Active", cells::active_jobs)
    },
    computed("Last Schedule", cells::last_schedule),
    AGE_COLUMN,
    wide(computed("Containers", more_cells::cron_containers)),
    wide(computed("Images", more_cells::cron_images)),
    wide(computed("Selector", more_cells::cron_selector)),
];
pub(super) const AUTOSCALER: &[ColumnSpec] = &[
    computed("Reference", cells::scale_target),
    computed("Targets", more_cells::scaler_targets),
    computed("MinPods", more_cells::scaler_min_pods),
    computed("MaxPods", more_cells::scaler_max_pods),
    computed("Replicas", cells::scaled_replicas),
    AGE_COLUMN,
];
pub(super) const DISRUPTION_BUDGET: &[ColumnSpec] = &[
    computed("Min Available", cells::min_available),
    computed("Max Unavailable", cells::max_unavailable),
    ColumnSpec {
        kind: "integer",
        ..computed("Allowed Disruptions", cells::disruptions_allowed)
    },
    AGE_COLUMN,
];

pub(super) const INGRESS: &[ColumnSpec] = &[
    computed("Class", cells::ingress_class),
    computed("Hosts", cells::ingress_hosts),
    computed("Address", cells::load_balancer),
    computed("Ports", cells::ingress_ports),
    AGE_COLUMN,
];
pub(super) const INGRESS_CLASS: &[ColumnSpec] = &[
    text("Controller", ".spec.controller"),
    computed("Parameters", cells::ingress_parameters),
    AGE_COLUMN,
];
pub(super) const NETWORK_POLICY: &[ColumnSpec] =
    &[computed("Pod-Selector", cells::pod_selector), AGE_COLUMN];
pub(super) const ENDPOINT_SLICE: &[ColumnSpec] = &[
    text("AddressType", ".addressType"),
    computed("Ports", cells::slice_ports),
    computed("Endpoints", cells::slice_endpoints),
    AGE_COLUMN,
];
pub(super) const ROLE_BINDING: &[ColumnSpec] = &[
    computed("Role", cells::role),
    AGE_COLUMN,
    wide(computed("Users", rbac::bound_users)),
    wide(computed("Groups", rbac::bound_groups)),
    wide(computed("ServiceAccounts", rbac::bound_accounts)),
];
pub(super) const WEBHOOKS: &[ColumnSpec] = &[
    ColumnSpec {
        kind: "integer",
        ..computed("Webhooks", cells::webhooks)
    },
    AGE_COLUMN,
];
pub(super) const ADMISSION_POLICY: &[ColumnSpec] = &[
    ColumnSpec {
        kind: "integer",
        ..computed("Validations", cells::validations)
    },
    computed("ParamKind", cells::param_kind),
    AGE_COLUMN,
];
pub(super) const ADMISSION_POLICY_BINDING: &[ColumnSpec] = &[
    text("PolicyName", ".spec.policyName"),
    computed("ParamRef", cells::param_ref),
    AGE_COLUMN,
];
pub(super) const PRIORITY_CLASS: &[ColumnSpec] = &[
    number("Value", ".value"),
    ColumnSpec {
        kind: "boolean",
        ..computed("Global-Default", cells::global_default)
    },
    AGE_COLUMN,
    text("PreemptionPolicy", ".preemptionPolicy"),
];
pub(super) const RUNTIME_CLASS: &[ColumnSpec] = &[text("Handler", ".handler"), AGE_COLUMN];
pub(super) const STORAGE_CLASS: &[ColumnSpec] = &[
    text("Provisioner", ".provisioner"),
    text("ReclaimPolicy", ".reclaimPolicy"),
    text("VolumeBindingMode", ".volumeBindingMode"),
    text("AllowVolumeExpansion", ".allowVolumeExpansion"),
    AGE_COLUMN,
];
pub(super) const CSI_DRIVER: &[ColumnSpec] = &[
    ColumnSpec {
        kind: "boolean",
        ..text("AttachRequired", ".spec.attachRequired")
    },
    ColumnSpec {
        kind: "boolean",
        ..text("PodInfoOnMount", ".spec.podInfoOnMount")
    },
    ColumnSpec {
        kind: "boolean",
        ..text("StorageCapacity", ".spec.storageCapacity")
    },
    computed("TokenRequests", more_cells::token_requests),
    ColumnSpec {
        kind: "boolean",
        ..computed("RequiresRepublish", more_cells::requires_republish)
    },
    computed("Modes", more_cells::lifecycle_modes),
    AGE_COLUMN,
];
pub(super) const CSI_NODE: &[ColumnSpec] = &[
    ColumnSpec {
        kind: "integer",
        ..computed("Drivers", cells::drivers)
    },
    AGE_COLUMN,
];
pub(super) const VOLUME_ATTACHMENT: &[ColumnSpec] = &[
    text("Attacher", ".spec.attacher"),
    text("PV", ".spec.source.persistentVolumeName"),
    text("Node", ".spec.nodeName"),
    ColumnSpec {
        kind: "boolean",
        ..text("Attached", ".status.attached")
    },
    AGE_COLUMN,
];
pub(super) const VOLUME_ATTRIBUTES_CLASS: &[ColumnSpec] =
    &[text("DriverName", ".driverName"), AGE_COLUMN];
