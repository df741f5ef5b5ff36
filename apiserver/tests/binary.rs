//! The program: what it says, writes, serves, and how it ends.

use crate::{
    process::{Process, Scratch, command},
    support::{CONFIG_MAPS, WIDGETS, config_map, widget, widgets},
    wire::Connection,
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
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

async fn count_namespaces(client: &Client) -> usize {
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    api.list(&ListParams::default()).await.expect("a list").items.len()
}

#[tokio::test]
async fn it_says_when_it_is_ready_and_how_to_use_it() {
    let scratch = Scratch::new();
    for (flags, scheme) in [(&[][..], "http"), (&["--tls"][..], "https")] {
        let process = Process::start(&scratch, flags);
        assert_eq!(process.url(), format!("{scheme}://127.0.0.1:{}", process.address().port()));
        assert_eq!(process.said.iter().filter(|line| line.starts_with("ready ")).count(), 1);
        let path = process.kubeconfig().to_owned();
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(count_namespaces(&client(&path).await).await, 4);
        let ended = process.end_by("TERM");
        assert_eq!((ended.status.code(), ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        assert!(!path.exists(), "a temporary kubeconfig is of no use any more");
    }
}

#[tokio::test]
async fn it_stops_at_either_signal_with_watches_open() {
    let scratch = Scratch::new();
    for signal in ["INT", "TERM"] {
        let process = Process::start(&scratch, &[]);
        let (path, address) = (process.kubeconfig().to_owned(), process.address());
        let watching = tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            connection.get(&format!("{CONFIG_MAPS}?watch=1")).await
        });
        let mut connection = Connection::open(address).await;
        connection.post(CONFIG_MAPS, &config_map("a")).await.expect("an answer").expect(201);
        let started = std::time::Instant::now();
        assert_eq!(process.end_by(signal).status.code(), Some(0), "{signal}");
        assert!(started.elapsed().as_secs() < 4, "no need to wait for a watch");
        let watched = watching.await.expect("no panic");
        if let Ok(events) = watched {
            assert!(events.text.is_empty() || events.text.ends_with('\n'), "whole events: {}", events.text);
        }
        assert!(!path.exists());
    }
}

/// A request that is in flight keeps the program for some seconds after the first signal.
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let scratch = Scratch::new();
    let process = Process::start(&scratch, &[]);
    let mut stream = TcpStream::connect(process.address()).await.expect("a connection");
    let head =
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("a request");
    // The server asks for the body, and waits for it.
    stream.read_exact(&mut [0; 12]).await.expect("an interim answer");
    process.signal("INT");
    assert_eq!(process.end_by("TERM").status.code(), Some(1));
}

#[tokio::test]
async fn definitions_come_from_files_of_one_or_several() {
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
    let several = scratch.write("several.yaml", &format!("# what there is\n---\n{yaml}\n---\n---\n{list}\n"));
    let process =
        Process::start(&scratch, &["--crd", one.to_str().expect("a path"), "--crd", several.to_str().expect("a path")]);
    let client = client(process.kubeconfig()).await;
    for (plural, kind) in [("widgets", "Widget"), ("gadgets", "Gadget"), ("gizmos", "Gizmo")] {
        let mut resource = ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("example.com", "v1", kind));
        resource.plural = plural.into();
        let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        assert!(api.list(&ListParams::default()).await.expect("it is served").items.is_empty());
    }
    let mut connection = Connection::open(process.address()).await;
    connection.post(WIDGETS, &widget("a")).await.expect("an answer").expect(201);
}

#[tokio::test]
async fn tokens_come_from_a_file() {
    let scratch = Scratch::new();
    let tokens = scratch.write("tokens.csv", "s3cret,alice,u1,\"dev\"\n");
    let process = Process::start(&scratch, &["--token-auth-file", tokens.to_str().expect("a path"), "--tls"]);
    assert_eq!(count_namespaces(&client(process.kubeconfig()).await).await, 4, "the kubeconfig is the admin's");
    drop(process);

    let process = Process::start(&scratch, &["--token-auth-file", tokens.to_str().expect("a path")]);
    let mut connection = Connection::open(process.address()).await;
    for (headers, code) in [
        (&[][..], 403),
        (&[("authorization", "Bearer wrong")][..], 401),
        (&[("authorization", "Bearer s3cret")][..], 200),
    ] {
        connection.send("GET", CONFIG_MAPS, headers, "").await.expect("an answer").expect(code);
    }
}

#[tokio::test]
async fn hosts_besides_loopback_are_accepted_when_they_are_named() {
    let scratch = Scratch::new();
    let process = Process::start(&scratch, &["--host", "a.example,b.example"]);
    for (host, code) in [("localhost", 200), ("b.example:80", 200), ("c.example", 403)] {
        let mut connection = Connection::open(process.address()).await;
        connection.send("GET", CONFIG_MAPS, &[("host", host)], "").await.expect("an answer").expect(code);
    }
}

#[tokio::test]
async fn a_kubeconfig_stays_where_it_was_asked_for_and_data_comes_back() {
    let scratch = Scratch::new();
    let (data, asked) = (scratch.path("data"), scratch.path("asked"));
    let flags = ["--data-dir", data.to_str().expect("a path"), "--kubeconfig", asked.to_str().expect("a path")];
    let process = Process::start(&scratch, &flags);
    let mut connection = Connection::open(process.address()).await;
    let made = connection.post(CONFIG_MAPS, &config_map("a")).await.expect("an answer").expect(201);
    let again = command(&scratch, &flags).output().expect("it ends");
    let text = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && text.contains("is in use"), "{text}");
    assert_eq!(process.end_by("INT").status.code(), Some(0));
    assert!(asked.exists());

    let process = Process::start(&scratch, &flags[..2]);
    assert_eq!(process.kubeconfig(), data.join("kubeconfig"));
    let there = Connection::open(process.address()).await.get(&format!("{CONFIG_MAPS}/a")).await.expect("an answer");
    assert_eq!(there.json, made.json);
    assert_eq!(process.end_by("INT").stderr, "");
    assert!(data.join("kubeconfig").exists());
}

#[test]
fn what_cannot_be_done_is_told_in_a_sentence() {
    let scratch = Scratch::new();
    let broken = scratch.write("broken.yaml", "{kind: CustomResourceDefinition, metadata: {name: x}}");
    let no_yaml = scratch.write("no.yaml", "{[");
    let tokens = scratch.write("tokens", "only-one-column\n");
    let known = scratch.write("known", "s3cret,alice,u1\n");
    let file = scratch.write("file", "");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    for (flags, told) in [
        (vec!["--nope".to_owned()], "unexpected argument '--nope'"),
        (vec!["--listen".into(), "nowhere".into()], "invalid value 'nowhere'"),
        (vec!["--listen".into(), "0.0.0.0:0".into()], "refusing to listen on 0.0.0.0:0"),
        (
            vec!["--listen".into(), "0.0.0.0:0".into(), "--token-auth-file".into(), path(&known)],
            "cannot accept tokens on 0.0.0.0:0 without TLS",
        ),
        (vec!["--host".into(), "http://dev.example.com".into()], "invalid host `http://dev.example.com`"),
        (vec!["--host".into(), "a".into(), "--token-auth-file".into(), path(&known)], "cannot be used with"),
        (vec!["--fsync".into()], "--data-dir"),
        (vec!["--crd".into(), "no-such-file".into()], "cannot install no-such-file"),
        (vec!["--crd".into(), path(&broken)], "broken.yaml"),
        (vec!["--crd".into(), path(&no_yaml)], "no.yaml"),
        (vec!["--token-auth-file".into(), "no-such-file".into()], "no-such-file"),
        (vec!["--token-auth-file".into(), path(&tokens)], "line 1"),
        (vec!["--data-dir".into(), path(&file)], "has to be a directory"),
        (vec!["--kubeconfig".into(), "/no/such/place".into()], "its directory does not exist"),
    ] {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let ended = command(&scratch, &flags).output().expect("it ends");
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && text.starts_with("error: ") && text.contains(told), "{flags:?}: {text}");
        assert!(!text.contains("panicked") && !text.contains("backtrace"), "{text}");
        assert!(ended.stdout.is_empty(), "{flags:?}");
    }
    let left: Vec<_> = fs::read_dir(scratch.path("")).expect("a directory").collect();
    assert_eq!(left.len(), 5, "nothing is left behind: {left:?}");
}
