//! Of what is in a secret, nobody is told anything but a host that is valid: not in logs at any level, events, conditions, metrics or debug pages.

use crate::{
    ears::Listener,
    wire::{Call, Way, Wire},
    world::{World, until},
};
use anyhow::Context as _;
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{ByteString, api::core::v1::Secret, api::events::v1::Event};
use serde::Serialize;
use serde_json::json;
use std::{collections::BTreeMap, fmt::Debug, time::Duration};
use steersman::{
    cache::Query,
    manager::Probe,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::endpoint::{
    CAPTControlPlane, Cluster, ENDPOINT_HEALTHY, Health, Options, WorkspaceTemplateApply, definitions, dependencies,
};

/// In every value that is to stay secret.
const MARKER: &str = "hunter2";

/// What is put where an endpoint should be.
fn bad_values() -> [Vec<u8>; 8] {
    [
        b"https://hunter2:hunter2-password@hunter2.example.com".to_vec(),
        b"http://hunter2.example.com".to_vec(),
        b"https://example.com/hunter2?token=hunter2#hunter2".to_vec(),
        b"example.com:hunter2".to_vec(),
        b"hunter2\xff\xfehunter2".to_vec(),
        STANDARD.encode("http://hunter2.example.com").into_bytes(),
        format!("https://{}.example.com", MARKER.repeat(20_000)).into_bytes(),
        b"apiVersion: v1\nkind: Config\nusers: [{user: {token: hunter2}}]\n".to_vec(),
    ]
}

/// The marker as it may come out: as it is, as bytes in decimal and in hexadecimal, and in base64, which looks different at each of three places.
fn forms() -> Vec<String> {
    let bytes = MARKER.as_bytes();
    let decimal = format!("{bytes:?}");
    let hexadecimal = format!("{bytes:02x?}").replace(", ", "");
    let within = |before: usize| {
        let text = STANDARD.encode([&vec![0; before][..], bytes].concat());
        // Only what depends on nothing else.
        text[(before * 8).div_ceil(6)..(before + bytes.len()) * 8 / 6].to_owned()
    };
    let mut forms = vec![MARKER.to_owned()];
    forms.extend([decimal, hexadecimal].map(|list| list.trim_matches(['[', ']']).to_owned()));
    forms.extend([0, 1, 2].map(within));
    forms
}

#[test]
fn a_marker_is_found_wherever_it_is_encoded() {
    let value = "password: hunter2!";
    for start in 0..3 {
        let encoded = STANDARD.encode(&value[start..]);
        assert!(forms().iter().any(|form| encoded.contains(form)), "{encoded}");
    }
    let bytes = value.as_bytes();
    for shown in [format!("{bytes:?}"), format!("{bytes:02x?}").replace(", ", ""), format!("{value:?}")] {
        assert!(forms().iter().any(|form| shown.contains(form)), "{shown}");
    }
}

struct Spy<'a> {
    world: &'a World,
    forms: Vec<String>,
    log: Listener,
    /// What shows that it looks where something is.
    proofs: [String; 2],
}

impl<'a> Spy<'a> {
    fn on(world: &'a World) -> Self {
        let forms = forms();
        let proofs = [format!("{}/plane", world.namespace), "127.0.1.1".into()];
        Self { world, log: Listener::to(forms.iter().chain(&proofs).cloned()), forms, proofs }
    }

    fn is_silent(&self, place: &str, text: &str) {
        for form in &self.forms {
            assert!(!text.contains(form), "`{form}` is in {place}: {text}");
        }
    }

    /// As it is shown, and as it is debugged.
    fn looks_at(&self, place: &str, what: &(impl Serialize + Debug)) -> anyhow::Result<()> {
        self.is_silent(place, &serde_json::to_string(what)?);
        self.is_silent(place, &format!("{what:?}"));
        Ok(())
    }

    /// At everything that others can see.
    async fn looks_around(&self) -> anyhow::Result<()> {
        let World { client, manager, .. } = self.world;
        self.looks_at("an event", &client.list(&Query::<Event>::default()).await?)?;
        self.looks_at("a control plane", &client.list(&Query::<CAPTControlPlane>::default()).await?)?;
        self.looks_at("a cluster", &client.list(&Query::<Cluster>::default()).await?)?;
        self.looks_at("an apply", &client.list(&Query::<WorkspaceTemplateApply>::default()).await?)?;
        self.is_silent("the metrics", &manager.metrics_page());
        for controller in ["endpoint", "endpoint-health"] {
            self.looks_at("the queue", &manager.queue(controller, 100))?;
        }
        self.looks_at("the controllers", &manager.controllers())?;
        self.looks_at("the caches", &manager.caches())?;
        self.looks_at("the checks", &manager.check(Probe::Ready).await)?;
        for form in &self.forms {
            if let Some(line) = self.log.heard(form) {
                panic!("`{form}` is in the log: {line}");
            }
        }
        Ok(())
    }

    async fn until_reason(&self, reason: &str) -> anyhow::Result<()> {
        until(async || {
            self.looks_around().await?;
            Ok(self.world.condition().await?.0 == reason)
        })
        .await
    }

    async fn until_health(&self, reason: &str) -> anyhow::Result<()> {
        until(async || {
            self.looks_around().await?;
            let conditions = self.world.plane().await?.status.unwrap_or_default().conditions;
            Ok(conditions.iter().any(|condition| condition.type_ == ENDPOINT_HEALTHY && condition.reason == reason))
        })
        .await
    }

    async fn until_at(&self, host: &str) -> anyhow::Result<()> {
        let endpoint = Some(format!("{host}:443"));
        until(async || {
            self.looks_around().await?;
            Ok(self.world.endpoints().await?.1 == endpoint && self.world.condition().await?.1 == "True")
        })
        .await
    }
}

/// The connection secret, with what else is in one.
async fn put_secret(world: &World, endpoint: &[u8]) -> anyhow::Result<()> {
    let mut data: BTreeMap<String, ByteString> =
        ["kubeconfig", "cluster_certificate_authority_data", "password", "token"]
            .map(|name| (name.to_owned(), ByteString(format!("{MARKER} of {name}").into_bytes())))
            .into();
    data.insert("cluster_endpoint".into(), ByteString(endpoint.to_vec()));
    let mut secret: Secret = serde_json::from_value(json!({"metadata": {"name": "connection"}, "data": data}))?;
    secret.type_ = Some("connection.crossplane.io/v1alpha1".into());
    match world.client.get::<Secret>(&world.key("connection")).await? {
        Some(there) => {
            let changed = Secret { data: secret.data, ..(*there).clone() };
            world.client.update(&changed).await?;
        }
        None => drop(world.client.create(&secret).await?),
    }
    Ok(())
}

/// Good and bad values by turns, while these calls go wrong.
async fn values_come_and_go(env: &Env, faults: &[(Call, Way)]) -> anyhow::Result<()> {
    let namespace = env.namespace("secrecy").await?;
    let wire = Wire::new(env.client()?, "1", Duration::from_millis(100), faults);
    // Whose authority is a secret, too, and who reads it from both sources.
    let options = Options {
        health: Some(Health { every_when_failing: Duration::from_millis(20), ..Health::default() }),
        ..Options::default()
    };
    let world = World::with(env.client()?, Manager::builder(wire.client()), &options, &namespace)?;
    world.make_plane().await?;
    let spy = Spy::on(&world);
    world.make_workspace(None).await?;
    spy.until_reason("EndpointNotReady").await?;
    for (turn, bad) in bad_values().iter().enumerate() {
        let host = format!("127.0.1.{turn}");
        put_secret(&world, format!("https://{host}").as_bytes()).await?;
        spy.until_at(&host).await?;
        spy.until_health("InvalidAuthority").await?;
        put_secret(&world, bad).await?;
        spy.until_reason("InvalidEndpoint").await?;
    }
    let authority = STANDARD.encode(format!("{MARKER} of the outputs"));
    world
        .set_outputs(json!({"cluster_endpoint": "127.0.1.9", "cluster_certificate_authority_data": authority}))
        .await?;
    spy.until_at("127.0.1.9").await?;
    spy.until_health("InvalidAuthority").await?;
    world.client.delete::<CAPTControlPlane>(&world.key("plane")).await?;
    until(async || Ok(world.client.get::<CAPTControlPlane>(&world.key("plane")).await?.is_none())).await?;
    spy.looks_around().await?;
    for proof in &spy.proofs {
        spy.log.heard(proof).with_context(|| format!("`{proof}` is in no log: is anything heard?"))?;
    }
    let events = world.client.list(&Query::<Event>::default()).await?;
    anyhow::ensure!(!events.is_empty(), "no event was seen");
    drop(spy);
    world.stop().await
}

steersman::env_test! {
    async fn nothing_of_a_secret_is_told_but_a_valid_host(env: Env) -> anyhow::Result<()> {
        env.install(definitions().into_iter().chain(dependencies())).await?;
        let call = |what: &str, before| Call { what: what.into(), before };
        values_come_and_go(&env, &[]).await?;
        // A secret that is read only by half, and a refusal while one is known.
        let faults = [(call("get secrets", 6), Way::Lost), (call("patch captcontrolplanes/status", 5), Way::Internal)];
        values_come_and_go(&env, &faults).await?;
        Ok(())
    }
}
