//! Tests of the metrics page: well-formed, with controller-runtime's names.

use crate::{
    metrics_lint::{Family, lint},
    support::{Running, builder, client, server, until},
};
use anyhow::anyhow;
use k8s_openapi::api::core::v1::ConfigMap;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    admin::Admin,
    manager::ManagerHandle,
    prelude::*,
    recorder::EventType,
    testing::{Env, TestServer},
};

/// Metrics of controller-runtime that are supported: name, type and labels.
const UPSTREAM: &[(&str, &str, &[&str])] = &[
    (
        "controller_runtime_reconcile",
        "counter",
        &["controller", "result"],
    ),
    (
        "controller_runtime_reconcile_errors",
        "counter",
        &["controller"],
    ),
    (
        "controller_runtime_terminal_reconcile_errors",
        "counter",
        &["controller"],
    ),
    (
        "controller_runtime_reconcile_panics",
        "counter",
        &["controller"],
    ),
    (
        "controller_runtime_reconcile_timeouts",
        "counter",
        &["controller"],
    ),
    (
        "controller_runtime_reconcile_time_seconds",
        "histogram",
        &["controller"],
    ),
    (
        "controller_runtime_max_concurrent_reconciles",
        "gauge",
        &["controller"],
    ),
    (
        "controller_runtime_active_workers",
        "gauge",
        &["controller"],
    ),
    (
        "workqueue_depth",
        "gauge",
        &["controller", "name", "priority"],
    ),
    ("workqueue_adds", "counter", &["controller", "name"]),
    ("workqueue_retries", "counter", &["controller", "name"]),
    (
        "workqueue_queue_duration_seconds",
        "histogram",
        &["controller", "name"],
    ),
    (
        "workqueue_work_duration_seconds",
        "histogram",
        &["controller", "name"],
    ),
    (
        "workqueue_unfinished_work_seconds",
        "gauge",
        &["controller", "name"],
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "gauge",
        &["controller", "name"],
    ),
    ("leader_election_master_status", "gauge", &["name"]),
    ("leader_election_slowpath", "counter", &["name"]),
    (
        "rest_client_requests",
        "counter",
        &["code", "host", "method"],
    ),
    ("certwatcher_read_certificate", "counter", &[]),
    ("certwatcher_read_certificate_errors", "counter", &[]),
];

/// Metrics of controller-runtime that are not supported, with the reason.
const NOT_HERE: &[(&str, &str)] = &[
    ("rest_client_request_duration_seconds", "opt-in upstream"),
    (
        "rest_client_dns_resolution_duration_seconds",
        "opt-in upstream; kube's connector does not report it",
    ),
    ("rest_client_request_size_bytes", "opt-in upstream"),
    (
        "rest_client_response_size_bytes",
        "opt-in upstream; watches have no size",
    ),
    (
        "rest_client_rate_limiter_duration_seconds",
        "there is no client-side rate limiter",
    ),
    (
        "rest_client_request_retries_total",
        "opt-in upstream; kube's client retries out of sight",
    ),
    (
        "controller_runtime_webhook_requests_total",
        "no webhooks yet",
    ),
    (
        "controller_runtime_webhook_requests_in_flight",
        "no webhooks yet",
    ),
    (
        "controller_runtime_webhook_latency_seconds",
        "no webhooks yet",
    ),
    ("controller_runtime_webhook_panics_total", "no webhooks yet"),
    (
        "controller_runtime_conversion_webhook_panics_total",
        "no webhooks yet",
    ),
    (
        "go_*, process_*",
        "of Go's runtime; tokio's and the process's are for the program to register",
    ),
];

/// Metrics that controller-runtime does not have.
const OURS: &[(&str, &str, &[&str])] = &[
    ("steersman_cache_objects", "gauge", CACHE),
    ("steersman_cache_bytes", "gauge", CACHE),
    ("steersman_cache_largest_object_bytes", "gauge", CACHE),
    ("steersman_cache_events_per_second", "gauge", CACHE),
    ("steersman_cache_handler_behind", "gauge", CACHE),
    ("steersman_cache_since_last_event_seconds", "gauge", CACHE),
    ("steersman_cache_since_heard_seconds", "gauge", CACHE),
    ("steersman_cache_own_write_lag_seconds", "gauge", CACHE),
    (
        "steersman_source_events",
        "counter",
        &["controller", "source"],
    ),
    (
        "steersman_source_dropped",
        "counter",
        &["controller", "source"],
    ),
    (
        "steersman_workqueue_retry_delay_seconds",
        "histogram",
        &["controller", "name"],
    ),
    (
        "steersman_workqueue_oldest_seconds",
        "gauge",
        &["controller", "name", "priority"],
    ),
    (
        "steersman_events_dropped",
        "counter",
        &["reason", "reporter"],
    ),
];
const CACHE: &[&str] = &["cluster", "group", "kind", "scope", "version"];

/// Starts a manager with all parts that have metrics, and lets it do some work.
async fn running_manager(
    builder: steersman::manager::ManagerBuilder,
    admin: Admin,
) -> anyhow::Result<(ManagerHandle, Running)> {
    let manager = builder.leader_election("operator", "default").build()?;
    manager.serve_admin(admin)?;
    let recorder = manager.recorder("painter")?;
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    manager
        .controller("maps")
        .for_::<ConfigMap>()
        .reconcile(reconcile::from_fn(move |_: Request, _| {
            let first = counted.fetch_add(1, Relaxed) == 0;
            std::future::ready(if first {
                Err(anyhow!("not yet"))
            } else {
                Ok(Outcome::done())
            })
        }))?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    let map = serde_json::json!({"metadata": {"generateName": "colors-", "namespace": "default"}});
    let map: ConfigMap = handle
        .client()
        .create(&serde_json::from_value(map)?)
        .await?;
    recorder.event(&map, EventType::Normal, "Created", "Create", "created");
    until(|| runs.load(Relaxed) > 1 && recorder.stats().written > 0).await;
    Ok((handle, running))
}

fn admin(directory: &tempfile::TempDir) -> anyhow::Result<Admin> {
    let signed = steersman_apiserver::Authority::generate()?.server_certificate()?;
    let files = steersman::admin::TlsFiles::in_directory(directory);
    std::fs::write(&files.certificate, signed.certificate_pem)?;
    std::fs::write(&files.key, signed.key_pem)?;
    Ok(Admin {
        address: "127.0.0.1:0".parse()?,
        tls: Some(files),
        ..Admin::default()
    })
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_valid_and_upstream_metrics_have_upstream_names_types_and_labels()
-> anyhow::Result<()> {
    let (server, directory) = (server(), tempfile::tempdir()?);
    let (handle, running) = running_manager(builder(&server), admin(&directory)?).await?;
    let text = handle.metrics_page();
    let families = lint(&text).unwrap_or_else(|problems| panic!("{problems:#?} in\n{text}"));
    for (name, kind, labels) in UPSTREAM.iter().chain(OURS) {
        let family = families.iter().find(|family| family.name == *name);
        let Family {
            kind: is,
            labels: has,
            ..
        } = family.unwrap_or_else(|| panic!("no {name} in\n{text}"));
        assert!(is == kind && has == labels, "{name}: {is} {has:?}");
    }
    for (name, why) in NOT_HERE {
        assert!(
            !families.iter().any(|family| name.starts_with(&family.name)),
            "{name}, {why}"
        );
    }
    let foreign = |family: &&Family| {
        !family.name.starts_with("steersman_")
            && !UPSTREAM.iter().any(|(name, ..)| *name == family.name)
    };
    assert_eq!(
        families.iter().find(foreign).map(|family| &family.name),
        None,
        "new names have a prefix"
    );
    running.stop().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn metrics_count_reconciles_requests_and_events() -> anyhow::Result<()> {
    let (server, directory) = (server(), tempfile::tempdir()?);
    let (handle, running) = running_manager(builder(&server), admin(&directory)?).await?;
    let text = handle.metrics_page();
    for series in [
        r#"controller_runtime_reconcile_total{controller="maps",result="error"} 1"#,
        r#"controller_runtime_reconcile_total{controller="maps",result="requeue_after"} 0"#,
        r#"controller_runtime_reconcile_errors_total{controller="maps"} 1"#,
        r#"steersman_workqueue_retry_delay_seconds_count{name="maps",controller="maps"} 1"#,
        r#"leader_election_master_status{name="operator"} 1.0"#,
        // The config map, the event and the Lease.
        r#"rest_client_requests_total{code="201",method="POST",host=""} 3"#,
        r#"steersman_events_recorded_total{reporter="painter"} 1"#,
        r#"steersman_cache_objects{cluster="",group="",version="v1",kind="ConfigMap",scope=""} 1.0"#,
        "certwatcher_read_certificate_total 1",
    ] {
        assert!(
            text.lines().any(|line| line == series),
            "{series} in\n{text}"
        );
    }
    running.stop().await?;
    let after = handle.metrics_page();
    assert!(
        !after.contains("controller=\"maps\""),
        "those of a controller that has ended are gone:\n{after}"
    );
    Ok(())
}

#[test]
fn requests_are_counted_by_host() {
    steersman::testing::run_real(|env: Env| async move {
        let Env::Real(real) = &env else {
            panic!("not the real one")
        };
        let config = real.environment().config();
        let host = config
            .cluster_url
            .authority()
            .expect("an address")
            .to_string();
        let namespace = env.namespace("metrics").await?;
        let client = Client::new(config)?;
        let metrics = steersman::client::ClientMetrics::new(&client);
        let map = serde_json::json!({"metadata": {"name": "colors", "namespace": namespace}});
        client
            .create::<ConfigMap>(&serde_json::from_value(map)?)
            .await?;
        assert!(
            client
                .get::<ConfigMap>(&ObjectKey::new(&namespace, "none"))
                .await?
                .is_none()
        );
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(metrics));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry)?;
        for (code, method) in [("201", "POST"), ("404", "GET")] {
            let series = format!(
                "rest_client_requests_total{{code=\"{code}\",method=\"{method}\",host=\"{host}\"}} 1"
            );
            assert!(
                page.lines().any(|line| line == series),
                "{series} in\n{page}"
            );
        }
        anyhow::Ok(())
    });
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_counted_without_a_status_code() -> anyhow::Result<()> {
    let server = server();
    let client = Client::new(client(&server))?;
    let metrics = steersman::client::ClientMetrics::new(&client);
    server
        .faults()
        .add(steersman_apiserver::Fault::on("get configmaps").delay(Duration::from_mins(1)));
    let key = ObjectKey::new("default", "colors");
    let asked = tokio::time::timeout(Duration::from_secs(1), client.get::<ConfigMap>(&key)).await;
    assert!(asked.is_err(), "the response takes a minute");
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(metrics));
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry)?;
    assert!(
        page.contains(r#"rest_client_requests_total{code="<error>",method="GET",host=""} 1"#),
        "{page}"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn metrics_measure_requeue_delays() {
    let metrics = steersman::workqueue::Prometheus::default();
    let queue = WorkQueue::new(steersman::workqueue::QueueOptions {
        name: "q".into(),
        metrics: Some(Arc::new(metrics)),
        ..steersman::workqueue::QueueOptions::default()
    });
    queue.add_with(
        "a",
        Add {
            after: Some(Duration::from_secs(5)),
            ..Add::default()
        },
    );
    queue.add("b");
    queue.add_with(
        "b",
        Add {
            after: Some(Duration::from_secs(7)),
            ..Add::default()
        },
    );
    let delays = queue.stats().delays;
    assert_eq!(
        (delays.count(), delays.seconds()),
        (1, 5.0),
        "one that is ready does not wait"
    );
}
