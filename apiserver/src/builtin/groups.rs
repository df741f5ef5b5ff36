//! Rows of the named groups, in the order of the real server's discovery.

use super::table::Flag::{CreateOnUpdate, RequiresVersion, ReturnsDeleted, Scales};
use super::table::{NOT_LABELS, Row, STATUS_ONLY, cluster, namespaced, workload};
use super::{
    checks, columns, events, prepare, rbac, validate, warnings, workload_checks, workloads,
};
use crate::crd;
use crate::resource::{Generation, NameRule, StatusRule};

const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Kinds of all named groups.
pub(super) static NAMED: &[Row] = &[
    Row {
        columns: columns::CONTROLLER_REVISION,
        ..namespaced(
            "apps",
            "controllerrevisions",
            "io.k8s.api.apps.v1.ControllerRevision",
        )
    },
    Row {
        short_names: &["ds"],
        categories: &["all"],
        columns: columns::DAEMON_SET,
        prepare: workloads::prepare_daemon_set,
        validate: workload_checks::daemon_set,
        warn: warnings::workload,
        ..workload("apps", "daemonsets", "io.k8s.api.apps.v1.DaemonSet")
    },
    Row {
        short_names: &["deploy"],
        categories: &["all"],
        flags: &[Scales],
        // Deployments pass their annotations on to their replica sets.
        generation: Generation::SpecAnd("annotations"),
        status: NOT_LABELS,
        columns: columns::DEPLOYMENT,
        prepare: workloads::prepare_deployment,
        validate: workload_checks::deployment,
        warn: warnings::workload,
        validate_status: workload_checks::replicas,
        ..workload("apps", "deployments", "io.k8s.api.apps.v1.Deployment")
    },
    Row {
        short_names: &["rs"],
        categories: &["all"],
        flags: &[Scales],
        columns: columns::REPLICA_SET,
        prepare: workloads::prepare_replica_set,
        validate: workload_checks::replica_set,
        warn: warnings::workload,
        validate_status: workload_checks::replicas,
        ..workload("apps", "replicasets", "io.k8s.api.apps.v1.ReplicaSet")
    },
    Row {
        short_names: &["sts"],
        categories: &["all"],
        flags: &[Scales],
        columns: columns::STATEFUL_SET,
        prepare: workloads::prepare_stateful_set,
        validate: workload_checks::stateful_set,
        warn: warnings::workload,
        ..workload("apps", "statefulsets", "io.k8s.api.apps.v1.StatefulSet")
    },
    Row {
        short_names: &["ev"],
        flags: &[CreateOnUpdate],
        columns: columns::EVENT,
        selectable: &[
            "regarding.kind=involvedObject.kind",
            "regarding.namespace=involvedObject.namespace",
            "regarding.name=involvedObject.name",
            "regarding.uid=involvedObject.uid",
            "regarding.apiVersion=involvedObject.apiVersion",
            "regarding.resourceVersion=involvedObject.resourceVersion",
            "regarding.fieldPath=involvedObject.fieldPath",
            "reason",
            "reportingController=reportingComponent",
            "type",
        ],
        prepare: events::prepare,
        validate: events::validate_new,
        ..namespaced(events::GROUP, "events", "io.k8s.api.events.v1.Event")
    },
    autoscaler("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"),
    autoscaler("io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler"),
    Row {
        short_names: &["cj"],
        categories: &["all"],
        columns: columns::CRON_JOB,
        prepare: workloads::prepare_cron_job,
        validate: workload_checks::cron_job,
        ..workload("batch", "cronjobs", "io.k8s.api.batch.v1.CronJob")
    },
    Row {
        categories: &["all"],
        columns: columns::JOB,
        selectable: &["status.successful=status.succeeded"],
        prepare: workloads::prepare_job,
        validate: workload_checks::job,
        warn: warnings::workload,
        ..workload("batch", "jobs", "io.k8s.api.batch.v1.Job")
    },
    Row {
        generation: Generation::Spec,
        columns: columns::INGRESS_CLASS,
        ..cluster(
            "networking.k8s.io",
            "ingressclasses",
            "io.k8s.api.networking.v1.IngressClass",
        )
    },
    Row {
        short_names: &["ing"],
        columns: columns::INGRESS,
        validate: checks::ingress,
        ..workload(
            "networking.k8s.io",
            "ingresses",
            "io.k8s.api.networking.v1.Ingress",
        )
    },
    Row {
        short_names: &["netpol"],
        generation: Generation::Spec,
        columns: columns::NETWORK_POLICY,
        prepare: prepare::network_policy,
        validate: checks::network_policy,
        ..namespaced(
            "networking.k8s.io",
            "networkpolicies",
            "io.k8s.api.networking.v1.NetworkPolicy",
        )
    },
    Row {
        short_names: &["pdb"],
        flags: &[RequiresVersion],
        columns: columns::DISRUPTION_BUDGET,
        validate: validate::disruption_budget,
        ..workload(
            "policy",
            "poddisruptionbudgets",
            "io.k8s.api.policy.v1.PodDisruptionBudget",
        )
    },
    Row {
        flags: &[CreateOnUpdate],
        name: NameRule::PathSegment,
        columns: columns::ROLE_BINDING,
        prepare: prepare::role_binding,
        validate: rbac::cluster_role_binding,
        ..cluster(
            RBAC,
            "clusterrolebindings",
            "io.k8s.api.rbac.v1.ClusterRoleBinding",
        )
    },
    Row {
        flags: &[CreateOnUpdate],
        name: NameRule::PathSegment,
        columns: columns::CREATED_AT,
        validate: rbac::cluster_role,
        ..cluster(RBAC, "clusterroles", "io.k8s.api.rbac.v1.ClusterRole")
    },
    Row {
        flags: &[CreateOnUpdate],
        name: NameRule::PathSegment,
        columns: columns::ROLE_BINDING,
        prepare: prepare::role_binding,
        validate: rbac::role_binding,
        ..namespaced(RBAC, "rolebindings", "io.k8s.api.rbac.v1.RoleBinding")
    },
    Row {
        flags: &[CreateOnUpdate],
        name: NameRule::PathSegment,
        columns: columns::CREATED_AT,
        validate: rbac::role,
        ..namespaced(RBAC, "roles", "io.k8s.api.rbac.v1.Role")
    },
    Row {
        flags: &[RequiresVersion, ReturnsDeleted],
        columns: columns::CSI_DRIVER,
        prepare: prepare::csi_driver,
        ..cluster(STORAGE, "csidrivers", "io.k8s.api.storage.v1.CSIDriver")
    },
    Row {
        flags: &[RequiresVersion, ReturnsDeleted],
        columns: columns::CSI_NODE,
        ..cluster(STORAGE, "csinodes", "io.k8s.api.storage.v1.CSINode")
    },
    Row {
        flags: &[RequiresVersion],
        columns: columns::CREATED_AT,
        ..namespaced(
            STORAGE,
            "csistoragecapacities",
            "io.k8s.api.storage.v1.CSIStorageCapacity",
        )
    },
    Row {
        short_names: &["sc"],
        flags: &[ReturnsDeleted],
        columns: columns::STORAGE_CLASS,
        validate: checks::storage_class,
        ..cluster(
            STORAGE,
            "storageclasses",
            "io.k8s.api.storage.v1.StorageClass",
        )
    },
    Row {
        flags: &[RequiresVersion, ReturnsDeleted],
        status: STATUS_ONLY,
        columns: columns::VOLUME_ATTACHMENT,
        ..cluster(
            STORAGE,
            "volumeattachments",
            "io.k8s.api.storage.v1.VolumeAttachment",
        )
    },
    Row {
        short_names: &["vac"],
        flags: &[ReturnsDeleted],
        columns: columns::VOLUME_ATTRIBUTES_CLASS,
        ..cluster(
            STORAGE,
            "volumeattributesclasses",
            "io.k8s.api.storage.v1.VolumeAttributesClass",
        )
    },
    webhooks(
        "mutatingwebhookconfigurations",
        "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
    ),
    Row {
        status: STATUS_ONLY,
        columns: columns::ADMISSION_POLICY,
        ..policy(
            "validatingadmissionpolicies",
            "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
        )
    },
    Row {
        columns: columns::ADMISSION_POLICY_BINDING,
        ..policy(
            "validatingadmissionpolicybindings",
            "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
        )
    },
    webhooks(
        "validatingwebhookconfigurations",
        "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
    ),
    Row {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        flags: &[RequiresVersion],
        generation: Generation::Spec,
        // Includes metadata: the real server intends to ignore it, but does not.
        status: Some(StatusRule {
            labels: true,
            annotations: true,
            finalizers: true,
        }),
        columns: columns::DEFINITION,
        prepare: crd::prepare,
        validate: crd::validate,
        ..cluster(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        )
    },
    Row {
        short_names: &["pc"],
        generation: Generation::Deletion,
        columns: columns::PRIORITY_CLASS,
        validate: checks::priority_class,
        ..cluster(
            "scheduling.k8s.io",
            "priorityclasses",
            "io.k8s.api.scheduling.v1.PriorityClass",
        )
    },
    Row {
        flags: &[RequiresVersion, CreateOnUpdate],
        columns: columns::LEASE,
        prepare: prepare::lease,
        validate: validate::lease,
        ..namespaced(
            "coordination.k8s.io",
            "leases",
            "io.k8s.api.coordination.v1.Lease",
        )
    },
    Row {
        flags: &[RequiresVersion, CreateOnUpdate],
        columns: columns::RUNTIME_CLASS,
        ..cluster(
            "node.k8s.io",
            "runtimeclasses",
            "io.k8s.api.node.v1.RuntimeClass",
        )
    },
    Row {
        generation: Generation::SpecAnd("labels"),
        columns: columns::ENDPOINT_SLICE,
        validate: checks::endpoint_slice,
        ..namespaced(
            "discovery.k8s.io",
            "endpointslices",
            "io.k8s.api.discovery.v1.EndpointSlice",
        )
    },
];

const fn policy(plural: &'static str, definition: &'static str) -> Row {
    Row {
        categories: &["api-extensions"],
        flags: &[RequiresVersion],
        generation: Generation::Spec,
        ..cluster(ADMISSION, plural, definition)
    }
}

const fn webhooks(plural: &'static str, definition: &'static str) -> Row {
    Row {
        columns: columns::WEBHOOKS,
        prepare: prepare::webhooks,
        validate: checks::webhooks,
        ..policy(plural, definition)
    }
}

const fn autoscaler(definition: &'static str) -> Row {
    Row {
        short_names: &["hpa"],
        categories: &["all"],
        columns: columns::AUTOSCALER,
        prepare: prepare::autoscaler,
        validate: validate::autoscaler,
        ..workload("autoscaling", "horizontalpodautoscalers", definition)
    }
}
