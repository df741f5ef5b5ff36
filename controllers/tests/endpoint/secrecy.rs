//! Tests that only valid hosts leave a secret.
//!
//! No other value may be in logs, events, conditions, metrics or debug pages.

use crate::{
    fault_proxy::{Call, FaultKind, FaultProxy},
    fixture::{Fixture, until},
    log_search::LogSearch,
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
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{
        CAPTControlPlane, ENDPOINT_HEALTHY, Health, Options, WorkspaceTemplateApply, definitions,
        dependencies,
    },
};

/// Part of every secret value.
const MARKER: &str = "hunter2";

/// Returns invalid endpoints.
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

/// Returns the encodings of the marker.
///
/// Plain, decimal and hexadecimal bytes, and base64 at each of three offsets.
fn encodings() -> Vec<String> {
    let bytes = MARKER.as_bytes();
    let decimal = format!("{bytes:?}");
    let hexadecimal = format!("{bytes:02x?}").replace(", ", "");
    let within = |before: usize| {
        let text = STANDARD.encode([&vec![0; before][..], bytes].concat());
        // Only the characters that do not depend on adjacent bytes.
        text[(before * 8).div_ceil(6)..(before + bytes.len()) * 8 / 6].to_owned()
    };
    let mut encodings = vec![MARKER.to_owned()];
    encodings.extend([decimal, hexadecimal].map(|list| list.trim_matches(['[', ']']).to_owned()));
    encodings.extend([0, 1, 2].map(within));
    encodings
}

#[test]
fn the_search_finds_the_marker_in_every_encoding() {
    let value = "password: hunter2!";
    for start in 0..3 {
        let encoded = STANDARD.encode(&value[start..]);
        assert!(
            encodings().iter().any(|form| encoded.contains(form)),
            "{encoded}"
        );
    }
    let bytes = value.as_bytes();
    for text in [
        format!("{bytes:?}"),
        format!("{bytes:02x?}").replace(", ", ""),
        format!("{value:?}"),
    ] {
        assert!(encodings().iter().any(|form| text.contains(form)), "{text}");
    }
}

struct LeakDetector<'a> {
    fixture: &'a Fixture,
    encodings: Vec<String>,
    log: LogSearch,
    /// Texts that must be found, to prove that the search works.
    proofs: [String; 2],
}

impl<'a> LeakDetector<'a> {
    fn on(fixture: &'a Fixture) -> Self {
        let encodings = encodings();
        let proofs = [format!("{}/plane", fixture.namespace), "127.0.1.1".into()];
        Self {
            fixture,
            log: LogSearch::to(encodings.iter().chain(&proofs).cloned()),
            encodings,
            proofs,
        }
    }

    fn assert_absent(&self, location: &str, text: &str) {
        for form in &self.encodings {
            assert!(!text.contains(form), "`{form}` is in {location}: {text}");
        }
    }

    /// Searches the value in serialized and in debug format.
    fn assert_hidden(
        &self,
        location: &str,
        value: &(impl Serialize + Debug),
    ) -> anyhow::Result<()> {
        self.assert_absent(location, &serde_json::to_string(value)?);
        self.assert_absent(location, &format!("{value:?}"));
        Ok(())
    }

    /// Searches everything that is visible from outside.
    async fn assert_nothing_leaked(&self) -> anyhow::Result<()> {
        let Fixture {
            client, manager, ..
        } = self.fixture;
        self.assert_hidden("an event", &client.list(&Query::<Event>::default()).await?)?;
        self.assert_hidden(
            "a control plane",
            &client.list(&Query::<CAPTControlPlane>::default()).await?,
        )?;
        self.assert_hidden(
            "a cluster",
            &client.list(&Query::<Cluster>::default()).await?,
        )?;
        self.assert_hidden(
            "an apply",
            &client
                .list(&Query::<WorkspaceTemplateApply>::default())
                .await?,
        )?;
        self.assert_absent("the metrics", &manager.metrics_page());
        for controller in ["endpoint", "endpoint-health"] {
            self.assert_hidden("the queue", &manager.queue(controller, 100, None))?;
        }
        self.assert_hidden("the controllers", &manager.controllers())?;
        self.assert_hidden("the caches", &manager.caches())?;
        self.assert_hidden("the checks", &manager.check(Probe::Ready).await)?;
        for form in &self.encodings {
            if let Some(line) = self.log.first_line(form) {
                panic!("`{form}` is in the log: {line}");
            }
        }
        Ok(())
    }

    async fn until_reason(&self, reason: &str) -> anyhow::Result<()> {
        until(async || {
            self.assert_nothing_leaked().await?;
            Ok(self.fixture.condition().await?.0 == reason)
        })
        .await
    }

    async fn until_health(&self, reason: &str) -> anyhow::Result<()> {
        until(async || {
            self.assert_nothing_leaked().await?;
            let conditions = self
                .fixture
                .plane()
                .await?
                .status
                .unwrap_or_default()
                .conditions;
            Ok(conditions
                .iter()
                .any(|condition| condition.type_ == ENDPOINT_HEALTHY && condition.reason == reason))
        })
        .await
    }

    async fn until_host(&self, host: &str) -> anyhow::Result<()> {
        let endpoint = Some(format!("{host}:443"));
        until(async || {
            self.assert_nothing_leaked().await?;
            Ok(self.fixture.endpoints().await?.1 == endpoint
                && self.fixture.condition().await?.1 == "True")
        })
        .await
    }
}

/// Writes the connection secret with all its usual fields.
async fn put_secret(fixture: &Fixture, endpoint: &[u8]) -> anyhow::Result<()> {
    let mut data: BTreeMap<String, ByteString> = [
        "kubeconfig",
        "cluster_certificate_authority_data",
        "password",
        "token",
    ]
    .map(|name| {
        (
            name.to_owned(),
            ByteString(format!("{MARKER} of {name}").into_bytes()),
        )
    })
    .into();
    data.insert("cluster_endpoint".into(), ByteString(endpoint.to_vec()));
    let mut secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "connection"}, "data": data}))?;
    secret.type_ = Some("connection.crossplane.io/v1alpha1".into());
    match fixture
        .client
        .get::<Secret>(&fixture.key("connection"))
        .await?
    {
        Some(there) => {
            let changed = Secret {
                data: secret.data,
                ..(*there).clone()
            };
            fixture.client.update(&changed).await?;
        }
        None => drop(fixture.client.create(&secret).await?),
    }
    Ok(())
}

/// Alternates valid and invalid values while these requests fail.
async fn change_values(env: &Env, faults: &[(Call, FaultKind)]) -> anyhow::Result<()> {
    let namespace = env.namespace("secrecy").await?;
    let proxy = FaultProxy::new(env.client()?, "1", Duration::from_millis(100), faults);
    // The certificate authority is secret, too, and is read from both sources.
    let options = Options {
        health: Some(Health {
            every_when_failing: Duration::from_millis(20),
            ..Health::default()
        }),
        ..Options::default()
    };
    let fixture = Fixture::with(
        env.client()?,
        Manager::builder(proxy.client()),
        &options,
        &namespace,
    )?;
    fixture.make_plane().await?;
    let detector = LeakDetector::on(&fixture);
    fixture.make_workspace(None).await?;
    detector.until_reason("EndpointNotReady").await?;
    for (turn, bad) in bad_values().iter().enumerate() {
        let host = format!("127.0.1.{turn}");
        put_secret(&fixture, format!("https://{host}").as_bytes()).await?;
        detector.until_host(&host).await?;
        detector.until_health("InvalidAuthority").await?;
        put_secret(&fixture, bad).await?;
        detector.until_reason("InvalidEndpoint").await?;
    }
    let authority = STANDARD.encode(format!("{MARKER} of the outputs"));
    fixture
        .set_outputs(json!({"cluster_endpoint": "127.0.1.9", "cluster_certificate_authority_data": authority}))
        .await?;
    detector.until_host("127.0.1.9").await?;
    detector.until_health("InvalidAuthority").await?;
    fixture
        .client
        .delete::<CAPTControlPlane>(&fixture.key("plane"))
        .await?;
    until(async || {
        Ok(fixture
            .client
            .get::<CAPTControlPlane>(&fixture.key("plane"))
            .await?
            .is_none())
    })
    .await?;
    detector.assert_nothing_leaked().await?;
    for proof in &detector.proofs {
        detector
            .log
            .first_line(proof)
            .with_context(|| format!("`{proof}` is not in the log"))?;
    }
    let events = fixture.client.list(&Query::<Event>::default()).await?;
    anyhow::ensure!(!events.is_empty(), "no event was seen");
    drop(detector);
    fixture.stop().await
}

steersman::env_test! {
    async fn only_valid_hosts_of_a_secret_are_visible(env: Env) -> anyhow::Result<()> {
        env.install(definitions().into_iter().chain(dependencies())).await?;
        let call = |request_kind: &str, before| Call { request_kind: request_kind.into(), before };
        change_values(&env, &[]).await?;
        // A truncated read of the secret, and a failed write while its value is cached.
        let faults = [(call("get secrets", 6), FaultKind::Lost), (call("patch captcontrolplanes/status", 5), FaultKind::Internal)];
        change_values(&env, &faults).await?;
        Ok(())
    }
}
