//! Tests of leader election on both servers, in real time.

use crate::support::{Running, until};
use k8s_openapi::api::{
    coordination::v1::Lease,
    rbac::v1::{Role, RoleBinding},
};
use kube_client::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::{
    future::pending,
    time::{Duration, Instant},
};
use steersman::{
    manager::{
        Probe,
        election::{Elector, LeaderElection, Leadership},
    },
    prelude::*,
    testing::{Env, TestServer},
};
use tokio::{sync::mpsc, time::timeout};

/// Returns timeouts that a busy machine does not exceed.
fn options(namespace: &str, identity: &str) -> LeaderElection {
    LeaderElection {
        identity: identity.into(),
        ..LeaderElection::new("web", namespace)
    }
}

async fn acquire_lease(elector: &Elector) -> anyhow::Result<Leadership> {
    let leadership = timeout(Duration::from_mins(1), elector.acquire(pending())).await?;
    leadership.ok_or_else(|| anyhow::anyhow!("the elector was not stopped"))
}

async fn spec(client: Client, namespace: &str) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(
        Api::<Lease>::namespaced(client, namespace)
            .get("web")
            .await?
            .spec,
    )?)
}

steersman::env_test! {
    async fn a_standby_acquires_a_released_lease_by_a_watch_event(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("election").await?;
        let labels = [("app".to_owned(), "web".to_owned())].into();
        let first = Elector::new(env.client()?, LeaderElection { labels, ..options(&namespace, "a") })?;
        let second = Elector::new(env.client()?, options(&namespace, "b"))?;
        let mut leadership = acquire_lease(&first).await?;
        let held = spec(env.client()?, &namespace).await?;
        assert_eq!((&held["holderIdentity"], &held["leaseTransitions"]), (&json!("a"), &json!(0)));

        let standby = tokio::spawn({
            let second = second.clone();
            async move { acquire_lease(&second).await }
        });
        // Wait until the second candidate waits and the Lease was renewed.
        let waits = async {
            while second.report().holder.is_none() || first.report().renewals == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        leadership.hold(waits).await?;
        let (old, released) = (leadership.fence(), Instant::now());
        leadership.release().await?;
        let leadership = standby.await??;
        println!("{}: led {:?} after the release began", env.name(), released.elapsed());
        assert!(old.check().is_err() && leadership.fence().token() > old.token());
        let held = spec(env.client()?, &namespace).await?;
        assert_eq!((&held["holderIdentity"], &held["leaseTransitions"]), (&json!("b"), &json!(1)));
        leadership.release().await?;
        assert_eq!(second.report().holder, None);
        Ok(())
    }

    /// A standby that waits for its retry period or the expiry of the lease would wait for an hour.
    async fn a_standby_does_not_wait_for_its_retry_period(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("election").await?;
        let hours = |hours| Duration::from_hours(hours);
        let manager = |identity: &str| {
            let times = LeaderElection { lease_duration: hours(4), renew_deadline: hours(3), ..options(&namespace, identity) };
            let election = LeaderElection { retry_period: hours(1), ..times };
            anyhow::Ok(Manager::builder(env.client()?).leader_election_with(election).build()?)
        };
        let (first, second) = (manager("a")?, manager("b")?);
        let (sender, mut reconciled) = mpsc::unbounded_channel();
        second.controller("acts").reconcile(reconcile::from_fn(move |_: Request, _| {
            let sent = sender.send(Instant::now());
            async move { sent.map(|()| Outcome::done()).map_err(Into::into) }
        }))?.queue().add(Request::new("default", "a"));
        let (first_handle, second_handle) = (first.handle(), second.handle());
        let first = Running::new(first);
        timeout(Duration::from_mins(1), first_handle.elected()).await?;
        let second = Running::new(second);
        // Wait until the standby knows the holder.
        until(|| second_handle.lease().is_some_and(|lease| lease.holder.as_deref() == Some("a"))).await;
        let released = Instant::now();
        first.stop().await?;
        let stopped = Instant::now();
        let acted = timeout(Duration::from_mins(1), reconciled.recv()).await?.ok_or_else(|| anyhow::anyhow!("the sender is alive"))?;
        println!(
            "{}: the standby reconciled {:?} after the stop of the leader was requested, {:?} after it",
            env.name(),
            acted - released,
            acted.saturating_duration_since(stopped),
        );
        second.stop().await
    }

    async fn one_of_several_candidates_acquires_a_new_lease(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("election").await?;
        let mut candidates = Vec::new();
        for number in 0..5 {
            let elector = Elector::new(env.client()?, options(&namespace, &number.to_string()))?;
            candidates.push(tokio::spawn(async move {
                // Shorter than the lease.
                timeout(Duration::from_secs(5), elector.acquire(pending())).await.ok().flatten()
            }));
        }
        let mut leaders = Vec::new();
        for candidate in candidates {
            leaders.extend(candidate.await?);
        }
        assert_eq!(leaders.len(), 1, "{leaders:?}");
        Ok(())
    }

    async fn an_abandoned_lease_expires_regardless_of_the_clock_of_its_holder(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("election").await?;
        let (lease, renew, retry) = (Duration::from_secs(2), Duration::from_secs(1), Duration::from_millis(200));
        let times = |options| LeaderElection { lease_duration: lease, renew_deadline: renew, retry_period: retry, ..options };
        drop(acquire_lease(&Elector::new(env.client()?, times(options(&namespace, "a")))?).await?);
        let leases: Api<Lease> = Api::namespaced(env.client()?, &namespace);
        for (identity, renewed) in [("b", "2001-01-01T00:00:00.000000Z"), ("c", "2099-01-01T00:00:00.000000Z")] {
            let skewed = json!({"spec": {"renewTime": renewed}});
            leases.patch("web", &PatchParams::default(), &Patch::Merge(skewed)).await?;
            let began = Instant::now();
            drop(acquire_lease(&Elector::new(env.client()?, times(options(&namespace, identity)))?).await?);
            println!("{}: took over after {:?}", env.name(), began.elapsed());
            assert!(began.elapsed() >= lease, "{:?}", began.elapsed());
        }
        assert_eq!(spec(env.client()?, &namespace).await?["leaseTransitions"], 2);
        Ok(())
    }

    async fn readyz_includes_the_error_of_lease_reads(env: Env) -> anyhow::Result<()> {
        if env.name() == "embedded" {
            return Ok(()); // No RBAC.
        }
        let namespace = env.namespace("election").await?;
        let election = options(&namespace, "a");
        let connection = env.client_as("election-eve", &[])?;
        let manager = Manager::builder(connection).leader_election_with(election).build()?;
        let handle = manager.handle();
        let running = Running::new(manager);
        let failure = loop {
            let reports = handle.check(Probe::Ready).await;
            if let Some(failure) = reports.into_iter().find(|report| &*report.name == "lease").and_then(|it| it.failure) {
                break failure;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(failure.contains("cannot read Lease") && failure.contains("election-eve"), "{failure}");
        running.stop().await
    }

    async fn an_elector_without_watch_permission_polls_the_lease(env: Env) -> anyhow::Result<()> {
        if env.name() == "embedded" {
            return Ok(()); // No authorization.
        }
        let namespace = env.namespace("election").await?;
        let role = json!({
            "metadata": {"name": "elects"},
            "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}],
        });
        let binding = json!({
            "metadata": {"name": "elects"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "elects"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "election-bob"}],
        });
        Api::<Role>::namespaced(env.client()?, &namespace)
            .create(&PostParams::default(), &serde_json::from_value(role)?)
            .await?;
        Api::<RoleBinding>::namespaced(env.client()?, &namespace)
            .create(&PostParams::default(), &serde_json::from_value(binding)?)
            .await?;
        let leadership = acquire_lease(&Elector::new(env.client()?, options(&namespace, "a"))?).await?;
        let second = Elector::new(env.client_as("election-bob", &[])?, options(&namespace, "b"))?;
        let standby = tokio::spawn({
            let second = second.clone();
            async move { acquire_lease(&second).await }
        });
        // RBAC changes take effect with a delay.
        while second.report().holder.is_none() || second.report().watch_error.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let error = second.report().watch_error.unwrap_or_default();
        assert!(error.contains("cannot watch") && error.contains("election-bob"), "{error}");
        leadership.release().await?;
        drop(standby.await??);
        Ok(())
    }
}
