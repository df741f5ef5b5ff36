//! Table of the built-in kinds: the type of a row, and the rows of the core group.
//!
//! Flags, status rules and generations are those of the real server's strategies (v1.37).

use super::columns::{self, ColumnSpec};
use super::dependencies::Dependencies;
use super::warnings::{self, Warn};
use super::{checks, events, pods, prepare, services, validate, workload_checks, workloads};
use crate::resource::{Generation, NameRule, StatusRule};
use crate::status::FieldErrors;
use serde_json::Value;

/// A built-in kind in one version.
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    /// Name of the schema, which ends in the version and the kind.
    pub(super) definition: &'static str,
    pub(super) namespaced: bool,
    pub(super) short_names: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) verbs: &'static [&'static str],
    pub(super) flags: &'static [Flag],
    pub(super) generation: Generation,
    pub(super) status: Option<StatusRule>,
    pub(super) grace: Option<fn(&Value) -> u64>,
    pub(super) name: NameRule,
    pub(super) columns: &'static [ColumnSpec],
    /// `name`, or `name=path` if the stored object has the value at another path.
    pub(super) selectable: &'static [&'static str],
    pub(super) prepare: fn(&mut Value, Option<&Value>),
    pub(super) validate: fn(&Value, Option<&Value>) -> FieldErrors,
    pub(super) validate_status: fn(&Value) -> FieldErrors,
    pub(super) dependencies: Dependencies,
    pub(super) warn: Warn,
    /// Warning for all requests.
    pub(super) deprecated: Option<&'static str>,
}

/// Differences of a kind from most others.
#[derive(PartialEq)]
pub(super) enum Flag {
    /// A PUT requires a resource version.
    RequiresVersion,
    /// A PUT of an object that does not exist creates it.
    CreateOnUpdate,
    /// DELETE returns the object.
    ReturnsDeleted,
    /// `/scale` is served.
    Scales,
}
use Flag::{CreateOnUpdate, ReturnsDeleted, Scales};

impl Row {
    pub(super) fn kind(&self) -> &'static str {
        self.definition.rsplit('.').next().unwrap_or_default()
    }

    pub(super) fn version(&self) -> &'static str {
        self.definition.rsplit('.').nth(1).unwrap_or_default()
    }
}

const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const NO_COLLECTION: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];

/// Status updates of most types also change metadata.
const WITH_METADATA: Option<StatusRule> = Some(StatusRule {
    labels: true,
    annotations: true,
    finalizers: true,
});
pub(super) const STATUS_ONLY: Option<StatusRule> = Some(StatusRule {
    labels: false,
    annotations: false,
    finalizers: false,
});
pub(super) const NOT_LABELS: Option<StatusRule> = Some(StatusRule {
    labels: false,
    annotations: true,
    finalizers: true,
});

pub(super) const fn namespaced(
    group: &'static str,
    plural: &'static str,
    definition: &'static str,
) -> Row {
    Row {
        group,
        plural,
        definition,
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: VERBS,
        flags: &[],
        generation: Generation::None,
        status: None,
        grace: None,
        name: NameRule::Subdomain,
        columns: columns::AGE,
        selectable: &[],
        prepare: prepare::nothing,
        validate: validate::nothing,
        validate_status: |_| FieldErrors::new(),
        dependencies: Dependencies::Nothing,
        warn: |_| Vec::new(),
        deprecated: None,
    }
}

pub(super) const fn cluster(
    group: &'static str,
    plural: &'static str,
    definition: &'static str,
) -> Row {
    Row {
        namespaced: false,
        ..namespaced(group, plural, definition)
    }
}

/// A namespaced kind with a generation and a status.
pub(super) const fn workload(
    group: &'static str,
    plural: &'static str,
    definition: &'static str,
) -> Row {
    Row {
        generation: Generation::Spec,
        status: WITH_METADATA,
        ..namespaced(group, plural, definition)
    }
}

/// Kinds of the core group.
pub(super) static CORE: &[Row] = &[
    Row {
        short_names: &["cm"],
        columns: columns::CONFIG_MAP,
        validate: validate::config_map,
        ..namespaced("", "configmaps", "io.k8s.api.core.v1.ConfigMap")
    },
    Row {
        short_names: &["ep"],
        flags: &[CreateOnUpdate],
        columns: columns::ENDPOINTS,
        validate: checks::endpoints,
        deprecated: Some(
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
        ..namespaced("", "endpoints", "io.k8s.api.core.v1.Endpoints")
    },
    Row {
        short_names: &["ev"],
        flags: &[CreateOnUpdate],
        columns: columns::EVENT,
        selectable: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source=source.component",
            "type",
        ],
        prepare: events::prepare,
        validate: events::validate,
        ..namespaced("", "events", "io.k8s.api.core.v1.Event")
    },
    Row {
        short_names: &["limits"],
        flags: &[CreateOnUpdate],
        columns: columns::CREATED_AT,
        validate: checks::limit_range,
        ..namespaced("", "limitranges", "io.k8s.api.core.v1.LimitRange")
    },
    Row {
        short_names: &["ns"],
        verbs: NO_COLLECTION,
        flags: &[ReturnsDeleted],
        status: WITH_METADATA,
        name: NameRule::Label,
        columns: columns::NAMESPACE,
        selectable: &["status.phase"],
        prepare: prepare::namespace,
        validate: validate::namespace,
        validate_status: validate::namespace_phase,
        ..cluster("", "namespaces", "io.k8s.api.core.v1.Namespace")
    },
    Row {
        short_names: &["no"],
        status: WITH_METADATA,
        columns: columns::NODE,
        selectable: &["spec.unschedulable"],
        ..cluster("", "nodes", "io.k8s.api.core.v1.Node")
    },
    Row {
        short_names: &["pvc"],
        flags: &[ReturnsDeleted],
        status: WITH_METADATA,
        columns: columns::VOLUME_CLAIM,
        prepare: prepare::volume_claim,
        validate: checks::volume_claim,
        ..namespaced(
            "",
            "persistentvolumeclaims",
            "io.k8s.api.core.v1.PersistentVolumeClaim",
        )
    },
    Row {
        short_names: &["pv"],
        flags: &[ReturnsDeleted],
        status: WITH_METADATA,
        columns: columns::VOLUME,
        prepare: prepare::volume,
        validate: checks::volume,
        ..cluster(
            "",
            "persistentvolumes",
            "io.k8s.api.core.v1.PersistentVolume",
        )
    },
    Row {
        short_names: &["po"],
        categories: &["all"],
        flags: &[ReturnsDeleted],
        generation: Generation::Spec,
        status: WITH_METADATA,
        grace: Some(pods::grace),
        columns: columns::POD,
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        dependencies: Dependencies::Priority,
        prepare: pods::prepare,
        validate: pods::validate,
        warn: warnings::pod,
        ..namespaced("", "pods", "io.k8s.api.core.v1.Pod")
    },
    Row {
        flags: &[ReturnsDeleted],
        generation: Generation::Spec,
        columns: columns::POD_TEMPLATE,
        ..namespaced("", "podtemplates", "io.k8s.api.core.v1.PodTemplate")
    },
    Row {
        short_names: &["rc"],
        categories: &["all"],
        flags: &[Scales],
        columns: columns::REPLICA_SET,
        selectable: &["status.replicas"],
        prepare: workloads::prepare_replication_controller,
        validate: workload_checks::replication_controller,
        ..workload(
            "",
            "replicationcontrollers",
            "io.k8s.api.core.v1.ReplicationController",
        )
    },
    Row {
        short_names: &["quota"],
        columns: columns::RESOURCE_QUOTA,
        flags: &[ReturnsDeleted],
        status: WITH_METADATA,
        validate: checks::quota,
        ..namespaced("", "resourcequotas", "io.k8s.api.core.v1.ResourceQuota")
    },
    Row {
        columns: columns::SECRET,
        selectable: &["type"],
        prepare: prepare::secret,
        validate: validate::secret,
        warn: warnings::secret,
        ..namespaced("", "secrets", "io.k8s.api.core.v1.Secret")
    },
    Row {
        short_names: &["sa"],
        flags: &[ReturnsDeleted],
        ..namespaced("", "serviceaccounts", "io.k8s.api.core.v1.ServiceAccount")
    },
    Row {
        short_names: &["svc"],
        categories: &["all"],
        flags: &[CreateOnUpdate, ReturnsDeleted],
        status: WITH_METADATA,
        name: NameRule::Label,
        columns: columns::SERVICE,
        selectable: &["spec.clusterIP", "spec.type"],
        prepare: services::prepare,
        validate: services::validate,
        dependencies: Dependencies::Addresses,
        ..namespaced("", "services", "io.k8s.api.core.v1.Service")
    },
];
