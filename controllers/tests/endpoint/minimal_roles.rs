//! Tests that the roles are sufficient and minimal.
//!
//! One user with exactly these roles runs the whole scenario, and others that lack one verb each. All
//! of them use a server without streamed lists, because streamed lists do not need `list`. A proxy
//! records what is forbidden and causes write conflicts.

use crate::fixture::{Fixture, until};
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
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{self, CAPTControlPlane, Options},
};
use tokio::{sync::watch, time::timeout};
use tower::service_fn;

/// Time limit of a scenario, which takes some seconds.
const LIMIT: Duration = Duration::from_mins(2);

/// Observations about a user's requests.
#[derive(Clone, Default)]
struct Observations {
    /// Whether CRDs are watched, so that new CRDs are noticed.
    watches_definitions: bool,
    /// First response with status 403.
    forbidden: Option<String>,
}

/// User with given roles, running the scenario in a separate namespace.
struct RestrictedUser {
    admin: kube::Client,
    client: kube::Client,
    observations: watch::Receiver<Observations>,
    fixture: Fixture,
}

impl RestrictedUser {
    async fn new(server: &Real, roles: &[Value]) -> Result<Self> {
        let admin = server.client()?;
        let namespace = server.namespace("rights").await?;
        let user = server.environment().user(&namespace, &[])?;
        bind(&Client::new(admin.clone())?, &namespace, roles).await?;
        let (client, observations) = observed_client(&user, admin.clone(), &namespace)?;
        let builder = Manager::builder(client.clone()).leader_election("first", &namespace);
        let fixture = Fixture::with(admin.clone(), builder, &Options::default(), &namespace)?;
        Ok(Self {
            admin,
            client,
            observations,
            fixture,
        })
    }

    /// Waits until the user watches CRDs, or a request is forbidden.
    async fn wait_for_crd_watch(&self) -> Result<()> {
        self.observations
            .clone()
            .wait_for(|observations| {
                observations.watches_definitions || observations.forbidden.is_some()
            })
            .await?;
        Ok(())
    }

    /// Runs the scenario. Returns the first forbidden request, if any.
    async fn run(self) -> Result<Option<String>> {
        let mut observations = self.observations.clone();
        tokio::select! {
            biased;
            forbidden = observations.wait_for(|observations| observations.forbidden.is_some()) => return Ok(forbidden?.forbidden.clone()),
            result = self.run_scenario() => result?,
        }
        Ok(observations.borrow().forbidden.clone())
    }

    async fn run_scenario(self) -> Result<()> {
        let Self {
            admin,
            client,
            fixture,
            ..
        } = self;
        fixture.make_plane().await?;
        fixture
            .make_workspace(Some(json!({"cluster_endpoint": "https://one.example.com"})))
            .await?;
        fixture
            .until_propagated("one.example.com:443")
            .await
            .context("an output is propagated")?;
        let page = fixture.manager.metrics_page();
        ensure!(
            page.contains("capt_endpoint_retries_total 2\n"),
            "one conflict per kind: {page}"
        );

        fixture.set_outputs(json!(null)).await?;
        fixture.set_secret("https://two.example.com").await?;
        fixture
            .until_propagated("two.example.com:443")
            .await
            .context("a secret is propagated")?;
        fixture.set_secret("https://three.example.com").await?;
        fixture
            .until_propagated("three.example.com:443")
            .await
            .context("a rotation is propagated")?;

        // Two equal events are one event with a count.
        for _ in 0..2 {
            let other = json!({"spec": {"controlPlaneEndpoint": {"host": "other.example.com", "port": 443}}});
            fixture
                .client
                .patch::<Cluster>(&fixture.key("plane"), &Patch::Merge(other))
                .await?;
            fixture
                .until_propagated("three.example.com:443")
                .await
                .context("another endpoint is replaced")?;
        }
        until(async || {
            let events = fixture.client.list(&Query::<Event>::default()).await?;
            let mut replaced = events
                .iter()
                .filter(|event| event.reason.as_deref() == Some("EndpointReplaced"));
            Ok(replaced.any(|event| {
                event
                    .series
                    .as_ref()
                    .is_some_and(|series| series.count == 2)
            }))
        })
        .await?;

        // Expired lease of another holder.
        let lease = json!({
            "metadata": {"name": "second"},
            "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"},
        });
        fixture
            .client
            .create::<Lease>(&serde_json::from_value(lease)?)
            .await?;
        let (namespace, key) = (fixture.namespace.clone(), fixture.key("plane"));
        fixture.stop().await?;
        let builder = Manager::builder(client).leader_election("second", &namespace);
        let fixture = Fixture::with(admin, builder, &Options::default(), &namespace)?;
        fixture.client.delete::<CAPTControlPlane>(&key).await?;
        until(async || {
            Ok(fixture
                .client
                .get::<CAPTControlPlane>(&key)
                .await?
                .is_none())
        })
        .await?;
        ensure!(
            fixture.endpoints().await? == (None, None),
            "the endpoint of the Cluster is cleared"
        );
        fixture.stop().await
    }
}

/// Creates and binds the roles.
///
/// The user has the name of the namespace, which is also the prefix of the roles' names.
async fn bind(admin: &Client, namespace: &str, roles: &[Value]) -> Result<()> {
    for role in roles {
        let mut role = role.clone();
        let kind = role["kind"].as_str().context("a kind")?.to_owned();
        let name = format!(
            "{namespace}-{}",
            role["metadata"]["name"].as_str().context("missing name")?
        );
        role["metadata"] =
            json!({"name": name, "namespace": (kind == "Role").then_some(namespace)});
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": format!("{kind}Binding"), "metadata": role["metadata"],
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": namespace}],
        });
        for object in [role, binding] {
            admin
                .create::<DynamicObject>(&serde_json::from_value(object)?)
                .await?;
        }
    }
    Ok(())
}

/// Creates a recorded client of the user.
///
/// Before its first write of an endpoint to the control plane and to the Cluster, another client
/// writes to the same object, which causes a conflict. The control plane gets its finalizer before.
fn observed_client(
    user: &User,
    admin: kube::Client,
    namespace: &str,
) -> Result<(kube::Client, watch::Receiver<Observations>)> {
    let (observations, receiver) = watch::channel(Observations::default());
    let (observations, inner, admin) =
        (Arc::new(observations), user.client()?, Client::new(admin)?);
    let writes = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let key = ObjectKey::new(namespace, "plane");
    let service = service_fn(move |request: Request<Body>| {
        let (observations, inner, admin) = (observations.clone(), inner.clone(), admin.clone());
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
                && request
                    .uri()
                    .query()
                    .is_some_and(|query| query.contains("watch=true"));
            let (parts, body) = inner.send(request).await?.into_parts();
            if of_definitions && parts.status.is_success() {
                observations.send_modify(|observations| observations.watches_definitions = true);
            }
            if parts.status != StatusCode::FORBIDDEN {
                return Ok(Response::from_parts(parts, body));
            }
            let message = body.collect().await?.to_bytes();
            let text = String::from_utf8_lossy(&message).into_owned();
            observations.send_modify(|observations| {
                observations.forbidden = observations.forbidden.take().or(Some(text));
            });
            anyhow::Ok(Response::from_parts(parts, Body::from(message.to_vec())))
        }
    });
    Ok((kube::Client::new(service, namespace), receiver))
}

fn touch() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}))
}

/// Returns the roles without each single verb, and the expected error.
fn roles_without_one_verb(roles: &[Value]) -> Vec<(Vec<Value>, String)> {
    let mut roles_without_one_verb = Vec::new();
    for (role_index, role) in roles.iter().enumerate() {
        for (rule_index, rule) in role["rules"].as_array().expect("rules").iter().enumerate() {
            let verbs = rule["verbs"].as_array().expect("verbs");
            // The roles include `get` of workspaces, although the controller reads them from the
            // cache.
            let is_unused = |verb: &&Value| *verb == "get" && rule["resources"][0] == "workspaces";
            for verb in verbs.iter().filter(|verb| !is_unused(verb)) {
                let mut reduced = roles.to_vec();
                let remaining: Vec<_> = verbs
                    .iter()
                    .filter(|remaining| *remaining != verb)
                    .collect();
                reduced[role_index]["rules"][rule_index]["verbs"] = json!(remaining);
                if remaining.is_empty() {
                    reduced[role_index]["rules"]
                        .as_array_mut()
                        .expect("rules")
                        .remove(rule_index);
                }
                let (group, resource) = (&rule["apiGroups"][0], &rule["resources"][0]);
                let message = format!(
                    "cannot {} resource {resource} in API group {group}",
                    verb.as_str().expect("a verb")
                );
                // Escaped as in JSON.
                roles_without_one_verb.push((reduced, message.replace('"', "\\\"")));
            }
        }
    }
    roles_without_one_verb
}

async fn assert_roles_are_minimal(environment: Environment) -> Result<()> {
    let server = Real::new(environment);
    server.install(endpoint::definitions()).await?;
    let roles_without_one_verb = roles_without_one_verb(&endpoint::roles(&[]));
    // Each namespaced role is bound in its user's namespace, regardless of its own.
    let complete = [endpoint::roles(&[]), endpoint::roles(&["one".into()])];
    let count = complete.len();
    let roles = complete.into_iter().chain(
        roles_without_one_verb
            .iter()
            .map(|(roles, _)| roles.clone()),
    );
    let users =
        try_join_all(roles.map(async |roles| RestrictedUser::new(&server, &roles).await)).await?;
    // Controllers that started before the CRDs exist must notice them.
    try_join_all(users.iter().map(RestrictedUser::wait_for_crd_watch)).await?;
    server.install(endpoint::dependencies()).await?;
    let forbidden = try_join_all(users.into_iter().map(RestrictedUser::run)).await?;
    let (complete, forbidden) = forbidden.split_at(count);
    assert_eq!(
        complete,
        [None, None],
        "forbidden with all permissions, in the cluster and in a namespace"
    );
    for (forbidden, (_, message)) in forbidden.iter().zip(&roles_without_one_verb) {
        let forbidden = forbidden.as_deref().unwrap_or("nothing is forbidden");
        assert!(forbidden.contains(message), "{message}: {forbidden}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_roles_have_exactly_the_required_verbs() -> Result<()> {
    let api_server_flags = vec!["--feature-gates=WatchList=false".into()];
    let started = Environment::start(testing::Options {
        api_server_flags,
        ..testing::Options::default()
    })
    .await;
    let Some(environment) = testing::started_or_skipped(started) else {
        return Ok(());
    };
    timeout(LIMIT, assert_roles_are_minimal(environment)).await?
}
