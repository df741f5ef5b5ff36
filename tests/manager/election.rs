//! Elections on both servers, by the clock on the wall: what the server lets in, and how long things take.

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

/// Long enough for a machine that has much to do.
fn options(namespace: &str, identity: &str) -> LeaderElection {
    LeaderElection { identity: identity.into(), ..LeaderElection::new("web", namespace) }
}

async fn leads(elector: &Elector) -> anyhow::Result<Leadership> {
    let leadership = timeout(Duration::from_mins(1), elector.acquire(pending())).await?;
    leadership.ok_or_else(|| anyhow::anyhow!("nobody has stopped it"))
}

async fn spec(client: Client, namespace: &str) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(Api::<Lease>::namespaced(client, namespace).get("web").await?.spec)?)
}

steersman::env_test! {
    async fn a_lease_goes_from_one_to_the_next_within_a_watch_event(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("election").await?;
        let labels = [("app".to_owned(), "web".to_owned())].into();
        let first = Elector::new(env.client()?, LeaderElection { labels, ..options(&namespace, "a") })?;
        let second = Elector::new(env.client()?, options(&namespace, "b"))?;
        let mut leadership = leads(&first).await?;
        let held = spec(env.client()?, &namespace).await?;
        assert_eq!((&held["holderIdentity"], &held["leaseTransitions"]), (&json!("a"), &json!(0)));

        let standby = tokio::spawn({
            let second = second.clone();
            async move { leads(&second).await }
        });
        // Until it waits, and the Lease was renewed.
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

    /// Whoever waited for its own next try, or for the lease to be over, would wait for an hour.
    async fn a_standby_acts_by_the_watch_of_the_lease_and_not_by_its_own_clock(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("election").await?;
        let hours = |hours| Duration::from_hours(hours);
        let manager = |identity: &str| {
            let times = LeaderElection { lease_duration: hours(4), renew_deadline: hours(3), ..options(&namespace, identity) };
            let election = LeaderElection { retry_period: hours(1), ..times };
            anyhow::Ok(Manager::builder(env.client()?).leader_election_with(election).build()?)
        };
        let (first, second) = (manager("a")?, manager("b")?);
        let (tell, mut told) = mpsc::unbounded_channel();
        second.controller("acts").reconcile(reconcile::from_fn(move |_: Request, _| {
            let sent = tell.send(Instant::now());
            async move { sent.map(|()| Outcome::done()).map_err(Into::into) }
        }))?.queue().add(Request::new("default", "a"));
        let (leads, waits) = (first.handle(), second.handle());
        let first = Running::new(first);
        timeout(Duration::from_mins(1), leads.elected()).await?;
        let second = Running::new(second);
        // Until it knows that it has to wait.
        until(|| waits.lease().is_some_and(|lease| lease.holder.as_deref() == Some("a"))).await;
        let released = Instant::now();
        first.stop().await?;
        let stopped = Instant::now();
        let acted = timeout(Duration::from_mins(1), told.recv()).await?.ok_or_else(|| anyhow::anyhow!("it listens"))?;
        println!(
            "{}: the standby has reconciled {:?} after the leader was told to stop, {:?} after it had",
            env.name(),
            acted - released,
            acted.saturating_duration_since(stopped),
        );
        second.stop().await
    }

    async fn of_several_that_race_for_a_new_lease_one_leads(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("election").await?;
        let mut candidates = Vec::new();
        for number in 0..5 {
            let elector = Elector::new(env.client()?, options(&namespace, &number.to_string()))?;
            candidates.push(tokio::spawn(async move {
                // As long as no lease is over.
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

    async fn a_lease_whose_holder_is_gone_is_taken_when_it_is_over_whatever_its_clock_said(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("election").await?;
        let (lease, renew, retry) = (Duration::from_secs(2), Duration::from_secs(1), Duration::from_millis(200));
        let times = |options| LeaderElection { lease_duration: lease, renew_deadline: renew, retry_period: retry, ..options };
        drop(leads(&Elector::new(env.client()?, times(options(&namespace, "a")))?).await?);
        let leases: Api<Lease> = Api::namespaced(env.client()?, &namespace);
        for (identity, renewed) in [("b", "2001-01-01T00:00:00.000000Z"), ("c", "2099-01-01T00:00:00.000000Z")] {
            let skewed = json!({"spec": {"renewTime": renewed}});
            leases.patch("web", &PatchParams::default(), &Patch::Merge(skewed)).await?;
            let began = Instant::now();
            drop(leads(&Elector::new(env.client()?, times(options(&namespace, identity)))?).await?);
            println!("{}: took over after {:?}", env.name(), began.elapsed());
            assert!(began.elapsed() >= lease, "{:?}", began.elapsed());
        }
        assert_eq!(spec(env.client()?, &namespace).await?["leaseTransitions"], 2);
        Ok(())
    }

    async fn readyz_says_why_the_lease_cannot_be_read(env: Env) -> anyhow::Result<()> {
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

    async fn who_may_not_watch_leads_a_little_later(env: Env) -> anyhow::Result<()> {
        if env.name() == "embedded" {
            return Ok(()); // It lets everybody do everything.
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
        let leadership = leads(&Elector::new(env.client()?, options(&namespace, "a"))?).await?;
        let second = Elector::new(env.client_as("election-bob", &[])?, options(&namespace, "b"))?;
        let standby = tokio::spawn({
            let second = second.clone();
            async move { leads(&second).await }
        });
        // The server learns of roles a little later than it is told of them.
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
