//! Tests of writes: minimal, in order, once, and verified.

use crate::{
    fixture::{Fixture, until},
    recording_proxy::{RecordedRequest, RecordingProxy, Treatment},
};
use anyhow::{Context, Result};
use http::{Method, StatusCode};
use k8s_openapi::api::events::v1::Event;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    cache::Query,
    client::Patch,
    testing::{Env, TestServer},
};
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{CAPTControlPlane, Phase},
};
use tokio::time::{Instant, sleep};

const PLANE: &str = "captcontrolplanes/plane";
const CLUSTER: &str = "clusters/plane";

impl Fixture {
    /// Creates a fixture whose manager uses the proxy.
    pub(crate) async fn with_proxy(env: &Env, proxy: &RecordingProxy) -> Result<Self> {
        Self::install(env).await?;
        let namespace = env.namespace("endpoint").await?;
        Self::begin(env, &namespace, proxy.client(env.client()?)).await
    }

    /// Writes to the Cluster as another client.
    pub(crate) async fn set_cluster(&self, endpoint: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": endpoint}}));
        self.client
            .patch::<Cluster>(&self.key("plane"), &patch)
            .await?;
        Ok(())
    }
}

steersman::env_test! {
    async fn an_endpoint_is_one_merge_patch_per_object_control_plane_first(env: Env) -> Result<()> {
        let proxy = RecordingProxy::recording();
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        fixture.make_workspace(None).await?;
        // The second differs only in its host.
        for (host, patch) in [
            ("one.example.com", json!({"host": "one.example.com", "port": 443})),
            ("two.example.com", json!({"host": "two.example.com"})),
        ] {
            let before = proxy.requests().len();
            fixture.set_outputs(json!({"cluster_endpoint": host})).await?;
            fixture.until_propagated(&format!("{host}:443")).await?;
            let mut written = proxy.requests().split_off(before);
            written.retain(|request| request.body["spec"] != Value::Null);
            assert_eq!(written.iter().map(|request| &*request.path).collect::<Vec<_>>(), [PLANE, CLUSTER]);
            for RecordedRequest { method, path, mut body } in written {
                assert_eq!(method, Method::PATCH, "{path}");
                assert!(body["metadata"]["resourceVersion"].take().is_string(), "{path}");
                let expected = json!({"metadata": {"resourceVersion": null}, "spec": {"controlPlaneEndpoint": patch}});
                assert_eq!(body, expected, "{path}: only the difference");
            }
        }
        fixture.stop().await
    }

    async fn clearing_an_endpoint_patches_null(env: Env) -> Result<()> {
        let proxy = RecordingProxy::recording();
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_propagated("one.example.com:443").await?;
        fixture.client.delete::<CAPTControlPlane>(&fixture.key("plane")).await?;
        until(async || Ok(fixture.client.get::<CAPTControlPlane>(&fixture.key("plane")).await?.is_none())).await?;
        let requests = proxy.requests();
        let last = requests.iter().rfind(|request| request.is(&Method::PATCH, CLUSTER)).context("a patch of the Cluster")?;
        assert_eq!(last.body["spec"], json!({"controlPlaneEndpoint": null}));
        fixture.stop().await
    }

    async fn clearing_compares_with_the_live_cluster(env: Env) -> Result<()> {
        // The cache lags: another client has already replaced the endpoint.
        let proxy = RecordingProxy::new(|request| {
            if !request.is(&Method::GET, CLUSTER) {
                return Treatment::Pass;
            }
            Treatment::ChangeResponse(|answer| answer["spec"]["controlPlaneEndpoint"]["host"] = "other.example.com".into())
        });
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_propagated("one.example.com:443").await?;
        let written = proxy.count(&Method::PATCH, CLUSTER);
        fixture.client.delete::<CAPTControlPlane>(&fixture.key("plane")).await?;
        until(async || Ok(fixture.client.get::<CAPTControlPlane>(&fixture.key("plane")).await?.is_none())).await?;
        assert_eq!((proxy.count(&Method::GET, CLUSTER), proxy.count(&Method::PATCH, CLUSTER)), (1, written));
        fixture.stop().await
    }

    async fn a_write_without_the_expected_result_is_repeated(env: Env) -> Result<()> {
        let was_changed = AtomicBool::new(false);
        let proxy = RecordingProxy::new(move |request| {
            if request.is(&Method::PATCH, PLANE) && request.body["spec"] != Value::Null && !was_changed.swap(true, Relaxed) {
                return Treatment::ChangeResponse(|answer| answer["spec"]["controlPlaneEndpoint"]["host"] = "other.example.com".into());
            }
            Treatment::Pass
        });
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_propagated("one.example.com:443").await?;
        let page = fixture.manager.metrics_page();
        assert!(page.contains(r#"capt_endpoint_propagation_total{target="controlplane",result="error"} 1"#), "{page}");
        assert!(page.contains(r#"controller_runtime_reconcile_errors_total{controller="endpoint"} 1"#), "{page}");
        assert!(page.contains(r#"capt_endpoint_propagation_total{target="cluster",result="success"} 1"#), "{page}");
        fixture.stop().await
    }

    async fn a_conflict_with_retry_after_is_retried_after_that_time(env: Env) -> Result<()> {
        let was_rejected = AtomicBool::new(false);
        let proxy = RecordingProxy::new(move |request| {
            if !request.is(&Method::PATCH, CLUSTER) || was_rejected.swap(true, Relaxed) {
                return Treatment::Pass;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409,
                "message": "not now", "details": {"retryAfterSeconds": 1},
            });
            Treatment::Respond(StatusCode::CONFLICT, status)
        });
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_propagated("one.example.com:443").await?;
        let page = fixture.manager.metrics_page();
        assert!(page.contains("capt_endpoint_retries_total 0"), "no wait in a worker: {page}");
        assert_eq!(proxy.count(&Method::PATCH, CLUSTER), 2);
        fixture.stop().await
    }

    async fn only_repeated_failures_are_reported(env: Env) -> Result<()> {
        const FAILED: &str = "EndpointUpdateFailed";
        // Number of requests to reject.
        let rejections = Arc::new(AtomicUsize::new(usize::MAX));
        let remaining = rejections.clone();
        let proxy = RecordingProxy::new(move |request| {
            let is_rejected = || remaining.fetch_update(Relaxed, Relaxed, |remaining| remaining.checked_sub(1)).is_ok();
            if !request.is(&Method::PATCH, CLUSTER) || !is_rejected() {
                return Treatment::Pass;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500,
                "message": "injected failure",
            });
            Treatment::Respond(StatusCode::INTERNAL_SERVER_ERROR, status)
        });
        let status_reports = || proxy.requests().iter().filter(|request| request.body.to_string().contains(FAILED)).count();
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_reason(FAILED).await?;
        let status = fixture.plane().await?.status.context("a status")?;
        assert_eq!((status.ready, status.phase, status.failure_reason), (false, Some(Phase::Creating), None));
        let message = status.conditions.into_iter().map(|it| it.message).collect::<String>();
        assert_eq!(message, "cannot write Cluster: InternalError; retrying");
        rejections.store(0, Relaxed);
        fixture.until_propagated("one.example.com:443").await?;

        let before = status_reports();
        rejections.store(1, Relaxed);
        fixture.set_outputs(json!({"cluster_endpoint": "two.example.com"})).await?;
        fixture.until_propagated("two.example.com:443").await?;
        assert_eq!((rejections.load(Relaxed), status_reports()), (0, before), "rejected once, not reported");

        rejections.store(usize::MAX, Relaxed);
        fixture.set_outputs(json!({"cluster_endpoint": "three.example.com"})).await?;
        fixture.until_reason(FAILED).await?;
        assert!(!fixture.plane().await?.status.context("a status")?.ready);
        rejections.store(0, Relaxed);
        fixture.until_propagated("three.example.com:443").await?;
        fixture.stop().await
    }

    async fn an_invalid_value_changes_only_the_status(env: Env) -> Result<()> {
        let proxy = RecordingProxy::recording();
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_propagated("one.example.com:443").await?;
        let writes = || (proxy.count(&Method::PATCH, PLANE), proxy.count(&Method::PATCH, CLUSTER));
        let before = writes();
        fixture.set_outputs(json!({"cluster_endpoint": "ftp://one.example.com"})).await?;
        fixture.until_reason("InvalidEndpoint").await?;
        let status = fixture.plane().await?.status.context("a status")?;
        assert_eq!((status.ready, status.initialized, status.phase), (false, true, Some(Phase::Failed)));
        let kept = Some("one.example.com:443".to_owned());
        assert_eq!(fixture.endpoints().await?, (kept.clone(), kept));
        assert_eq!(writes(), before, "only the status was written");
        fixture.stop().await
    }

    async fn a_replaced_endpoint_is_reported_by_one_event(env: Env) -> Result<()> {
        let fixture = Fixture::new(&env).await?;
        let events = async || {
            let events = fixture.client.list(&Query::<Event>::default()).await?;
            let notes = events.iter().filter(|event| event.reason.as_deref() == Some("EndpointReplaced"));
            anyhow::Ok(notes.filter_map(|event| event.note.clone()).collect::<Vec<_>>())
        };
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_propagated("one.example.com:443").await?;
        fixture.set_cluster(json!({"host": "other.example.com", "port": 6443})).await?;
        fixture.until_propagated("one.example.com:443").await?;
        until(async || Ok(!events().await?.is_empty())).await?;
        let notes = events().await?;
        assert_eq!(notes.len(), 1, "an empty endpoint is not reported as replaced: {notes:?}");
        assert!(notes[0].contains("endpoint other.example.com:6443 replaced by one.example.com:443"), "{notes:?}");
        fixture.stop().await
    }

    async fn a_partial_endpoint_counts_as_missing(env: Env) -> Result<()> {
        for part in [json!({"host": "half.example.com"}), json!({"port": 6443})] {
            let fixture = Fixture::new(&env).await?;
            fixture.set_cluster(part.clone()).await?;
            fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
            fixture.until_propagated("one.example.com:443").await.context(part)?;
            let client = fixture.client.clone();
            // Stopping the manager flushes its events.
            fixture.stop().await?;
            let events = client.list(&Query::<Event>::default()).await?;
            assert!(events.iter().all(|event| event.reason.as_deref() != Some("EndpointReplaced")), "{events:?}");
        }
        Ok(())
    }
}

/// With jitter, a delay is up to a tenth longer.
#[tokio::test(start_paused = true)]
async fn failures_are_retried_after_1_second_to_5_minutes() -> Result<()> {
    let env = Env::embedded()?;
    let failures = Arc::new(Mutex::new(Vec::new()));
    let recorded = failures.clone();
    let proxy = RecordingProxy::new(move |request| {
        if !request.is(&Method::PATCH, CLUSTER) {
            return Treatment::Pass;
        }
        recorded.lock().push(Instant::now());
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500,
            "message": "injected failure",
        });
        Treatment::Respond(StatusCode::INTERNAL_SERVER_ERROR, status)
    });
    let fixture = Fixture::with_proxy(&env, &proxy).await?;
    fixture
        .make_workspace(Some(json!({"cluster_endpoint": "one.example.com"})))
        .await?;
    sleep(Duration::from_mins(30)).await;
    let failures = failures.lock().clone();
    let delays: Vec<_> = failures
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64())
        .collect();
    // The condition that is written after the second failure causes a reconcile at once.
    let delays: Vec<_> = delays.into_iter().filter(|delay| *delay > 0.5).collect();
    let expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(f64::from);
    assert!(delays.len() >= expected.len(), "{delays:?}");
    for (delay, expected) in delays.iter().zip(expected) {
        assert!(
            (expected..=expected * 1.1 + 0.01).contains(delay),
            "{expected} in {delays:?}"
        );
    }
    fixture.stop().await
}
