//! Fault injection tests.
//!
//! The final state is the same for each single request that fails, in every way.
//!
//! Each scenario first runs without faults, and every request of the controller is recorded. Then it
//! runs again for each request and each kind of fault. The runs are deterministic: a failure names
//! the request and the fault, and can be repeated.

use crate::{
    fault_proxy::{Call, FaultKind, FaultProxy, RecordedCall},
    fixture::{Fixture, until},
};
use anyhow::{Context as _, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use rand::{SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    prelude::*,
    testing::{Embedded, Env, TestServer, run_real, seed_jitter},
};
use steersman_apiserver::{ApiServer, Options};
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{self, CAPTControlPlane},
};
use steersman_testkit::{Seeds, this_test};
use tokio::time::{sleep, timeout};

/// Sequence of external changes, and the expected effects.
///
/// Each step waits for the effect of the previous one.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    Outputs,
    Rotation,
    Deletion,
    /// All steps, from creation to deletion.
    Lifecycle,
}

impl Scenario {
    async fn run(self, fixture: &Fixture) -> anyhow::Result<()> {
        fixture.until_reason("WorkspaceNotReady").await?;
        match self {
            Self::Outputs => outputs(fixture).await,
            Self::Rotation => rotation(fixture).await,
            Self::Deletion => {
                outputs(fixture).await?;
                deletion(fixture).await
            }
            Self::Lifecycle => {
                rotation(fixture).await?;
                deletion(fixture).await
            }
        }
    }
}

async fn outputs(fixture: &Fixture) -> anyhow::Result<()> {
    fixture
        .make_workspace(Some(json!({"cluster_endpoint": "one.example.com"})))
        .await?;
    until_reported(fixture, "one.example.com:443").await
}

async fn rotation(fixture: &Fixture) -> anyhow::Result<()> {
    fixture
        .make_workspace(Some(json!({"cluster_endpoint": ""})))
        .await?;
    fixture.until_reason("EndpointNotReady").await?;
    fixture.set_secret("https://one.example.com:6443").await?;
    until_reported(fixture, "one.example.com:6443").await?;
    fixture.set_secret("https://two.example.com").await?;
    until_reported(fixture, "two.example.com:443").await
}

async fn deletion(fixture: &Fixture) -> anyhow::Result<()> {
    let key = fixture.key("plane");
    fixture.client.delete::<CAPTControlPlane>(&key).await?;
    until(async || {
        Ok(fixture
            .client
            .get::<CAPTControlPlane>(&key)
            .await?
            .is_none())
    })
    .await
}

/// Waits until the status shows `endpoint`. The status is written last.
async fn until_reported(fixture: &Fixture, endpoint: &str) -> anyhow::Result<()> {
    until(async || {
        let status = fixture.plane().await?.status.unwrap_or_default();
        Ok(status
            .conditions
            .iter()
            .any(|condition| condition.message.starts_with(endpoint)))
    })
    .await
}

/// Namespace of a scenario, and the resource version before its first change.
struct ScenarioStart {
    namespace: String,
    start_version: String,
}

impl ScenarioStart {
    async fn set(env: &Env) -> anyhow::Result<Self> {
        let namespace = env.namespace("chaos").await?;
        let key = ObjectKey::cluster_scoped(&namespace);
        let created = Client::new(env.client()?)?
            .get::<Namespace>(&key)
            .await?
            .expect("the namespace exists");
        Ok(Self {
            namespace,
            start_version: created
                .metadata
                .resource_version
                .clone()
                .expect("a resource version"),
        })
    }
}

struct Timeouts {
    /// Time limit of a scenario.
    limit: Duration,
    /// Delay of each watch event.
    delay: Duration,
    /// Time after the end of a scenario in which the state must not change.
    rest: Duration,
}

/// Result of a scenario.
struct End {
    state: Value,
    calls: Vec<RecordedCall>,
}

async fn run_scenario(
    env: &Env,
    start: &ScenarioStart,
    scenario: Scenario,
    timeouts: &Timeouts,
    faults: &[(Call, FaultKind)],
) -> anyhow::Result<End> {
    let ScenarioStart {
        namespace,
        start_version,
    } = start;
    let proxy = FaultProxy::new(env.client()?, start_version, timeouts.delay, faults);
    let fixture = Fixture::begin(env, namespace, proxy.client()).await?;
    let result = timeout(timeouts.limit, scenario.run(&fixture)).await;
    let state = state(&fixture).await?;
    result.with_context(|| format!("no progress after {state:#}"))??;
    sleep(timeouts.rest).await;
    let later = self::state(&fixture).await?;
    ensure!(
        later == state,
        "state changed after the end from {state:#} to {later:#}"
    );
    fixture.stop().await?;
    Ok(End {
        state,
        calls: proxy.calls(),
    })
}

/// Returns everything that the controller writes, except for times.
///
/// The generations count the writes to each spec.
async fn state(fixture: &Fixture) -> anyhow::Result<Value> {
    let key = fixture.key("plane");
    let plane = fixture.client.get::<CAPTControlPlane>(&key).await?.map(|plane| {
        let mut status = json!(plane.status);
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"].take();
        }
        let meta = &plane.metadata;
        json!({"spec": plane.spec, "status": status, "finalizers": meta.finalizers, "generation": meta.generation})
    });
    let cluster = fixture
        .client
        .get::<Cluster>(&key)
        .await?
        .context("the Cluster is never deleted")?;
    Ok(
        json!({"plane": plane, "cluster": {"spec": cluster.spec, "generation": cluster.metadata.generation}}),
    )
}

impl End {
    /// Counts the successful requests of this kind.
    fn count(&self, what: &str) -> usize {
        let is_done = |recorded: &&RecordedCall| {
            recorded.call.request_kind == what && recorded.code.is_some_and(|code| code < 300)
        };
        self.calls.iter().filter(is_done).count()
    }

    fn find(&self, call: &Call) -> Option<&RecordedCall> {
        self.calls.iter().find(|recorded| recorded.call == *call)
    }

    /// Asserts that state and writes equal those of the run without faults.
    ///
    /// Each fault may cause one more status write. The event after a write is lost if the
    /// controller does not learn that the write succeeded.
    fn assert_same_as(&self, baseline: &Self, faults: &[(Call, FaultKind)]) -> anyhow::Result<()> {
        for (call, _) in faults
            .iter()
            .filter(|(call, kind)| *kind == FaultKind::Stale && call.is_write())
        {
            let over_others = self
                .find(call)
                .and_then(|recorded| recorded.code)
                .is_some_and(|code| code < 300);
            ensure!(!over_others, "a stale write overwrote a concurrent change");
        }
        ensure!(
            self.state == baseline.state,
            "state {:#}, expected {:#}",
            self.state,
            baseline.state
        );
        for once in ["patch captcontrolplanes", "patch clusters"] {
            let (count, wanted) = (self.count(once), baseline.count(once));
            ensure!(
                count == wanted,
                "`{once}` was sent {count} times, expected {wanted}"
            );
        }
        for (what, more) in [
            ("patch captcontrolplanes/status", faults.len()),
            ("create events", 0),
        ] {
            let (count, most) = (self.count(what), baseline.count(what) + more);
            ensure!(
                count <= most,
                "`{what}` was sent {count} times, expected at most {most}"
            );
        }
        Ok(())
    }
}

/// Returns the faults for a request. A watch can break after each of its events.
fn fault_kinds(call: &Call, events: usize) -> Vec<FaultKind> {
    let mut fault_kinds = vec![
        FaultKind::TooMany,
        FaultKind::Internal,
        FaultKind::Timeout,
        FaultKind::Lost,
    ];
    // Creations have no previous version. A cluster that is cleared is read from the server, which
    // never returns a stale version.
    if !call.request_kind.starts_with("create") && call.request_kind != "get clusters" {
        fault_kinds.extend([FaultKind::Conflict, FaultKind::Stale]);
    }
    fault_kinds.extend((0..=events).map(FaultKind::Dropped));
    fault_kinds
}

/// Scenario that can be repeated from its `start_version`, on a paused clock.
struct RepeatableScenario {
    server: ApiServer,
    start: ScenarioStart,
    scenario: Scenario,
}

impl RepeatableScenario {
    async fn new(scenario: Scenario) -> anyhow::Result<Self> {
        let server = ApiServer::new(Options::default())?;
        let env = Env::Embedded(Embedded::new(server.clone()));
        env.install(
            endpoint::definitions()
                .into_iter()
                .chain(endpoint::dependencies()),
        )
        .await?;
        Ok(Self {
            server,
            start: ScenarioStart::set(&env).await?,
            scenario,
        })
    }

    /// Runs the scenario. Waits for two periodic reconciles before it checks the end.
    async fn run(&self, faults: &[(Call, FaultKind)]) -> anyhow::Result<End> {
        const TIMEOUTS: Timeouts = Timeouts {
            limit: Duration::from_mins(10),
            delay: Duration::from_secs(2),
            rest: Duration::from_mins(1),
        };
        let env = Env::Embedded(Embedded::new(self.server.fork()));
        run_scenario(&env, &self.start, self.scenario, &TIMEOUTS, faults)
            .await
            .with_context(|| format!("{faults:?}"))
    }
}

/// Repeats a scenario for each of its requests with each kind of fault.
///
/// Skips requests that are already covered by the scenario `before`.
async fn fail_every_call(scenario: Scenario, before: Option<Scenario>) -> anyhow::Result<()> {
    let scenario_runner = RepeatableScenario::new(scenario).await?;
    let baseline = scenario_runner.run(&[]).await?;
    let known = match before {
        Some(before) => RepeatableScenario::new(before).await?.run(&[]).await?.calls,
        None => Vec::new(),
    };
    let is_new = |recorded: &&RecordedCall| {
        !known
            .iter()
            .any(|old| old.call == recorded.call && old.events == recorded.events)
    };
    for RecordedCall { call, events, .. } in baseline.calls.iter().filter(is_new) {
        for kind in fault_kinds(call, *events) {
            let faults = [(call.clone(), kind)];
            let end = scenario_runner.run(&faults).await?;
            end.find(call)
                .with_context(|| format!("no request matches {faults:?}"))?;
            end.assert_same_as(&baseline, &faults)
                .with_context(|| format!("{faults:?}"))?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn outputs_are_propagated_whichever_call_fails() -> anyhow::Result<()> {
    fail_every_call(Scenario::Outputs, None).await
}

#[tokio::test(start_paused = true)]
async fn a_rotated_secret_is_propagated_whichever_call_fails() -> anyhow::Result<()> {
    fail_every_call(Scenario::Rotation, None).await
}

#[tokio::test(start_paused = true)]
async fn a_deletion_clears_the_endpoint_whichever_call_fails() -> anyhow::Result<()> {
    fail_every_call(Scenario::Deletion, Some(Scenario::Outputs)).await
}

/// Fails each write of a complete life in every way, with concurrent lives.
///
/// Nothing is written after a life, so there is no quiet period.
async fn writes_on_real(env: Env) -> anyhow::Result<()> {
    const TIMEOUTS: Timeouts = Timeouts {
        limit: Duration::from_mins(1),
        delay: Duration::from_millis(300),
        rest: Duration::ZERO,
    };
    const CONCURRENT_LIFECYCLES: usize = 12;
    env.install(
        endpoint::definitions()
            .into_iter()
            .chain(endpoint::dependencies()),
    )
    .await?;
    let env = &env;
    let run_lifecycle = async |faults: &[_]| {
        run_scenario(
            env,
            &ScenarioStart::set(env).await?,
            Scenario::Lifecycle,
            &TIMEOUTS,
            faults,
        )
        .await
    };
    let baseline = &run_lifecycle(&[]).await?;
    // Writes of every life: finalizer, endpoints and release; the two endpoints of the cluster and
    // their removal; the status after each; and the event about the replaced endpoint.
    let writes = [
        ("patch captcontrolplanes", 4),
        ("patch clusters", 3),
        ("patch captcontrolplanes/status", 4),
        ("create events", 1),
    ];
    let calls = writes.iter().flat_map(|(what, count)| {
        (0..*count).map(|before| Call {
            request_kind: (*what).into(),
            before,
        })
    });
    let cases = calls.flat_map(|call| {
        fault_kinds(&call, 0)
            .into_iter()
            .map(move |kind| (call.clone(), kind))
    });
    let cases = cases.map(|fault| async move {
        let faults = [fault];
        let end = run_lifecycle(&faults).await;
        let same = end.and_then(|end| {
            end.find(&faults[0].0)
                .context("the faulty call did not happen")?;
            end.assert_same_as(baseline, &faults)
        });
        same.with_context(|| format!("{faults:?}"))
    });
    stream::iter(cases)
        .buffer_unordered(CONCURRENT_LIFECYCLES)
        .try_collect()
        .await
}

#[test]
fn a_lifecycle_on_the_real_server_has_the_same_result_whichever_write_fails() {
    run_real(writes_on_real);
}

/// Fails one request and then a later one.
///
/// The later one may exist only because of the first failure.
async fn fail_two_calls(
    scenario_runner: &RepeatableScenario,
    baseline: &End,
    random: &mut StdRng,
) -> anyhow::Result<()> {
    let mut pick = |calls: &[RecordedCall]| {
        let RecordedCall { call, events, .. } = calls.choose(random)?;
        Some((call.clone(), *fault_kinds(call, *events).choose(random)?))
    };
    let first = pick(&baseline.calls).context("a request")?;
    let end = scenario_runner.run(std::slice::from_ref(&first)).await?;
    let failed_at = end
        .calls
        .iter()
        .position(|recorded| recorded.call == first.0)
        .context("the faulty call did not happen")?;
    let faults: Vec<_> = [Some(first), pick(&end.calls[failed_at + 1..])]
        .into_iter()
        .flatten()
        .collect();
    scenario_runner
        .run(&faults)
        .await?
        .assert_same_as(baseline, &faults)
        .with_context(|| format!("{faults:?}"))
}

#[test]
fn soak_a_lifecycle_has_the_same_result_if_two_calls_fail() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(async {
        let scenario_runner = RepeatableScenario::new(Scenario::Lifecycle).await?;
        let baseline = scenario_runner.run(&[]).await?;
        for seed in Seeds::new(this_test!(), 20) {
            let _seeded = seed_jitter(seed);
            fail_two_calls(
                &scenario_runner,
                &baseline,
                &mut StdRng::seed_from_u64(seed),
            )
            .await?;
        }
        Ok(())
    })
}
