//! The `steersman-apiserver` binary: output, kubeconfig, flags, signals and exit codes.

use crate::{
    connection::Connection,
    process::{Process, Scratch, command},
    support::{CONFIG_MAPS, WIDGETS, config_map, widget, widgets},
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
    discovery::ApiResource,
};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .expect("a config");
    Client::try_from(config).expect("a client")
}

async fn count_namespaces(client: &Client) -> usize {
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    api.list(&ListParams::default())
        .await
        .expect("a list")
        .items
        .len()
}

#[tokio::test]
async fn the_binary_prints_readiness_and_writes_a_private_kubeconfig() {
    let scratch = Scratch::new();
    for (flags, scheme) in [(&[][..], "http"), (&["--tls"][..], "https")] {
        let process = Process::start(&scratch, flags);
        assert_eq!(
            process.url(),
            format!("{scheme}://127.0.0.1:{}", process.address().port())
        );
        assert_eq!(
            process
                .lines
                .iter()
                .filter(|line| line.starts_with("ready "))
                .count(),
            1
        );
        let path = process.kubeconfig().to_owned();
        assert_eq!(
            fs::metadata(&path).expect("a file").permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(count_namespaces(&client(&path).await).await, 4);
        let output = process.signal_and_wait("TERM");
        assert_eq!(
            (
                output.status.code(),
                output.stdout.as_str(),
                output.stderr.as_str()
            ),
            (Some(0), "", "")
        );
        assert!(
            !path.exists(),
            "the temporary kubeconfig is removed on exit"
        );
    }
}

#[tokio::test]
async fn sigint_and_sigterm_stop_the_binary_with_open_watches() {
    let scratch = Scratch::new();
    for signal in ["INT", "TERM"] {
        let process = Process::start(&scratch, &[]);
        let path = process.kubeconfig().to_owned();
        let address = process.address();
        let watching = tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            connection.get(&format!("{CONFIG_MAPS}?watch=1")).await
        });
        let mut connection = Connection::open(address).await;
        connection
            .post(CONFIG_MAPS, &config_map("a"))
            .await
            .expect("a response")
            .expect(201);
        let started = std::time::Instant::now();
        assert_eq!(
            process.signal_and_wait(signal).status.code(),
            Some(0),
            "{signal}"
        );
        assert!(
            started.elapsed().as_secs() < 4,
            "open watches do not delay the exit"
        );
        let watched = watching.await.expect("no panic");
        if let Ok(events) = watched {
            assert!(
                events.text.is_empty() || events.text.ends_with('\n'),
                "truncated event: {}",
                events.text
            );
        }
        assert!(!path.exists());
    }
}

/// A request in flight delays the exit for some seconds after the first signal.
#[tokio::test]
async fn a_second_signal_exits_immediately() {
    let scratch = Scratch::new();
    let process = Process::start(&scratch, &[]);
    let mut stream = TcpStream::connect(process.address())
        .await
        .expect("a connection");
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("a request");
    // `100 Continue`: the server waits for the body.
    stream
        .read_exact(&mut [0; 12])
        .await
        .expect("an interim response");
    process.signal("INT");
    assert_eq!(process.signal_and_wait("TERM").status.code(), Some(1));
}

#[tokio::test]
async fn crds_are_loaded_from_json_and_multi_document_yaml_files() {
    let scratch = Scratch::new();
    let mut gadgets = widgets();
    gadgets["metadata"]["name"] = "gadgets.example.com".into();
    gadgets["spec"]["names"] = serde_json::json!({"plural": "gadgets", "kind": "Gadget"});
    let mut gizmos = gadgets.clone();
    gizmos["metadata"]["name"] = "gizmos.example.com".into();
    gizmos["spec"]["names"] = serde_json::json!({"plural": "gizmos", "kind": "Gizmo"});
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [gizmos]});
    let one = scratch.write("one.json", &widgets().to_string());
    let yaml = serde_saphyr::to_string(&gadgets).expect("YAML");
    let several = scratch.write(
        "several.yaml",
        &format!("# several documents\n---\n{yaml}\n---\n---\n{list}\n"),
    );
    let process = Process::start(
        &scratch,
        &[
            "--crd",
            one.to_str().expect("a path"),
            "--crd",
            several.to_str().expect("a path"),
        ],
    );
    let client = client(process.kubeconfig()).await;
    for (plural, kind) in [
        ("widgets", "Widget"),
        ("gadgets", "Gadget"),
        ("gizmos", "Gizmo"),
    ] {
        let mut resource =
            ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("example.com", "v1", kind));
        resource.plural = plural.into();
        let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        assert!(
            api.list(&ListParams::default())
                .await
                .expect("the kind is served")
                .items
                .is_empty()
        );
    }
    let mut connection = Connection::open(process.address()).await;
    connection
        .post(WIDGETS, &widget("a"))
        .await
        .expect("a response")
        .expect(201);
}

#[tokio::test]
async fn tokens_are_loaded_from_a_file() {
    let scratch = Scratch::new();
    let tokens = scratch.write("tokens.csv", "s3cret,alice,u1,\"dev\"\n");
    let process = Process::start(
        &scratch,
        &[
            "--token-auth-file",
            tokens.to_str().expect("a path"),
            "--tls",
        ],
    );
    assert_eq!(
        count_namespaces(&client(process.kubeconfig()).await).await,
        4,
        "the kubeconfig authenticates as admin"
    );
    drop(process);

    let process = Process::start(
        &scratch,
        &["--token-auth-file", tokens.to_str().expect("a path")],
    );
    let mut connection = Connection::open(process.address()).await;
    for (headers, code) in [
        (&[][..], 403),
        (&[("authorization", "Bearer wrong")][..], 401),
        (&[("authorization", "Bearer s3cret")][..], 200),
    ] {
        connection
            .send("GET", CONFIG_MAPS, headers, "")
            .await
            .expect("a response")
            .expect(code);
    }
}

#[tokio::test]
async fn hosts_other_than_loopback_are_accepted_if_configured() {
    let scratch = Scratch::new();
    let process = Process::start(&scratch, &["--host", "a.example,b.example"]);
    for (host, code) in [
        ("localhost", 200),
        ("b.example:80", 200),
        ("c.example", 403),
    ] {
        let mut connection = Connection::open(process.address()).await;
        connection
            .send("GET", CONFIG_MAPS, &[("host", host)], "")
            .await
            .expect("a response")
            .expect(code);
    }
}

#[tokio::test]
async fn a_restart_on_the_same_data_directory_restores_objects_and_keeps_the_kubeconfig() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let kubeconfig = scratch.path("kubeconfig");
    let flags = [
        "--data-dir",
        data.to_str().expect("a path"),
        "--kubeconfig",
        kubeconfig.to_str().expect("a path"),
    ];
    let process = Process::start(&scratch, &flags);
    let mut connection = Connection::open(process.address()).await;
    let created = connection
        .post(CONFIG_MAPS, &config_map("a"))
        .await
        .expect("a response")
        .expect(201);
    let second = command(&scratch, &flags)
        .output()
        .expect("the binary exits");
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && text.contains("is in use"),
        "{text}"
    );
    assert_eq!(process.signal_and_wait("INT").status.code(), Some(0));
    assert!(kubeconfig.exists());

    let process = Process::start(&scratch, &flags[..2]);
    assert_eq!(process.kubeconfig(), data.join("kubeconfig"));
    let restored = Connection::open(process.address())
        .await
        .get(&format!("{CONFIG_MAPS}/a"))
        .await
        .expect("a response");
    assert_eq!(restored.json, created.json);
    assert_eq!(process.signal_and_wait("INT").stderr, "");
    assert!(data.join("kubeconfig").exists());
}

#[test]
fn invalid_flags_and_files_are_reported_on_stderr_without_a_panic() {
    let scratch = Scratch::new();
    let broken = scratch.write(
        "broken.yaml",
        "{kind: CustomResourceDefinition, metadata: {name: x}}",
    );
    let invalid_yaml = scratch.write("no.yaml", "{[");
    let tokens = scratch.write("tokens", "only-one-column\n");
    let valid_tokens = scratch.write("valid_tokens", "s3cret,alice,u1\n");
    let file = scratch.write("file", "");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    for (flags, message) in [
        (vec!["--nope".to_owned()], "unexpected argument '--nope'"),
        (
            vec!["--listen".into(), "nowhere".into()],
            "invalid value 'nowhere'",
        ),
        (
            vec!["--listen".into(), "0.0.0.0:0".into()],
            "cannot listen on 0.0.0.0:0",
        ),
        (
            vec![
                "--listen".into(),
                "0.0.0.0:0".into(),
                "--token-auth-file".into(),
                path(&valid_tokens),
            ],
            "cannot accept tokens on 0.0.0.0:0 without TLS",
        ),
        (
            vec!["--host".into(), "http://dev.example.com".into()],
            "invalid host `http://dev.example.com`",
        ),
        (
            vec![
                "--host".into(),
                "a".into(),
                "--token-auth-file".into(),
                path(&valid_tokens),
            ],
            "cannot be used with",
        ),
        (vec!["--fsync".into()], "--data-dir"),
        (
            vec!["--crd".into(), "no-such-file".into()],
            "cannot install no-such-file",
        ),
        (vec!["--crd".into(), path(&broken)], "broken.yaml"),
        (vec!["--crd".into(), path(&invalid_yaml)], "no.yaml"),
        (
            vec!["--token-auth-file".into(), "no-such-file".into()],
            "no-such-file",
        ),
        (vec!["--token-auth-file".into(), path(&tokens)], "line 1"),
        (
            vec!["--data-dir".into(), path(&file)],
            "has to be a directory",
        ),
        (
            vec!["--kubeconfig".into(), "/no/such/place".into()],
            "its directory does not exist",
        ),
    ] {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let output = command(&scratch, &flags)
            .output()
            .expect("the binary exits");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.starts_with("error: ") && text.contains(message),
            "{flags:?}: {text}"
        );
        assert!(
            !text.contains("panicked") && !text.contains("backtrace"),
            "{text}"
        );
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
    let files: Vec<_> = fs::read_dir(scratch.path(""))
        .expect("a directory")
        .collect();
    assert_eq!(files.len(), 5, "files left behind: {files:?}");
}
