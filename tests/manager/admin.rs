//! Tests of the admin server over sockets.

use crate::{
    http_client::{Page, ask, get, get_as},
    support::{Running, builder, nothing, server},
};
use http::Response;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, api::PostParams, client::Body};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName},
};
use serde_json::{Value, json};
use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    admin::{Access, Admin, AdminError, TlsFiles},
    manager::{ManagerBuilder, ManagerHandle, Probe},
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_apiserver::Authority;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
};
use tokio_rustls::TlsConnector;

fn any_port() -> Admin {
    Admin {
        address: "127.0.0.1:0".parse().expect("an address"),
        ..Admin::default()
    }
}

/// Runs a manager with an admin server.
async fn serving(
    builder: ManagerBuilder,
    admin: Admin,
) -> anyhow::Result<(ManagerHandle, SocketAddr, Running)> {
    let manager = builder.build()?;
    let address = manager.serve_admin(admin)?.address();
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    Ok((handle, address, running))
}

#[tokio::test]
async fn health_pages_have_the_format_of_controller_runtime() -> anyhow::Result<()> {
    let server = server();
    let (handle, address, running) = serving(builder(&server), any_port()).await?;
    handle.add_check(Probe::Ready, "door", || Err("the door is open".into()));
    let broken =
        "[+]cache ok\n[-]door failed: reason withheld\n[+]started ok\nreadyz check failed\n";
    let fine = "[+]cache ok\n[+]door excluded: ok\n[+]started ok\n";
    for (path, code, body) in [
        ("/healthz", 200, "ok".to_owned()),
        ("/healthz/", 200, "ok".into()),
        (
            "/healthz?verbose",
            200,
            "[+]ping ok\nhealthz check passed\n".into(),
        ),
        (
            "/healthz?verbose=1&exclude=ping",
            200,
            "[+]ping excluded: ok\nhealthz check passed\n".into(),
        ),
        ("/healthz/ping", 200, "ok".into()),
        ("/healthz/none", 404, String::new()),
        ("/healthz/ping/none", 404, String::new()),
        ("/readyz", 500, broken.into()),
        ("/readyz?exclude=door", 200, "ok".into()),
        (
            "/readyz?exclude=door&verbose",
            200,
            format!("{fine}readyz check passed\n"),
        ),
        (
            "/readyz?exclude=door,window&verbose",
            200,
            format!(
                "{fine}warn: some health checks cannot be excluded: no matches for \"window\"\nreadyz check passed\n"
            ),
        ),
        (
            "/readyz/door",
            500,
            "internal server error: the door is open\n".into(),
        ),
        ("/readyz/cache", 200, "ok".into()),
        ("/none", 404, String::new()),
    ] {
        let page = get(address, path).await?;
        assert_eq!((page.code, page.body), (code, body), "{path}");
    }
    assert!(
        get(address, "/readyz")
            .await?
            .head
            .contains("x-content-type-options: nosniff")
    );
    running.stop().await
}

#[tokio::test]
async fn debug_queues_show_reasons_and_terminal_errors() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let reconciler = reconcile::from_fn(async |request: Request, _| match request.name() {
        "bad" => Err(Failure::terminal(anyhow::anyhow!("replicas is negative")).into()),
        _ => Ok(Outcome::requeue_after(Duration::from_mins(1))),
    });
    let controller = manager.controller("sites").reconcile(reconciler)?;
    let address = manager.serve_admin(any_port())?.address();
    for name in ["bad", "good"] {
        controller.queue().add(Request::new("shop", name));
    }
    let running = Running::new(manager);
    let page = loop {
        let page = get(address, "/debug/queues/sites").await?.json();
        if page["stats"]["delayed"] == 1 {
            break page;
        }
    };
    assert_eq!(page["entries"][0]["reasons"], json!(["requeue after 60 s"]));
    assert_eq!(page["stats"]["bands"]["normal"]["depth"], 0, "{page}");
    assert_eq!(page["stats"]["worked"]["count"], 2, "{page}");
    let queues = get(address, "/debug/queues").await?.json();
    for page in [&page, &queues[0]] {
        let outcome = &page["terminal"][0];
        assert_eq!(
            (&outcome["key"], &outcome["attempt"]),
            (&json!("shop/bad"), &json!(1)),
            "{page}"
        );
        assert!(
            outcome["error"]
                .as_str()
                .is_some_and(|error| error.ends_with("replicas is negative")),
            "{page}"
        );
    }
    running.stop().await
}

#[tokio::test]
async fn debug_pages_are_reports_as_json() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server)
        .leader_election("operator", "default")
        .build()?;
    let free = Arc::new(Semaphore::new(0));
    let waits = free.clone();
    manager
        .controller("maps")
        .for_::<ConfigMap>()
        .reconcile(reconcile::from_fn(move |_: Request, _| {
            let waits = waits.clone();
            async move {
                waits.acquire().await?.forget();
                Ok(Outcome::done())
            }
        }))?;
    let address = manager.serve_admin(any_port())?.address();
    let handle = manager.handle();
    handle.add_check(Probe::Ready, "door", || Err("the door is open".into()));
    let running = Running::new(manager);
    for name in ["a", "b", "c"] {
        let map = json!({"metadata": {"namespace": "default", "name": name}});
        handle
            .client()
            .create::<ConfigMap>(&serde_json::from_value(map)?)
            .await?;
    }
    let controller = loop {
        let page = get(address, "/debug/queues/maps").await?.json();
        if page["keys"] == 3 && page["stats"]["running"] == 1 {
            break page;
        }
    };
    assert_eq!(
        (&controller["controller"], &controller["stats"]["running"]),
        (&json!("maps"), &json!(1))
    );
    let entries = controller["entries"].as_array().expect("entries");
    assert_eq!(
        (&entries[0]["state"], &entries[1]["state"]),
        (&json!("running"), &json!("ready"))
    );
    assert!(
        entries[0]["key"]
            .as_str()
            .is_some_and(|key| key.starts_with("default/")),
        "{controller}"
    );
    assert!(
        entries[1]["reasons"]
            .as_array()
            .is_some_and(|reasons| !reasons.is_empty()),
        "{controller}"
    );
    let some = get(address, "/debug/queues/maps?limit=1").await?.json();
    assert_eq!(
        (&some["keys"], some["entries"].as_array().map(Vec::len)),
        (&json!(3), Some(1))
    );
    let key = entries[1]["key"].as_str().expect("a key");
    let one = get(address, &format!("/debug/queues/maps?key={key}")).await?;
    let one = one.json();
    assert_eq!(one["entries"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["entries"][0]["key"], key);
    let other = get(address, "/debug/queues/maps?key=default/other").await?;
    assert_eq!(other.json()["entries"], json!([]));

    let [controllers, queues, caches, leases, checks] = {
        let mut pages = Vec::new();
        for page in ["controllers", "queues", "caches", "leases", "checks"] {
            let page = get(address, &format!("/debug/{page}")).await?;
            assert!(
                page.code == 200 && page.head.contains("content-type: application/json"),
                "{page:?}"
            );
            pages.push(page.json());
        }
        <[Value; 5]>::try_from(pages).expect("five")
    };
    assert_eq!(
        (
            &controllers[0]["name"],
            &controllers[0]["watches"][0]["state"]
        ),
        (&json!("maps"), &json!("synced"))
    );
    assert_eq!(
        (&queues[0]["controller"], &queues[0]["stats"]["running"]),
        (&json!("maps"), &json!(1))
    );
    let informer = &caches[0]["informers"][0];
    assert_eq!(
        (&informer["kind"], &informer["objects"]),
        (&json!("ConfigMap"), &json!(3))
    );
    assert_eq!(
        (&leases[0]["name"], &leases[0]["leading"]),
        (&json!("operator"), &json!(true))
    );
    let readyz = checks["readyz"].as_array().expect("checks");
    let door = readyz
        .iter()
        .find(|check| check["name"] == "door")
        .expect("the check was added");
    assert_eq!(door["failure"], "the door is open", "{checks}");
    assert_eq!(get(address, "/debug/queues/none").await?.code, 404);

    let metrics = get(address, "/metrics").await?;
    assert!(
        metrics
            .head
            .contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(metrics.body.ends_with("# EOF\n"));
    free.add_permits(100);
    running.stop().await
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_the_fix() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let taken = manager.serve_admin(any_port())?.address();
    let error = manager
        .serve_admin(Admin {
            address: taken,
            ..Admin::default()
        })
        .unwrap_err();
    assert!(matches!(error, AdminError::Bind { .. }));
    let words = error.to_string();
    assert!(
        words.contains(&format!("cannot listen on {taken}: ")),
        "{words}"
    );
    assert!(
        words.ends_with("choose another port, 0 for any free one, in `Admin::address`"),
        "{words}"
    );
    drop(manager);
    // Dropping the manager closes the socket.
    std::net::TcpListener::bind(taken)?;
    Ok(())
}

#[tokio::test]
async fn a_public_address_serves_no_debug_pages_and_no_error_texts() -> anyhow::Result<()> {
    let server = server();
    assert!(Admin::default().address.ip().is_loopback());
    let everywhere = Admin {
        address: "0.0.0.0:0".parse()?,
        ..Admin::default()
    };
    let (handle, address, running) = serving(builder(&server), everywhere.clone()).await?;
    handle.add_check(Probe::Ready, "door", || Err("the door is open".into()));
    let here = SocketAddr::from(([127, 0, 0, 1], address.port()));
    let hidden = get(here, "/debug/queues").await?;
    assert!(
        hidden.code == 403 && hidden.body.contains("Admin::access"),
        "{hidden:?}"
    );
    assert_eq!(
        get(here, "/readyz/door").await?.body,
        "internal server error: reason withheld\n"
    );
    assert_eq!(
        (
            get(here, "/metrics").await?.code,
            get(here, "/healthz").await?.code
        ),
        (200, 200)
    );
    running.stop().await?;

    let shown = Admin {
        debug: Some(true),
        ..everywhere.clone()
    };
    let (_, address, running) = serving(builder(&server), shown).await?;
    assert_eq!(
        get(
            SocketAddr::from(([127, 0, 0, 1], address.port())),
            "/debug/queues"
        )
        .await?
        .code,
        200
    );
    running.stop().await?;

    let manager = builder(&server).build()?;
    let rejected = manager
        .serve_admin(Admin {
            access: Access::Reviewed,
            ..everywhere
        })
        .unwrap_err();
    assert!(
        rejected.to_string().contains("set `Admin::tls`"),
        "{rejected}"
    );
    Ok(())
}

#[tokio::test]
async fn custom_pages_require_a_free_path() -> anyhow::Result<()> {
    let server = server();
    let page = |words: &'static str| axum::routing::get(move || std::future::ready(words));
    let routes = axum::Router::new()
        .route("/about", page("a painter"))
        .route("/healthz", page("never"));
    let (_, address, running) = serving(
        builder(&server),
        Admin {
            routes: Some(routes),
            ..any_port()
        },
    )
    .await?;
    let Page { code, body, .. } = get(address, "/about").await?;
    assert_eq!((code, &*body), (200, "a painter"));
    assert_eq!(get(address, "/healthz").await?.body, "ok");
    assert_eq!(get(address, "/none").await?.code, 404);
    running.stop().await
}

#[tokio::test]
async fn a_stop_does_not_wait_for_idle_connections() -> anyhow::Result<()> {
    let server = server();
    let (_, address, running) = serving(builder(&server), any_port()).await?;
    let mut idle = TcpStream::connect(address).await?;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await?;
    let mut answer = [0; 512];
    assert!(
        idle.read(&mut answer).await? > 0 && answer.starts_with(b"HTTP/1.1 200"),
        "the connection is kept open"
    );
    let mut silent = TcpStream::connect(address).await?;
    running.stop().await?;
    assert_eq!(
        (
            idle.read(&mut answer).await?,
            silent.read(&mut answer).await.unwrap_or(0)
        ),
        (0, 0)
    );
    assert!(TcpStream::connect(address).await.is_err());
    Ok(())
}

/// Requests a page with a client that trusts only this authority.
async fn over_tls(authority: &Authority, address: SocketAddr, path: &str) -> anyhow::Result<Page> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority.ca_der()))?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost")?, stream)
        .await?;
    ask(stream, path, None).await
}

#[tokio::test]
async fn with_a_certificate_only_https_is_served() -> anyhow::Result<()> {
    let (server, directory, authority) = (server(), tempfile::tempdir()?, Authority::generate()?);
    let (files, signed) = (
        TlsFiles::in_directory(&directory),
        authority.server_certificate()?,
    );
    fs::write(&files.certificate, signed.certificate_pem)?;
    fs::write(&files.key, signed.key_pem)?;
    let (_, address, running) = serving(
        builder(&server),
        Admin {
            tls: Some(files.clone()),
            ..any_port()
        },
    )
    .await?;
    assert_eq!(over_tls(&authority, address, "/healthz").await?.body, "ok");
    assert!(
        over_tls(&Authority::generate()?, address, "/healthz")
            .await
            .is_err()
    );
    assert!(get(address, "/healthz").await.is_err(), "not in the clear");
    running.stop().await?;

    fs::remove_file(&files.key)?;
    let manager = builder(&server).build()?;
    let error = manager
        .serve_admin(Admin {
            tls: Some(files),
            ..any_port()
        })
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tls.key: ") && error.contains("PEM files that this process can read"),
        "{error}"
    );
    Ok(())
}

/// Returns a client of an API server that knows the tokens `good` and `other`.
///
/// Only the first may read metrics.
fn cluster(asked: &Arc<AtomicUsize>, up: bool) -> kube::Client {
    let asked = asked.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        asked.fetch_add(1, Relaxed);
        async move {
            let path = request.uri().path().to_owned();
            let body: Value = serde_json::from_slice(&request.into_body().collect_bytes().await?)?;
            let status = match &*path {
                _ if !up => {
                    return Ok(answer(
                        500,
                        &json!({"kind": "Status", "message": "down", "code": 500}),
                    ));
                }
                "/apis/authentication.k8s.io/v1/tokenreviews" => {
                    match body["spec"]["token"].as_str() {
                        Some(token @ ("good" | "other")) => {
                            let user =
                                json!({"username": token, "groups": ["g"], "extra": {"k": ["v"]}});
                            json!({"authenticated": true, "user": user})
                        }
                        _ => json!({"authenticated": false, "user": {}, "error": "who?"}),
                    }
                }
                "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                    let spec = &body["spec"];
                    assert_eq!(
                        (&spec["groups"], &spec["extra"]),
                        (&json!(["g"]), &json!({"k": ["v"]}))
                    );
                    let may = json!({"path": "/metrics", "verb": "get"});
                    json!({"allowed": spec["user"] == "good" && spec["nonResourceAttributes"] == may})
                }
                other => panic!("{other}"),
            };
            Ok::<_, tower::BoxError>(answer(201, &json!({"status": status})))
        }
    });
    kube::Client::new(service, "default")
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(code)
        .body(Body::from(body.to_string().into_bytes()))
        .expect("an answer")
}

#[tokio::test]
async fn access_reviews_authorize_requests_and_are_cached() -> anyhow::Result<()> {
    let asked = Arc::new(AtomicUsize::new(0));
    let reviewed = Admin {
        access: Access::Reviewed,
        ..any_port()
    };
    let (handle, address, running) =
        serving(Manager::builder(cluster(&asked, true)), reviewed.clone()).await?;
    for _ in 0..2 {
        for (token, path, code) in [
            (None, "/healthz", 200),
            (None, "/readyz/started", 200),
            (None, "/metrics", 401),
            (Some("bad"), "/metrics", 401),
            (Some("good"), "/metrics", 200),
            (Some("good"), "/debug/queues", 403),
            (Some("other"), "/metrics", 403),
            (Some("good"), "/none", 403),
        ] {
            let page = get_as(address, path, token).await?;
            assert_eq!(page.code, code, "{token:?} {path}: {page:?}");
            assert_eq!(page.head.contains("www-authenticate: bearer"), code == 401);
        }
    }
    // Three token reviews, and four access reviews for two of the tokens.
    assert_eq!(asked.load(Relaxed), 7);
    let (page, counted) = (
        handle.metrics_page(),
        "rest_client_requests_total{code=\"201\",method=\"POST\",host=\"\"} 7",
    );
    assert!(page.lines().any(|line| line == counted), "{page}");
    running.stop().await?;

    let strict = Admin {
        review_health: true,
        ..reviewed
    };
    let (_, address, running) = serving(Manager::builder(cluster(&asked, true)), strict).await?;
    assert_eq!(get(address, "/healthz").await?.code, 401);
    running.stop().await
}

#[tokio::test]
async fn a_failed_access_review_denies_the_request() -> anyhow::Result<()> {
    let reviewed = Admin {
        access: Access::Reviewed,
        ..any_port()
    };
    let (_, address, running) = serving(
        Manager::builder(cluster(&Arc::default(), false)),
        reviewed.clone(),
    )
    .await?;
    assert_eq!(get_as(address, "/metrics", Some("good")).await?.code, 503);
    assert_eq!(get(address, "/healthz").await?.code, 200);
    running.stop().await?;
    // The embedded server does not support reviews.
    let server = server();
    let (_, address, running) = serving(builder(&server), reviewed).await?;
    assert_eq!(get_as(address, "/metrics", Some("good")).await?.code, 503);
    running.stop().await
}

#[test]
fn the_real_server_authorizes_metrics() {
    steersman::testing::run_real(|env: Env| async move {
        let (client, namespace) = (env.client()?, env.namespace("admin").await?);
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &namespace);
        let mut tokens = Vec::new();
        for name in ["scraper", "stranger"] {
            let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            accounts.create(&PostParams::default(), &account).await?;
            let wanted: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
            let token = accounts
                .create_token_request(name, &PostParams::default(), &wanted)
                .await?;
            tokens.push(token.status.and_then(|status| status.token));
        }
        let role = json!({
            "metadata": {"name": format!("{namespace}-metrics")},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        });
        Api::<ClusterRole>::all(client.clone())
            .create(&PostParams::default(), &serde_json::from_value(role)?)
            .await?;
        let binding = json!({
            "metadata": {"name": format!("{namespace}-metrics")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("{namespace}-metrics")},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "scraper"}],
        });
        let bindings = Api::<ClusterRoleBinding>::all(client.clone());
        bindings
            .create(&PostParams::default(), &serde_json::from_value(binding)?)
            .await?;

        let reviewed = Admin {
            access: Access::Reviewed,
            ..any_port()
        };
        let manager = Manager::builder(client.clone()).build()?;
        manager.controller("maps").reconcile(nothing::<Request>())?;
        let address = manager.serve_admin(reviewed.clone())?.address();
        let running = Running::new(manager);
        let (scraper, stranger) = (tokens[0].as_deref(), tokens[1].as_deref());
        // A new role takes effect with a delay.
        while get_as(address, "/metrics", scraper).await?.code == 403 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for (token, path, code) in [
            (scraper, "/metrics", 200),
            (scraper, "/debug/caches", 403),
            (stranger, "/metrics", 403),
            (Some("eyJub3Q.a.token"), "/metrics", 401),
            (None, "/metrics", 401),
            (None, "/healthz", 200),
        ] {
            let page = get_as(address, path, token).await?;
            assert_eq!(page.code, code, "{path}: {page:?}");
        }
        running.stop().await?;

        // A process that may not create reviews rejects all clients.
        let nobody = env.client_as("nobody", &[])?;
        let (_, address, running) = serving(Manager::builder(nobody), reviewed).await?;
        assert_eq!(get_as(address, "/metrics", scraper).await?.code, 503);
        running.stop().await
    });
}
