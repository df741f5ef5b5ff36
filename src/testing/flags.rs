//! Flags of the programs, as envtest sets them, with their ports and files.

use std::{
    io,
    net::TcpListener,
    path::{Path, PathBuf},
};

/// Ports that were free when they were selected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
    pub(super) api_server: u16,
    pub(super) controller_manager: u16,
}

impl Ports {
    pub(super) fn find() -> io::Result<Self> {
        let listen = || TcpListener::bind(("127.0.0.1", 0));
        // Opened at the same time, so that they differ.
        let listeners = [listen()?, listen()?, listen()?, listen()?];
        let port = |at: usize| listeners[at].local_addr().map(|address| address.port());
        Ok(Self {
            etcd: port(0)?,
            etcd_peer: port(1)?,
            api_server: port(2)?,
            controller_manager: port(3)?,
        })
    }
}

/// Files that the flags refer to.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) ca: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) etcd: PathBuf,
}

pub(super) fn url(port: u16) -> http::Uri {
    format!("https://127.0.0.1:{port}")
        .parse()
        .expect("an address and a port are an URL")
}

pub(super) fn etcd(ports: Ports, files: &Files) -> Vec<String> {
    let (clients, peers) = (ports.etcd, ports.etcd_peer);
    vec![
        format!("--data-dir={}", shown(&files.etcd)),
        format!("--listen-client-urls=http://127.0.0.1:{clients}"),
        format!("--advertise-client-urls=http://127.0.0.1:{clients}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peers}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peers}"),
        // Tests do not need to survive a power loss.
        "--unsafe-no-fsync=true".into(),
    ]
}

pub(super) fn api_server(ports: Ports, files: &Files) -> Vec<String> {
    let port = ports.api_server;
    let (certificate, key) = (shown(&files.certificate), shown(&files.key));
    vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={certificate}"),
        format!("--tls-private-key-file={key}"),
        format!("--client-ca-file={}", shown(&files.ca)),
        // Both allow a machine without a network.
        "--advertise-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--allow-privileged=true".into(),
        "--authorization-mode=RBAC".into(),
        // No controller creates the service accounts that it requires.
        "--disable-admission-plugins=ServiceAccount".into(),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        // Tokens are signed by the key of the server and verified by its certificate.
        format!("--service-account-key-file={certificate}"),
        format!("--service-account-signing-key-file={key}"),
    ]
}

pub(super) fn controller_manager(ports: Ports, files: &Files) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", shown(&files.kubeconfig)),
        "--controllers=garbage-collector-controller,namespace-controller".into(),
        "--leader-elect=false".into(),
        "--use-service-account-credentials=false".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", ports.controller_manager),
        format!("--tls-cert-file={}", shown(&files.certificate)),
        format!("--tls-private-key-file={}", shown(&files.key)),
    ]
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
