//! Tests of health checks.
//!
//! Results are reported once and do not affect the endpoint.

use crate::fixture::{Fixture, until};
use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_apiserver::Authority;
use steersman_controllers::endpoint::{self, CAPTControlPlane, ENDPOINT_HEALTHY, Health, Options};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// Short intervals, and timeouts that a slow machine does not exceed.
const SHORT_INTERVALS: Health = Health {
    every: Duration::from_millis(20),
    every_when_failing: Duration::from_millis(20),
    connect: Duration::from_mins(1),
    total: Duration::from_mins(1),
    failures: 3,
};

/// Behaviour of the test server towards connections.
#[derive(Clone, Copy)]
enum Behaviour {
    Responds,
    Closes,
    Hangs,
}

/// Test server in place of a control plane's API server.
struct Plane {
    authority: Authority,
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    /// Number of connections.
    connections: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Plane {
    async fn start(behaviour: Behaviour) -> Result<Self> {
        let authority = Authority::generate()?;
        let server_certificate = authority.server_certificate()?;
        let certificate =
            CertificateDer::from_pem_slice(server_certificate.certificate_pem.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(server_certificate.key_pem.as_bytes())?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()?
            .with_no_client_auth();
        let tls = TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![certificate], key)?));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, behaviour) = (listener.local_addr()?, Arc::new(Mutex::new(behaviour)));
        let connections = Arc::new(AtomicUsize::new(0));
        let (set_behaviour, connection_count) = (behaviour.clone(), connections.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connection_count.fetch_add(1, Relaxed);
                let behaviour = *set_behaviour.lock();
                tokio::spawn(serve(stream, tls.clone(), behaviour));
            }
        });
        Ok(Self {
            authority,
            address,
            behaviour,
            connections,
            serving,
        })
    }

    /// Returns the outputs of the workspace in Terraform's format.
    fn outputs(&self) -> Value {
        json!({"cluster_endpoint": format!("https://{}", self.address), "cluster_certificate_authority_data": self.authority()})
    }

    fn authority(&self) -> String {
        STANDARD.encode(self.authority.ca_pem())
    }

    fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock() = behaviour;
    }

    fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

/// Serves one connection. Requests are answered with 401.
async fn serve(stream: TcpStream, tls: TlsAcceptor, behaviour: Behaviour) -> Result<()> {
    match behaviour {
        Behaviour::Closes => return Ok(()),
        Behaviour::Hangs => {
            std::future::pending::<()>().await;
            drop(stream);
        }
        Behaviour::Responds => {
            let mut stream = tls.accept(stream).await?;
            let mut request = vec![0; 1024];
            let read = stream.read(&mut request).await?;
            let status = if request[..read].starts_with(b"GET /readyz HTTP/1.1\r\n") {
                "401 Unauthorized"
            } else {
                ""
            };
            stream
                .write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes())
                .await?;
            stream.shutdown().await?;
        }
    }
    Ok(())
}

/// Starts a manager with health checks.
async fn start_with_checks(env: &Env, health: Health) -> Result<Fixture> {
    env.install(
        endpoint::definitions()
            .into_iter()
            .chain(endpoint::dependencies()),
    )
    .await?;
    let namespace = env.namespace("health").await?;
    let options = Options {
        health: Some(health),
        workers: Some(1),
        ..Options::default()
    };
    let fixture = Fixture::with(
        env.client()?,
        Manager::builder(env.client()?),
        &options,
        &namespace,
    )?;
    fixture.make_plane().await?;
    Ok(fixture)
}

impl Fixture {
    /// Returns status, reason and message of the condition.
    async fn health(&self) -> Result<Option<(String, String, String)>> {
        let conditions = self.plane().await?.status.unwrap_or_default().conditions;
        let condition = conditions
            .into_iter()
            .find(|condition| condition.type_ == ENDPOINT_HEALTHY);
        Ok(condition.map(|it| (it.status, it.reason, it.message)))
    }

    async fn until_health(&self, reason: &str) -> Result<(String, String)> {
        until(async || Ok(self.health().await?.is_some_and(|(_, is, _)| is == reason))).await?;
        let (status, _, message) = self.health().await?.context("a condition")?;
        Ok((status, message))
    }

    /// Counts the PATCH requests of the manager.
    fn patches(&self) -> u64 {
        let page = self.manager.metrics_page();
        let is_patch = |line: &&str| {
            line.starts_with("rest_client_requests") && line.contains("method=\"PATCH\"")
        };
        let numbers = page
            .lines()
            .filter(is_patch)
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        numbers.sum()
    }

    fn gauge(&self) -> Option<String> {
        let page = self.manager.metrics_page();
        let name = format!(
            "capt_endpoint_healthy{{namespace=\"{}\",name=\"plane\"}} ",
            self.namespace
        );
        page.lines()
            .find_map(|line| line.strip_prefix(&name).map(str::to_owned))
    }
}

steersman::env_test! {
    async fn any_response_is_healthy_and_each_change_is_written_once(env: Env) -> Result<()> {
        let (plane, fixture) = (Plane::start(Behaviour::Responds).await?, start_with_checks(&env, SHORT_INTERVALS).await?);
        fixture.make_workspace(Some(plane.outputs())).await?;
        let (status, message) = fixture.until_health("EndpointReachable").await?;
        assert_eq!((status.as_str(), message), ("True", format!("{} responds", plane.address)));
        assert_eq!(fixture.gauge().as_deref(), Some("1"));
        fixture.until_propagated(&plane.address.to_string()).await?;

        let wait_for_checks = async |connections: usize| {
            let until_now = plane.connections();
            until(async || Ok(plane.connections() >= until_now + connections)).await
        };
        let unchanged = async || {
            let before = fixture.patches();
            wait_for_checks(3).await?;
            Ok(fixture.patches() == before)
        };
        until(unchanged).await.context("pending writes finish")?;
        for (behaviour, reason, gauge) in [
            (Behaviour::Closes, "EndpointUnreachable", "0"),
            (Behaviour::Responds, "EndpointReachable", "1"),
            (Behaviour::Closes, "EndpointUnreachable", "0"),
        ] {
            let written = fixture.patches();
            plane.set_behaviour(behaviour);
            fixture.until_health(reason).await?;
            assert_eq!(fixture.gauge().as_deref(), Some(gauge));
            until(async || Ok(fixture.patches() > written)).await?;
            wait_for_checks(6).await?;
            assert_eq!(fixture.patches(), written + 1, "one write per change");
        }
        // Unrelated changes cause no write either.
        let written = fixture.patches();
        let tags = Patch::Merge(json!({"spec": {"additionalTags": {"team": "web"}}}));
        fixture.client.patch::<CAPTControlPlane>(&fixture.key("plane"), &tags).await?;
        until(async || Ok(fixture.patches() > written)).await?;
        wait_for_checks(6).await?;
        assert_eq!(fixture.patches(), written + 1, "EndpointReady is of the new generation");
        let status = fixture.plane().await?.status.context("a status")?;
        assert!(status.ready, "readiness does not depend on health");
        fixture.until_propagated(&plane.address.to_string()).await?;
        assert!(!serde_json::to_string(&fixture.plane().await?)?.contains(&plane.authority()));
        plane.serving.abort();
        fixture.stop().await
    }

    async fn an_untrusted_certificate_is_unreachable(env: Env) -> Result<()> {
        let (plane, other, fixture) =
            (Plane::start(Behaviour::Responds).await?, Authority::generate()?, start_with_checks(&env, SHORT_INTERVALS).await?);
        let mut outputs = plane.outputs();
        outputs["cluster_certificate_authority_data"] = STANDARD.encode(other.ca_pem()).into();
        fixture.make_workspace(Some(outputs)).await?;
        let (status, message) = fixture.until_health("EndpointUnreachable").await?;
        assert_eq!(status, "False");
        assert!(message.contains("TLS handshake failed: invalid peer certificate"), "{message}");
        // The correct authority makes it reachable.
        fixture.set_outputs(plane.outputs()).await?;
        fixture.until_health("EndpointReachable").await?;
        plane.serving.abort();
        fixture.stop().await
    }

    async fn a_new_endpoint_resets_the_condition(env: Env) -> Result<()> {
        let (first, next) = (Plane::start(Behaviour::Responds).await?, Plane::start(Behaviour::Hangs).await?);
        let fixture = start_with_checks(&env, SHORT_INTERVALS).await?;
        fixture.make_workspace(Some(first.outputs())).await?;
        fixture.until_health("EndpointReachable").await?;
        assert_eq!(fixture.gauge().as_deref(), Some("1"));
        // Not checked before a minute has passed.
        fixture.set_outputs(next.outputs()).await?;
        assert_eq!(fixture.until_health("NotCheckedYet").await?.0, "Unknown");
        assert_eq!(fixture.gauge(), None);
        fixture.set_outputs(first.outputs()).await?;
        fixture.until_propagated(&first.address.to_string()).await?;
        for plane in [first, next] {
            plane.serving.abort();
        }
        fixture.stop().await
    }

    async fn a_closed_port_is_unreachable_and_keeps_the_endpoint(env: Env) -> Result<()> {
        let (plane, fixture) = (Plane::start(Behaviour::Responds).await?, start_with_checks(&env, SHORT_INTERVALS).await?);
        plane.serving.abort();
        until(async || Ok(plane.serving.is_finished())).await?;
        fixture.make_workspace(Some(plane.outputs())).await?;
        let (_, message) = fixture.until_health("EndpointUnreachable").await?;
        assert!(message.starts_with(&format!("{}: no connection: ", plane.address)), "{message}");
        fixture.until_propagated(&plane.address.to_string()).await?;
        fixture.stop().await
    }

    async fn a_check_that_hangs_blocks_nothing(env: Env) -> Result<()> {
        let plane = Plane::start(Behaviour::Hangs).await?;
        let fixture = start_with_checks(&env, SHORT_INTERVALS).await?;
        fixture.make_workspace(Some(plane.outputs())).await?;
        fixture.until_propagated(&plane.address.to_string()).await?;
        until(async || Ok(plane.connections() > 0)).await?;
        // A check that hangs blocks neither reconciles nor the manager's shutdown.
        fixture.set_outputs(json!({"cluster_endpoint": "https://127.0.0.1:9"})).await?;
        fixture.until_propagated("127.0.0.1:9").await?;
        fixture.set_outputs(plane.outputs()).await?;
        fixture.until_propagated(&plane.address.to_string()).await?;
        assert_eq!(fixture.health().await?, None, "no result yet");
        fixture.stop().await?;

        let short_limit = Health { total: Duration::from_millis(50), ..SHORT_INTERVALS };
        let fixture = start_with_checks(&env, short_limit).await?;
        fixture.make_workspace(Some(plane.outputs())).await?;
        let (_, message) = fixture.until_health("EndpointUnreachable").await?;
        assert_eq!(message, format!("{}: no response within 50ms", plane.address));
        plane.serving.abort();
        fixture.stop().await
    }

    async fn an_endpoint_is_not_checked_without_an_authority(env: Env) -> Result<()> {
        let (plane, fixture) = (Plane::start(Behaviour::Responds).await?, start_with_checks(&env, SHORT_INTERVALS).await?);
        let endpoint = format!("https://{}", plane.address);
        fixture.make_workspace(Some(json!({"cluster_endpoint": endpoint}))).await?;
        assert_eq!(fixture.until_health("NoAuthority").await?.0, "Unknown");
        fixture.set_outputs(json!({"cluster_endpoint": endpoint, "cluster_certificate_authority_data": "hunter2"})).await?;
        let (status, message) = fixture.until_health("InvalidAuthority").await?;
        assert!(status == "Unknown" && !message.contains("hunter2"), "{message}");
        assert_eq!((plane.connections(), fixture.gauge()), (0, None), "no connection without an authority");

        fixture.set_outputs(json!({"cluster_certificate_authority_data": null})).await?;
        fixture.set_secret(&endpoint).await?;
        let data = Patch::Merge(json!({"stringData": {"cluster_certificate_authority_data": plane.authority()}}));
        let secret = GroupVersionKind::gvk("", "v1", "Secret");
        fixture.client.dynamic(&secret).patch(&fixture.key("connection"), &data).await?;
        fixture.until_health("EndpointReachable").await?;
        plane.serving.abort();
        fixture.stop().await
    }

    async fn a_private_endpoint_is_not_checked_and_disabled_checks_remove_the_condition(env: Env) -> Result<()> {
        let (plane, fixture) = (Plane::start(Behaviour::Responds).await?, start_with_checks(&env, SHORT_INTERVALS).await?);
        let access = |public: bool| {
            let config = json!({"region": "eu-west-1", "endpointAccess": {"public": public, "private": true}});
            Patch::Merge(json!({"spec": {"controlPlaneConfig": config}}))
        };
        fixture.client.patch::<CAPTControlPlane>(&fixture.key("plane"), &access(false)).await?;
        fixture.make_workspace(Some(plane.outputs())).await?;
        assert_eq!(fixture.until_health("PrivateEndpoint").await?.0, "Unknown");
        assert_eq!((plane.connections(), fixture.gauge()), (0, None));
        fixture.client.patch::<CAPTControlPlane>(&fixture.key("plane"), &access(true)).await?;
        fixture.until_health("EndpointReachable").await?;
        let namespace = fixture.namespace.clone();
        fixture.stop().await?;

        let fixture = Fixture::scenario_runner(&env, &namespace)?;
        until(async || Ok(fixture.health().await?.is_none())).await?;
        fixture.until_propagated(&plane.address.to_string()).await?;
        plane.serving.abort();
        fixture.stop().await
    }
}
