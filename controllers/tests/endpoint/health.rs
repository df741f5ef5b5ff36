//! Whether somebody answers: seen, said once, and of no consequence.

use crate::world::{World, until};
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

/// Often, and never too late because the machine is slow.
const EAGER: Health = Health {
    every: Duration::from_millis(20),
    every_when_failing: Duration::from_millis(20),
    connect: Duration::from_mins(1),
    total: Duration::from_mins(1),
    failures: 3,
};

/// What a server does with whoever comes.
#[derive(Clone, Copy)]
enum Manners {
    Answers,
    HangsUp,
    IsSilent,
}

/// A control plane, as far as it can be asked.
struct Plane {
    authority: Authority,
    address: SocketAddr,
    manners: Arc<Mutex<Manners>>,
    /// Connections.
    visits: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Plane {
    async fn start(manners: Manners) -> Result<Self> {
        let authority = Authority::generate()?;
        let shown = authority.server_certificate()?;
        let certificate = CertificateDer::from_pem_slice(shown.certificate_pem.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(shown.key_pem.as_bytes())?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        let tls = TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![certificate], key)?));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, manners) = (listener.local_addr()?, Arc::new(Mutex::new(manners)));
        let visits = Arc::new(AtomicUsize::new(0));
        let (behave, count) = (manners.clone(), visits.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let manners = *behave.lock();
                tokio::spawn(visit(stream, tls.clone(), manners));
            }
        });
        Ok(Self { authority, address, manners, visits, serving })
    }

    /// As Terraform says it.
    fn outputs(&self) -> Value {
        json!({"cluster_endpoint": format!("https://{}", self.address), "cluster_certificate_authority_data": self.authority()})
    }

    fn authority(&self) -> String {
        STANDARD.encode(self.authority.ca_pem())
    }

    fn behave(&self, manners: Manners) {
        *self.manners.lock() = manners;
    }

    fn visits(&self) -> usize {
        self.visits.load(Relaxed)
    }
}

/// Nobody may read anything here.
async fn visit(stream: TcpStream, tls: TlsAcceptor, manners: Manners) -> Result<()> {
    match manners {
        Manners::HangsUp => return Ok(()),
        Manners::IsSilent => {
            std::future::pending::<()>().await;
            drop(stream);
        }
        Manners::Answers => {
            let mut stream = tls.accept(stream).await?;
            let mut asked = vec![0; 1024];
            let read = stream.read(&mut asked).await?;
            let answer = if asked[..read].starts_with(b"GET /readyz HTTP/1.1\r\n") { "401 Unauthorized" } else { "" };
            stream.write_all(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await?;
            stream.shutdown().await?;
        }
    }
    Ok(())
}

/// With a manager that checks.
async fn checked(env: &Env, health: Health) -> Result<World> {
    env.install(endpoint::definitions().into_iter().chain(endpoint::dependencies())).await?;
    let namespace = env.namespace("health").await?;
    let options = Options { health: Some(health), workers: Some(1), ..Options::default() };
    let world = World::with(env.client()?, Manager::builder(env.client()?), &options, &namespace)?;
    world.make_plane().await?;
    Ok(world)
}

impl World {
    /// Status, reason and message.
    async fn health(&self) -> Result<Option<(String, String, String)>> {
        let conditions = self.plane().await?.status.unwrap_or_default().conditions;
        let condition = conditions.into_iter().find(|condition| condition.type_ == ENDPOINT_HEALTHY);
        Ok(condition.map(|it| (it.status, it.reason, it.message)))
    }

    async fn until_health(&self, reason: &str) -> Result<(String, String)> {
        until(async || Ok(self.health().await?.is_some_and(|(_, is, _)| is == reason))).await?;
        let (status, _, message) = self.health().await?.context("a condition")?;
        Ok((status, message))
    }

    /// What the manager has written.
    fn patches(&self) -> u64 {
        let page = self.manager.metrics_page();
        let of_patches = |line: &&str| line.starts_with("rest_client_requests") && line.contains("method=\"PATCH\"");
        let numbers = page.lines().filter(of_patches).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        numbers.sum()
    }

    fn gauge(&self) -> Option<String> {
        let page = self.manager.metrics_page();
        let name = format!("capt_endpoint_healthy{{namespace=\"{}\",name=\"plane\"}} ", self.namespace);
        page.lines().find_map(|line| line.strip_prefix(&name).map(str::to_owned))
    }
}

steersman::env_test! {
    async fn any_answer_is_healthy_and_each_turn_is_written_once(env: Env) -> Result<()> {
        let (plane, world) = (Plane::start(Manners::Answers).await?, checked(&env, EAGER).await?);
        world.make_workspace(Some(plane.outputs())).await?;
        let (status, message) = world.until_health("EndpointReachable").await?;
        assert_eq!((status.as_str(), message), ("True", format!("{} answers", plane.address)));
        assert_eq!(world.gauge().as_deref(), Some("1"));
        world.until_propagated(&plane.address.to_string()).await?;

        let seen = async |visits: usize| {
            let until_now = plane.visits();
            until(async || Ok(plane.visits() >= until_now + visits)).await
        };
        let unchanged = async || {
            let before = world.patches();
            seen(3).await?;
            Ok(world.patches() == before)
        };
        until(unchanged).await.context("what was begun is written")?;
        for (manners, reason, gauge) in [
            (Manners::HangsUp, "EndpointUnreachable", "0"),
            (Manners::Answers, "EndpointReachable", "1"),
            (Manners::HangsUp, "EndpointUnreachable", "0"),
        ] {
            let written = world.patches();
            plane.behave(manners);
            world.until_health(reason).await?;
            assert_eq!(world.gauge().as_deref(), Some(gauge));
            until(async || Ok(world.patches() > written)).await?;
            seen(6).await?;
            assert_eq!(world.patches(), written + 1, "one for the turn, and none for what stays");
        }
        // Nor for what does not concern it.
        let written = world.patches();
        let tags = Patch::Merge(json!({"spec": {"additionalTags": {"team": "web"}}}));
        world.client.patch::<CAPTControlPlane>(&world.key("plane"), &tags).await?;
        until(async || Ok(world.patches() > written)).await?;
        seen(6).await?;
        assert_eq!(world.patches(), written + 1, "EndpointReady is of the new generation");
        let status = world.plane().await?.status.context("it is said")?;
        assert!(status.ready, "that is another matter");
        world.until_propagated(&plane.address.to_string()).await?;
        assert!(!serde_json::to_string(&world.plane().await?)?.contains(&plane.authority()));
        plane.serving.abort();
        world.stop().await
    }

    async fn who_cannot_be_trusted_is_not_there(env: Env) -> Result<()> {
        let (plane, other, world) =
            (Plane::start(Manners::Answers).await?, Authority::generate()?, checked(&env, EAGER).await?);
        let mut outputs = plane.outputs();
        outputs["cluster_certificate_authority_data"] = STANDARD.encode(other.ca_pem()).into();
        world.make_workspace(Some(outputs)).await?;
        let (status, message) = world.until_health("EndpointUnreachable").await?;
        assert_eq!(status, "False");
        assert!(message.contains("no TLS: invalid peer certificate"), "{message}");
        // With the right one it is.
        world.set_outputs(plane.outputs()).await?;
        world.until_health("EndpointReachable").await?;
        plane.serving.abort();
        world.stop().await
    }

    async fn what_was_said_of_one_endpoint_is_not_said_of_the_next(env: Env) -> Result<()> {
        let (first, next) = (Plane::start(Manners::Answers).await?, Plane::start(Manners::IsSilent).await?);
        let world = checked(&env, EAGER).await?;
        world.make_workspace(Some(first.outputs())).await?;
        world.until_health("EndpointReachable").await?;
        assert_eq!(world.gauge().as_deref(), Some("1"));
        // Nobody knows for a minute.
        world.set_outputs(next.outputs()).await?;
        assert_eq!(world.until_health("NotCheckedYet").await?.0, "Unknown");
        assert_eq!(world.gauge(), None);
        world.set_outputs(first.outputs()).await?;
        world.until_propagated(&first.address.to_string()).await?;
        for plane in [first, next] {
            plane.serving.abort();
        }
        world.stop().await
    }

    async fn where_nobody_listens_nobody_is_healthy_and_the_endpoint_stays(env: Env) -> Result<()> {
        let (plane, world) = (Plane::start(Manners::Answers).await?, checked(&env, EAGER).await?);
        plane.serving.abort();
        until(async || Ok(plane.serving.is_finished())).await?;
        world.make_workspace(Some(plane.outputs())).await?;
        let (_, message) = world.until_health("EndpointUnreachable").await?;
        assert!(message.starts_with(&format!("{}: no connection: ", plane.address)), "{message}");
        world.until_propagated(&plane.address.to_string()).await?;
        world.stop().await
    }

    async fn one_that_hangs_keeps_nobody_waiting(env: Env) -> Result<()> {
        let plane = Plane::start(Manners::IsSilent).await?;
        let world = checked(&env, EAGER).await?;
        world.make_workspace(Some(plane.outputs())).await?;
        world.until_propagated(&plane.address.to_string()).await?;
        until(async || Ok(plane.visits() > 0)).await?;
        // While it is asked, by one worker of a minute; and it does not keep the manager from stopping.
        world.set_outputs(json!({"cluster_endpoint": "https://127.0.0.1:9"})).await?;
        world.until_propagated("127.0.0.1:9").await?;
        world.set_outputs(plane.outputs()).await?;
        world.until_propagated(&plane.address.to_string()).await?;
        assert_eq!(world.health().await?, None, "nobody knows yet");
        world.stop().await?;

        let brief = Health { total: Duration::from_millis(50), ..EAGER };
        let world = checked(&env, brief).await?;
        world.make_workspace(Some(plane.outputs())).await?;
        let (_, message) = world.until_health("EndpointUnreachable").await?;
        assert_eq!(message, format!("{}: no answer within 50ms", plane.address));
        plane.serving.abort();
        world.stop().await
    }

    async fn without_an_authority_nobody_is_asked_until_a_secret_has_one(env: Env) -> Result<()> {
        let (plane, world) = (Plane::start(Manners::Answers).await?, checked(&env, EAGER).await?);
        let endpoint = format!("https://{}", plane.address);
        world.make_workspace(Some(json!({"cluster_endpoint": endpoint}))).await?;
        assert_eq!(world.until_health("NoAuthority").await?.0, "Unknown");
        world.set_outputs(json!({"cluster_endpoint": endpoint, "cluster_certificate_authority_data": "hunter2"})).await?;
        let (status, message) = world.until_health("InvalidAuthority").await?;
        assert!(status == "Unknown" && !message.contains("hunter2"), "{message}");
        assert_eq!((plane.visits(), world.gauge()), (0, None), "nobody can be trusted");

        world.set_outputs(json!({"cluster_certificate_authority_data": null})).await?;
        world.set_secret(&endpoint).await?;
        let data = Patch::Merge(json!({"stringData": {"cluster_certificate_authority_data": plane.authority()}}));
        let secret = GroupVersionKind::gvk("", "v1", "Secret");
        world.client.dynamic(&secret).patch(&world.key("connection"), &data).await?;
        world.until_health("EndpointReachable").await?;
        plane.serving.abort();
        world.stop().await
    }

    async fn one_for_insiders_is_not_asked_and_where_nobody_asks_nothing_is_said(env: Env) -> Result<()> {
        let (plane, world) = (Plane::start(Manners::Answers).await?, checked(&env, EAGER).await?);
        let access = |public: bool| {
            let config = json!({"region": "eu-west-1", "endpointAccess": {"public": public, "private": true}});
            Patch::Merge(json!({"spec": {"controlPlaneConfig": config}}))
        };
        world.client.patch::<CAPTControlPlane>(&world.key("plane"), &access(false)).await?;
        world.make_workspace(Some(plane.outputs())).await?;
        assert_eq!(world.until_health("PrivateEndpoint").await?.0, "Unknown");
        assert_eq!((plane.visits(), world.gauge()), (0, None));
        world.client.patch::<CAPTControlPlane>(&world.key("plane"), &access(true)).await?;
        world.until_health("EndpointReachable").await?;
        let namespace = world.namespace.clone();
        world.stop().await?;

        let world = World::again(&env, &namespace)?;
        until(async || Ok(world.health().await?.is_none())).await?;
        world.until_propagated(&plane.address.to_string()).await?;
        plane.serving.abort();
        world.stop().await
    }
}
