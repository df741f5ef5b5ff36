//! The roles are what the controller needs, and no more: its whole story is told by somebody who has just these, and by others who lack one verb each.
//!
//! Everybody tells it on one server that cannot stream lists, since one that can needs no `list`. A server in between sees what is refused, and lets writes
//! conflict.

use crate::world::{World, until};
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event};
use kube::{api::DynamicObject, client::Body};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    cache::Query,
    client::Patch,
    prelude::*,
    testing::{self, Environment, Real, TestServer, User},
};
use steersman_controllers::endpoint::{self, CAPTControlPlane, Cluster, Options};
use tokio::{sync::watch, time::timeout};
use tower::service_fn;

/// Generous: a story takes some seconds.
const LIMIT: Duration = Duration::from_mins(2);

/// What was seen of somebody's requests.
#[derive(Clone, Default)]
struct Seen {
    /// Definitions are watched: nobody waits for them any more.
    watches_definitions: bool,
    /// The server's first refusal.
    forbidden: Option<String>,
}

/// Somebody with these roles, who tells the story in a namespace of their own.
struct Teller {
    admin: kube::Client,
    client: kube::Client,
    seen: watch::Receiver<Seen>,
    world: World,
}

impl Teller {
    async fn new(server: &Real, roles: &[Value]) -> Result<Self> {
        let admin = server.client()?;
        let namespace = server.namespace("rights").await?;
        let user = server.environment().user(&namespace, &[])?;
        bind(&Client::new(admin.clone())?, &namespace, roles).await?;
        let (client, seen) = watched(&user, admin.clone(), &namespace)?;
        let builder = Manager::builder(client.clone()).leader_election("first", &namespace);
        let world = World::with(admin.clone(), builder, &Options::default(), &namespace)?;
        Ok(Self { admin, client, seen, world })
    }

    /// Until it would hear of definitions, or is refused something before.
    async fn listens(&self) -> Result<()> {
        self.seen.clone().wait_for(|seen| seen.watches_definitions || seen.forbidden.is_some()).await?;
        Ok(())
    }

    /// All of it, or up to the first refusal, which is given.
    async fn tell(self) -> Result<Option<String>> {
        let mut seen = self.seen.clone();
        tokio::select! {
            biased;
            refused = seen.wait_for(|seen| seen.forbidden.is_some()) => return Ok(refused?.forbidden.clone()),
            told = self.whole() => told?,
        }
        Ok(seen.borrow().forbidden.clone())
    }

    async fn whole(self) -> Result<()> {
        let Self { admin, client, world, .. } = self;
        world.make_plane().await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "https://one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await.context("an output is propagated")?;
        let page = world.manager.metrics_page();
        ensure!(page.contains("capt_endpoint_retries_total 2\n"), "of each kind one write was a conflict: {page}");

        world.set_outputs(json!(null)).await?;
        world.set_secret("https://two.example.com").await?;
        world.until_propagated("two.example.com:443").await.context("a secret is propagated")?;
        world.set_secret("https://three.example.com").await?;
        world.until_propagated("three.example.com:443").await.context("a rotation is propagated")?;

        // Twice the same is one event, that is counted.
        for _ in 0..2 {
            let other = json!({"spec": {"controlPlaneEndpoint": {"host": "other.example.com", "port": 443}}});
            world.client.patch::<Cluster>(&world.key("plane"), &Patch::Merge(other)).await?;
            world.until_propagated("three.example.com:443").await.context("another endpoint is replaced")?;
        }
        until(async || {
            let events = world.client.list(&Query::<Event>::default()).await?;
            let mut replaced = events.iter().filter(|event| event.reason.as_deref() == Some("EndpointReplaced"));
            Ok(replaced.any(|event| event.series.as_ref().is_some_and(|series| series.count == 2)))
        })
        .await?;

        // Somebody else leads, and says nothing any more.
        let lease = json!({
            "metadata": {"name": "second"},
            "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"},
        });
        world.client.create::<Lease>(&serde_json::from_value(lease)?).await?;
        let (namespace, key) = (world.namespace.clone(), world.key("plane"));
        world.stop().await?;
        let builder = Manager::builder(client).leader_election("second", &namespace);
        let world = World::with(admin, builder, &Options::default(), &namespace)?;
        world.client.delete::<CAPTControlPlane>(&key).await?;
        until(async || Ok(world.client.get::<CAPTControlPlane>(&key).await?.is_none())).await?;
        ensure!(world.endpoints().await? == (None, None), "the cluster's is cleared");
        world.stop().await
    }
}

/// Creates and binds the roles. The user has the name of the namespace, and the names of the roles begin with it.
async fn bind(admin: &Client, namespace: &str, roles: &[Value]) -> Result<()> {
    for role in roles {
        let mut role = role.clone();
        let kind = role["kind"].as_str().context("a kind")?.to_owned();
        let name = format!("{namespace}-{}", role["metadata"]["name"].as_str().context("missing name")?);
        role["metadata"] = json!({"name": name, "namespace": (kind == "Role").then_some(namespace)});
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": format!("{kind}Binding"), "metadata": role["metadata"],
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": namespace}],
        });
        for object in [role, binding] {
            admin.create::<DynamicObject>(&serde_json::from_value(object)?).await?;
        }
    }
    Ok(())
}

/// A client of the user's that is looked at. Before it writes an endpoint for the first time, somebody else writes: to the control plane, which gets a
/// finalizer before that, and to the cluster.
fn watched(user: &User, admin: kube::Client, namespace: &str) -> Result<(kube::Client, watch::Receiver<Seen>)> {
    let (seen, receiver) = watch::channel(Seen::default());
    let (seen, inner, admin) = (Arc::new(seen), user.client()?, Client::new(admin)?);
    let writes = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let key = ObjectKey::new(namespace, "plane");
    let service = service_fn(move |request: Request<Body>| {
        let (seen, inner, admin) = (seen.clone(), inner.clone(), admin.clone());
        let (writes, key) = (writes.clone(), key.clone());
        async move {
            let (path, is_patch) = (request.uri().path(), request.method() == Method::PATCH);
            let plane = is_patch && path.ends_with("captcontrolplanes/plane");
            let cluster = is_patch && path.ends_with("clusters/plane");
            if plane && writes[0].fetch_add(1, Relaxed) == 1 {
                admin.patch::<CAPTControlPlane>(&key, &touch()).await?;
            }
            if cluster && writes[1].fetch_add(1, Relaxed) == 0 {
                admin.patch::<Cluster>(&key, &touch()).await?;
            }
            let path = request.uri().path();
            let of_definitions = path.ends_with("/customresourcedefinitions")
                && request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let (parts, body) = inner.send(request).await?.into_parts();
            if of_definitions && parts.status.is_success() {
                seen.send_modify(|seen| seen.watches_definitions = true);
            }
            if parts.status != StatusCode::FORBIDDEN {
                return Ok(Response::from_parts(parts, body));
            }
            let words = body.collect().await?.to_bytes();
            let text = String::from_utf8_lossy(&words).into_owned();
            seen.send_modify(|seen| seen.forbidden = seen.forbidden.take().or(Some(text)));
            anyhow::Ok(Response::from_parts(parts, Body::from(words.to_vec())))
        }
    });
    Ok((kube::Client::new(service, namespace), receiver))
}

fn touch() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}))
}

/// All but one verb of one rule, and what is said then.
fn lacking(roles: &[Value]) -> Vec<(Vec<Value>, String)> {
    let mut lacking = Vec::new();
    for (at, role) in roles.iter().enumerate() {
        for (of, rule) in role["rules"].as_array().expect("rules").iter().enumerate() {
            let verbs = rule["verbs"].as_array().expect("verbs");
            // `get` of workspaces is part of the requirement. The controller reads them from the cache.
            let is_unused = |verb: &&Value| *verb == "get" && rule["resources"][0] == "workspaces";
            for verb in verbs.iter().filter(|verb| !is_unused(verb)) {
                let mut less = roles.to_vec();
                let left: Vec<_> = verbs.iter().filter(|left| *left != verb).collect();
                less[at]["rules"][of]["verbs"] = json!(left);
                if left.is_empty() {
                    less[at]["rules"].as_array_mut().expect("rules").remove(of);
                }
                let (group, resource) = (&rule["apiGroups"][0], &rule["resources"][0]);
                let words = format!("cannot {} resource {resource} in API group {group}", verb.as_str().expect("one"));
                // As it stands in JSON.
                lacking.push((less, words.replace('"', "\\\"")));
            }
        }
    }
    lacking
}

async fn every_verb_is_needed_and_none_is_missing(environment: Environment) -> Result<()> {
    let server = Real::new(environment);
    server.install(endpoint::definitions()).await?;
    let lacking = lacking(&endpoint::roles(&[]));
    // Each namespaced role is bound in the namespace of its user, whatever namespace it is made for.
    let complete = [endpoint::roles(&[]), endpoint::roles(&["one".into()])];
    let count = complete.len();
    let roles = complete.into_iter().chain(lacking.iter().map(|(roles, _)| roles.clone()));
    let tellers = try_join_all(roles.map(async |roles| Teller::new(&server, &roles).await)).await?;
    // Who has started before kinds are there has to hear of them.
    try_join_all(tellers.iter().map(Teller::listens)).await?;
    server.install(endpoint::dependencies()).await?;
    let refused = try_join_all(tellers.into_iter().map(Teller::tell)).await?;
    let (complete, refused) = refused.split_at(count);
    assert_eq!(complete, [None, None], "forbidden with all permissions, in the cluster and in a namespace");
    for (refused, (_, words)) in refused.iter().zip(&lacking) {
        let refused = refused.as_deref().unwrap_or("nothing is refused");
        assert!(refused.contains(words), "{words}: {refused}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_roles_have_every_verb_that_is_needed_and_no_other() -> Result<()> {
    let api_server_flags = vec!["--feature-gates=WatchList=false".into()];
    let started = Environment::start(testing::Options { api_server_flags, ..testing::Options::default() }).await;
    let Some(environment) = testing::or_left_out(started) else { return Ok(()) };
    timeout(LIMIT, every_verb_is_needed_and_none_is_missing(environment)).await?
}
