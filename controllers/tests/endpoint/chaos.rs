//! Whichever single call goes wrong, and in whichever way, the end is the same.
//!
//! A story is told once undisturbed, and every call that the controller makes is noted. Then it is told again for each call and each way in which it can go wrong. Nothing is left to
//! chance: what fails names the call and the way, and fails again.

use crate::{
    wire::{Call, Noted, Way, Wire},
    world::{World, until},
};
use anyhow::{Context as _, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use rand::{SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    prelude::*,
    testing::{Embedded, Env, TestServer, run_real},
};
use steersman_apiserver::{ApiServer, Options};
use steersman_controllers::endpoint::{self, CAPTControlPlane, Cluster};
use steersman_testkit::{Seeds, this_test};
use tokio::time::{sleep, timeout};

/// What happens around the controller. Each step waits for what has to come of the one before.
#[derive(Clone, Copy, Debug)]
enum Story {
    Outputs,
    Rotation,
    Deletion,
    /// All of it.
    Life,
}

impl Story {
    async fn tell(self, world: &World) -> anyhow::Result<()> {
        world.until_reason("WorkspaceNotReady").await?;
        match self {
            Self::Outputs => outputs(world).await,
            Self::Rotation => rotation(world).await,
            Self::Deletion => {
                outputs(world).await?;
                deletion(world).await
            }
            Self::Life => {
                rotation(world).await?;
                deletion(world).await
            }
        }
    }
}

async fn outputs(world: &World) -> anyhow::Result<()> {
    world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
    until_said(world, "one.example.com:443").await
}

async fn rotation(world: &World) -> anyhow::Result<()> {
    world.make_workspace(Some(json!({"cluster_endpoint": ""}))).await?;
    world.until_reason("EndpointNotReady").await?;
    world.set_secret("https://one.example.com:6443").await?;
    until_said(world, "one.example.com:6443").await?;
    world.set_secret("https://two.example.com").await?;
    until_said(world, "two.example.com:443").await
}

async fn deletion(world: &World) -> anyhow::Result<()> {
    let key = world.key("plane");
    world.client.delete::<CAPTControlPlane>(&key).await?;
    until(async || Ok(world.client.get::<CAPTControlPlane>(&key).await?.is_none())).await
}

/// The status comes last.
async fn until_said(world: &World, endpoint: &str) -> anyhow::Result<()> {
    until(async || {
        let status = world.plane().await?.status.unwrap_or_default();
        Ok(status.conditions.iter().any(|condition| condition.message.starts_with(endpoint)))
    })
    .await
}

/// Where a story is told: a namespace, and the server's version before anything is in it.
struct Stage {
    namespace: String,
    beginning: String,
}

impl Stage {
    async fn set(env: &Env) -> anyhow::Result<Self> {
        let namespace = env.namespace("chaos").await?;
        let key = ObjectKey::cluster_scoped(&namespace);
        let made = Client::new(env.client()?)?.get::<Namespace>(&key).await?.expect("it was made");
        Ok(Self { namespace, beginning: made.metadata.resource_version.clone().expect("it was read") })
    }
}

/// How long a story may take, how long the wire waits, and for how long nothing may happen after the end.
struct Pace {
    limit: Duration,
    patience: Duration,
    rest: Duration,
}

/// What has come of a story.
struct End {
    state: Value,
    calls: Vec<Noted>,
}

async fn told(env: &Env, stage: &Stage, story: Story, pace: &Pace, faults: &[(Call, Way)]) -> anyhow::Result<End> {
    let Stage { namespace, beginning } = stage;
    let wire = Wire::new(env.client()?, beginning, pace.patience, faults);
    let world = World::begin(env, namespace, wire.client()).await?;
    let told = timeout(pace.limit, story.tell(&world)).await;
    let state = state(&world).await?;
    told.with_context(|| format!("it has come to a halt at {state:#}"))??;
    sleep(pace.rest).await;
    let later = self::state(&world).await?;
    ensure!(later == state, "it goes on from {state:#} to {later:#}");
    world.stop().await?;
    Ok(End { state, calls: wire.calls() })
}

/// All that the controller writes, but for times. Generations count what was written of a spec.
async fn state(world: &World) -> anyhow::Result<Value> {
    let key = world.key("plane");
    let plane = world.client.get::<CAPTControlPlane>(&key).await?.map(|plane| {
        let mut status = json!(plane.status);
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"].take();
        }
        let meta = &plane.metadata;
        json!({"spec": plane.spec, "status": status, "finalizers": meta.finalizers, "generation": meta.generation})
    });
    let cluster = world.client.get::<Cluster>(&key).await?.context("nobody deletes it")?;
    Ok(json!({"plane": plane, "cluster": {"spec": cluster.spec, "generation": cluster.metadata.generation}}))
}

impl End {
    /// How often the server has done this.
    fn done(&self, what: &str) -> usize {
        let is_done = |noted: &&Noted| noted.call.what == what && noted.code.is_some_and(|code| code < 300);
        self.calls.iter().filter(is_done).count()
    }

    fn noted(&self, call: &Call) -> Option<&Noted> {
        self.calls.iter().find(|noted| noted.call == *call)
    }

    /// The same state, by the same writes. For each fault there may be one more thing to say on the way; an event that follows a write is lost if it is not known that it was done.
    fn is_that_of(&self, undisturbed: &Self, faults: &[(Call, Way)]) -> anyhow::Result<()> {
        for (call, _) in faults.iter().filter(|(call, way)| *way == Way::Stale && call.is_write()) {
            let over_others = self.noted(call).and_then(|noted| noted.code).is_some_and(|code| code < 300);
            ensure!(!over_others, "it was written over what somebody else wrote");
        }
        ensure!(self.state == undisturbed.state, "{:#} and not {:#}", self.state, undisturbed.state);
        for once in ["patch captcontrolplanes", "patch clusters"] {
            let (many, wanted) = (self.done(once), undisturbed.done(once));
            ensure!(many == wanted, "`{once}` was done {many} times, and not {wanted}");
        }
        for (what, more) in [("patch captcontrolplanes/status", faults.len()), ("create events", 0)] {
            let (many, most) = (self.done(what), undisturbed.done(what) + more);
            ensure!(many <= most, "`{what}` was done {many} times, at most {most} are needed");
        }
        Ok(())
    }
}

/// The ways in which a call can go wrong; a watch, after each of its events.
fn ways(call: &Call, events: usize) -> Vec<Way> {
    let mut ways = vec![Way::TooMany, Way::Internal, Way::Timeout, Way::Lost];
    // What is new is not made from anything; and a cluster is read by itself when it is cleared, from the server, which then tells what is and not what was.
    if !call.what.starts_with("create") && call.what != "get clusters" {
        ways.extend([Way::Conflict, Way::Stale]);
    }
    ways.extend((0..=events).map(Way::Dropped));
    ways
}

/// A story that can be told again and again from its beginning, on a clock that does not wait.
struct Again {
    server: ApiServer,
    stage: Stage,
    story: Story,
}

impl Again {
    async fn new(story: Story) -> anyhow::Result<Self> {
        let server = ApiServer::new(Options::default())?;
        let env = Env::Embedded(Embedded::new(server.clone()));
        env.install(endpoint::definitions().into_iter().chain(endpoint::dependencies())).await?;
        Ok(Self { server, stage: Stage::set(&env).await?, story })
    }

    /// The controller looks again twice before it is believed that all is over.
    async fn tell(&self, faults: &[(Call, Way)]) -> anyhow::Result<End> {
        const PACE: Pace =
            Pace { limit: Duration::from_mins(10), patience: Duration::from_secs(2), rest: Duration::from_mins(1) };
        let env = Env::Embedded(Embedded::new(self.server.fork()));
        told(&env, &self.stage, self.story, &PACE, faults).await.with_context(|| format!("{faults:?}"))
    }
}

/// Every call in every way, but for those that are made in the same story up to where it goes on as another one.
async fn every_call_goes_wrong(story: Story, before: Option<Story>) -> anyhow::Result<()> {
    let again = Again::new(story).await?;
    let undisturbed = again.tell(&[]).await?;
    let known = match before {
        Some(before) => Again::new(before).await?.tell(&[]).await?.calls,
        None => Vec::new(),
    };
    let is_new = |noted: &&Noted| !known.iter().any(|old| old.call == noted.call && old.events == noted.events);
    for Noted { call, events, .. } in undisturbed.calls.iter().filter(is_new) {
        for way in ways(call, *events) {
            let faults = [(call.clone(), way)];
            let end = again.tell(&faults).await?;
            end.noted(call).with_context(|| format!("{faults:?} were not called"))?;
            end.is_that_of(&undisturbed, &faults).with_context(|| format!("{faults:?}"))?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn outputs_are_propagated_whichever_call_goes_wrong() -> anyhow::Result<()> {
    every_call_goes_wrong(Story::Outputs, None).await
}

#[tokio::test(start_paused = true)]
async fn a_rotated_secret_is_followed_whichever_call_goes_wrong() -> anyhow::Result<()> {
    every_call_goes_wrong(Story::Rotation, None).await
}

#[tokio::test(start_paused = true)]
async fn a_deletion_clears_whichever_call_goes_wrong() -> anyhow::Result<()> {
    every_call_goes_wrong(Story::Deletion, Some(Story::Outputs)).await
}

/// The writes of a whole life, in every way, many lives at once. Nothing is written after it, so that there is nothing to wait for.
async fn writes_on_real(env: Env) -> anyhow::Result<()> {
    const PACE: Pace =
        Pace { limit: Duration::from_mins(1), patience: Duration::from_millis(300), rest: Duration::ZERO };
    const AT_ONCE: usize = 12;
    env.install(endpoint::definitions().into_iter().chain(endpoint::dependencies())).await?;
    let env = &env;
    let live = async |faults: &[_]| told(env, &Stage::set(env).await?, Story::Life, &PACE, faults).await;
    let undisturbed = &live(&[]).await?;
    // Those that no life is without: finalizer, endpoints and release; the cluster's two and none; what is said of each; and what was replaced.
    let writes = [
        ("patch captcontrolplanes", 4),
        ("patch clusters", 3),
        ("patch captcontrolplanes/status", 4),
        ("create events", 1),
    ];
    let calls = writes.iter().flat_map(|(what, many)| (0..*many).map(|before| Call { what: (*what).into(), before }));
    let cases = calls.flat_map(|call| ways(&call, 0).into_iter().map(move |way| (call.clone(), way)));
    let lives = cases.map(|fault| async move {
        let faults = [fault];
        let end = live(&faults).await;
        let same = end.and_then(|end| {
            end.noted(&faults[0].0).context("it was not called")?;
            end.is_that_of(undisturbed, &faults)
        });
        same.with_context(|| format!("{faults:?}"))
    });
    stream::iter(lives).buffer_unordered(AT_ONCE).try_collect().await
}

#[test]
fn a_life_on_the_real_server_ends_the_same_whichever_write_goes_wrong() {
    run_real(writes_on_real);
}

/// A call goes wrong, and then another one of those that follow, some of which are made only because of the first.
async fn two_calls_go_wrong(again: &Again, undisturbed: &End, random: &mut StdRng) -> anyhow::Result<()> {
    let mut pick = |calls: &[Noted]| {
        let Noted { call, events, .. } = calls.choose(random)?;
        Some((call.clone(), *ways(call, *events).choose(random)?))
    };
    let first = pick(&undisturbed.calls).context("it calls somebody")?;
    let end = again.tell(std::slice::from_ref(&first)).await?;
    let bad = end.calls.iter().position(|noted| noted.call == first.0).context("it was not called")?;
    let faults: Vec<_> = [Some(first), pick(&end.calls[bad + 1..])].into_iter().flatten().collect();
    again.tell(&faults).await?.is_that_of(undisturbed, &faults).with_context(|| format!("{faults:?}"))
}

#[test]
fn soak_a_life_ends_the_same_if_two_calls_go_wrong() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let again = Again::new(Story::Life).await?;
        let undisturbed = again.tell(&[]).await?;
        for seed in Seeds::new(this_test!(), 20) {
            two_calls_go_wrong(&again, &undisturbed, &mut StdRng::seed_from_u64(seed)).await?;
        }
        Ok(())
    })
}
