//! What is written: no more than differs, once, in order, and looked at afterwards.

use crate::{
    between::{Asked, Between, Twist},
    world::{World, until},
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
use steersman_controllers::endpoint::{CAPTControlPlane, Cluster, Phase};
use tokio::time::{Instant, sleep};

const PLANE: &str = "captcontrolplanes/plane";
const CLUSTER: &str = "clusters/plane";

impl World {
    /// With somebody between the manager and the server.
    pub(crate) async fn between(env: &Env, between: &Between) -> Result<Self> {
        Self::install(env).await?;
        let namespace = env.namespace("endpoint").await?;
        Self::begin(env, &namespace, between.client(env.client()?)).await
    }

    /// Somebody else writes to the cluster.
    pub(crate) async fn set_cluster(&self, endpoint: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": endpoint}}));
        self.client.patch::<Cluster>(&self.key("plane"), &patch).await?;
        Ok(())
    }
}

steersman::env_test! {
    async fn an_endpoint_is_one_merge_patch_to_each_and_the_control_plane_is_first(env: Env) -> Result<()> {
        let between = Between::seeing();
        let world = World::between(&env, &between).await?;
        world.make_workspace(None).await?;
        // The second differs in its host alone.
        for (host, patch) in [
            ("one.example.com", json!({"host": "one.example.com", "port": 443})),
            ("two.example.com", json!({"host": "two.example.com"})),
        ] {
            let before = between.asked().len();
            world.set_outputs(json!({"cluster_endpoint": host})).await?;
            world.until_propagated(&format!("{host}:443")).await?;
            let mut written = between.asked().split_off(before);
            written.retain(|asked| asked.body["spec"] != Value::Null);
            assert_eq!(written.iter().map(|asked| &*asked.path).collect::<Vec<_>>(), [PLANE, CLUSTER]);
            for Asked { method, path, mut body } in written {
                assert_eq!(method, Method::PATCH, "{path}");
                assert!(body["metadata"]["resourceVersion"].take().is_string(), "{path}");
                let expected = json!({"metadata": {"resourceVersion": null}, "spec": {"controlPlaneEndpoint": patch}});
                assert_eq!(body, expected, "{path}: what differs, and nothing else");
            }
        }
        world.stop().await
    }

    async fn an_endpoint_is_cleared_by_null(env: Env) -> Result<()> {
        let between = Between::seeing();
        let world = World::between(&env, &between).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await?;
        world.client.delete::<CAPTControlPlane>(&world.key("plane")).await?;
        until(async || Ok(world.client.get::<CAPTControlPlane>(&world.key("plane")).await?.is_none())).await?;
        let asked = between.asked();
        let last = asked.iter().rfind(|asked| asked.is(&Method::PATCH, CLUSTER)).context("it was cleared")?;
        assert_eq!(last.body["spec"], json!({"controlPlaneEndpoint": null}));
        world.stop().await
    }

    async fn what_is_cleared_is_decided_by_the_server_and_not_from_memory(env: Env) -> Result<()> {
        // As it is when the cache is behind: somebody else's is there already.
        let between = Between::new(|asked| {
            if !asked.is(&Method::GET, CLUSTER) {
                return Twist::Nothing;
            }
            Twist::Changed(|answer| answer["spec"]["controlPlaneEndpoint"]["host"] = "other.example.com".into())
        });
        let world = World::between(&env, &between).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await?;
        let written = between.count(&Method::PATCH, CLUSTER);
        world.client.delete::<CAPTControlPlane>(&world.key("plane")).await?;
        until(async || Ok(world.client.get::<CAPTControlPlane>(&world.key("plane")).await?.is_none())).await?;
        assert_eq!((between.count(&Method::GET, CLUSTER), between.count(&Method::PATCH, CLUSTER)), (1, written));
        world.stop().await
    }

    async fn an_endpoint_that_is_not_there_after_it_was_written_is_written_again(env: Env) -> Result<()> {
        let twisted = AtomicBool::new(false);
        let between = Between::new(move |asked| {
            if asked.is(&Method::PATCH, PLANE) && asked.body["spec"] != Value::Null && !twisted.swap(true, Relaxed) {
                return Twist::Changed(|answer| answer["spec"]["controlPlaneEndpoint"]["host"] = "other.example.com".into());
            }
            Twist::Nothing
        });
        let world = World::between(&env, &between).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await?;
        let page = world.manager.metrics_page();
        assert!(page.contains(r#"capt_endpoint_propagation_total{target="controlplane",result="error"} 1"#), "{page}");
        assert!(page.contains(r#"controller_runtime_reconcile_errors_total{controller="endpoint"} 1"#), "{page}");
        assert!(page.contains(r#"capt_endpoint_propagation_total{target="cluster",result="success"} 1"#), "{page}");
        world.stop().await
    }

    async fn who_says_when_to_come_back_is_left_alone_until_then(env: Env) -> Result<()> {
        let refused = AtomicBool::new(false);
        let between = Between::new(move |asked| {
            if !asked.is(&Method::PATCH, CLUSTER) || refused.swap(true, Relaxed) {
                return Twist::Nothing;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409,
                "message": "not now", "details": {"retryAfterSeconds": 1},
            });
            Twist::Instead(StatusCode::CONFLICT, status)
        });
        let world = World::between(&env, &between).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await?;
        let page = world.manager.metrics_page();
        assert!(page.contains("capt_endpoint_retries_total 0"), "no worker waits: {page}");
        assert_eq!(between.count(&Method::PATCH, CLUSTER), 2);
        world.stop().await
    }

    async fn a_failure_is_said_and_one_that_is_over_at_once_does_not_unready(env: Env) -> Result<()> {
        const FAILED: &str = "EndpointUpdateFailed";
        // How many are refused from now on.
        let refusals = Arc::new(AtomicUsize::new(usize::MAX));
        let left = refusals.clone();
        let between = Between::new(move |asked| {
            let is_refused = || left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
            if !asked.is(&Method::PATCH, CLUSTER) || !is_refused() {
                return Twist::Nothing;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500,
                "message": "something is wrong here",
            });
            Twist::Instead(StatusCode::INTERNAL_SERVER_ERROR, status)
        });
        let said = || between.asked().iter().filter(|asked| asked.body.to_string().contains(FAILED)).count();
        let world = World::between(&env, &between).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_reason(FAILED).await?;
        let status = world.plane().await?.status.context("it is said")?;
        assert_eq!((status.ready, status.phase, status.failure_reason), (false, Some(Phase::Creating), None));
        let words = status.conditions.into_iter().map(|it| it.message).collect::<String>();
        assert_eq!(words, "Cluster cannot be written: InternalError; it is tried again");
        refusals.store(0, Relaxed);
        world.until_propagated("one.example.com:443").await?;

        let before = said();
        refusals.store(1, Relaxed);
        world.set_outputs(json!({"cluster_endpoint": "two.example.com"})).await?;
        world.until_propagated("two.example.com:443").await?;
        assert_eq!((refusals.load(Relaxed), said()), (0, before), "it was refused, and nobody was told");

        refusals.store(usize::MAX, Relaxed);
        world.set_outputs(json!({"cluster_endpoint": "three.example.com"})).await?;
        world.until_reason(FAILED).await?;
        assert!(!world.plane().await?.status.context("it is said")?.ready);
        refusals.store(0, Relaxed);
        world.until_propagated("three.example.com:443").await?;
        world.stop().await
    }

    async fn what_becomes_invalid_is_said_and_nothing_else_is_touched(env: Env) -> Result<()> {
        let between = Between::seeing();
        let world = World::between(&env, &between).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await?;
        let writes = || (between.count(&Method::PATCH, PLANE), between.count(&Method::PATCH, CLUSTER));
        let before = writes();
        world.set_outputs(json!({"cluster_endpoint": "ftp://one.example.com"})).await?;
        world.until_reason("InvalidEndpoint").await?;
        let status = world.plane().await?.status.context("it is said")?;
        assert_eq!((status.ready, status.initialized, status.phase), (false, true, Some(Phase::Failed)));
        let kept = Some("one.example.com:443".to_owned());
        assert_eq!(world.endpoints().await?, (kept.clone(), kept));
        assert_eq!(writes(), before, "only the status");
        world.stop().await
    }

    async fn who_replaces_an_endpoint_says_so_once(env: Env) -> Result<()> {
        let world = World::new(&env).await?;
        let events = async || {
            let events = world.client.list(&Query::<Event>::default()).await?;
            let notes = events.iter().filter(|event| event.reason.as_deref() == Some("EndpointReplaced"));
            anyhow::Ok(notes.filter_map(|event| event.note.clone()).collect::<Vec<_>>())
        };
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await?;
        world.set_cluster(json!({"host": "other.example.com", "port": 6443})).await?;
        world.until_propagated("one.example.com:443").await?;
        until(async || Ok(!events().await?.is_empty())).await?;
        let notes = events().await?;
        assert_eq!(notes.len(), 1, "what was empty is not replaced: {notes:?}");
        assert!(notes[0].contains("other.example.com:6443 is replaced by one.example.com:443"), "{notes:?}");
        world.stop().await
    }

    async fn an_endpoint_that_is_there_in_part_is_none(env: Env) -> Result<()> {
        for part in [json!({}), json!({"host": "", "port": 0}), json!({"host": "half.example.com"})] {
            let world = World::new(&env).await?;
            world.set_cluster(part.clone()).await?;
            world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
            world.until_propagated("one.example.com:443").await.context(part)?;
            let client = world.client.clone();
            // What was said is written by then.
            world.stop().await?;
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
    let noted = failures.clone();
    let between = Between::new(move |asked| {
        if !asked.is(&Method::PATCH, CLUSTER) {
            return Twist::Nothing;
        }
        noted.lock().push(Instant::now());
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500,
            "message": "injected failure",
        });
        Twist::Instead(StatusCode::INTERNAL_SERVER_ERROR, status)
    });
    let world = World::between(&env, &between).await?;
    world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
    sleep(Duration::from_mins(30)).await;
    let failures = failures.lock().clone();
    let delays: Vec<_> = failures.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    // The condition that is written after the second failure causes a reconcile at once.
    let delays: Vec<_> = delays.into_iter().filter(|delay| *delay > 0.5).collect();
    let expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(f64::from);
    assert!(delays.len() >= expected.len(), "{delays:?}");
    for (delay, expected) in delays.iter().zip(expected) {
        assert!((expected..=expected * 1.1 + 0.01).contains(delay), "{expected} in {delays:?}");
    }
    world.stop().await
}
