//! Control plane of etcd, kube-apiserver and, optionally, kube-controller-manager.
//!
//! The programs listen on loopback only. Their certificates are issued by an authority whose key
//! exists only in the memory of this process.

use super::{
    Error, Options,
    binaries::{self, API_SERVER, CONTROLLER_MANAGER, ETCD},
    directory::Directory,
    flags::{self, Files, Ports},
    program::Program,
    user::User,
};
use http::Uri;
use kube_client::{Client, Config};
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use steersman_apiserver::Authority;
use tokio::{
    net::TcpStream,
    sync::Mutex,
    time::{sleep, timeout},
};

/// Interval of readiness checks, and the timeout of one.
const ASK: Duration = Duration::from_millis(20);
const ANSWER: Duration = Duration::from_secs(2);
/// Attempts to start with other ports, since a free port may be taken meanwhile.
const TRIES: usize = 3;
/// Namespaces that the API server creates shortly after it is ready.
const FIRST_NAMESPACES: [&str; 2] = ["default", "kube-system"];

pub(super) struct ControlPlane {
    pub(super) directory: Directory,
    pub(super) admin: User,
    pub(super) kubeconfig: PathBuf,
    authority: Authority,
    url: Uri,
    ports: Ports,
    etcd: Program,
    api_server: Program,
    controller_manager: Option<Program>,
    start_timeout: Duration,
    restart_grace: Duration,
    /// Held while programs are stopped or started.
    changing: Mutex<()>,
}

impl ControlPlane {
    pub(super) async fn start(options: &Options) -> Result<Self, Error> {
        let programs = binaries::find(options.binaries.as_deref(), options.controller_manager)?;
        let mut tried = 0;
        loop {
            tried += 1;
            let plane = Self::prepare(options, &programs)?;
            let Err(error) = plane.start_all().await else {
                return Ok(plane);
            };
            let again = tried < TRIES && plane.directory.mentions_port_in_use();
            if !again {
                plane.directory.keep();
            } else if !options.keep_logs {
                plane.directory.forget();
            }
            plane.stop()?;
            if !again {
                return Err(error);
            }
        }
    }

    /// Creates directory, certificates and flags, without starting processes.
    fn prepare(options: &Options, programs: &std::path::Path) -> Result<Self, Error> {
        let certificates =
            |error: steersman_apiserver::TlsError| Error::Certificates(error.to_string());
        let ports = Ports::find().map_err(Error::io("find free ports on 127.0.0.1"))?;
        let authority = Authority::generate().map_err(certificates)?;
        let server = authority.server_certificate().map_err(certificates)?;
        let url = flags::url(ports.api_server);
        let admin = User::new("system:admin", &["system:masters"], &url, &authority)?;
        // Created last: only the supervisor of etcd, which starts next, removes it if this process
        // is killed.
        let directory = Directory::create()?;
        let files = Files {
            ca: directory.write("ca.crt", &authority.ca_pem())?,
            certificate: directory.write("server.crt", &server.certificate_pem)?,
            key: directory.write("server.key", &server.key_pem)?,
            kubeconfig: directory.write("admin.kubeconfig", admin.kubeconfig())?,
            etcd: directory.data("etcd"),
        };
        let program = |name, arguments, further: &[String]| Program {
            name,
            binary: programs.join(name),
            arguments: [arguments, further.to_vec()].concat(),
            is_last: name == ETCD,
            process: parking_lot::Mutex::default(),
        };
        if options.keep_logs {
            directory.keep();
        }
        Ok(Self {
            etcd: program(ETCD, flags::etcd(ports, &files), &options.etcd_flags),
            api_server: program(
                API_SERVER,
                flags::api_server(ports, &files),
                &options.api_server_flags,
            ),
            controller_manager: options.controller_manager.then(|| {
                program(
                    CONTROLLER_MANAGER,
                    flags::controller_manager(ports, &files),
                    &options.controller_manager_flags,
                )
            }),
            kubeconfig: files.kubeconfig,
            directory,
            admin,
            authority,
            url,
            ports,
            start_timeout: options.start_timeout,
            restart_grace: options.restart_grace,
            changing: Mutex::new(()),
        })
    }

    async fn start_all(&self) -> Result<(), Error> {
        self.etcd.start(&self.directory)?;
        // If etcd does not listen yet, kube-apiserver retries only after a second.
        self.ready(&self.etcd, async || {
            TcpStream::connect(("127.0.0.1", self.ports.etcd))
                .await
                .is_ok()
        })
        .await?;
        self.api_server.start(&self.directory)?;
        self.api_server_ready().await?;
        if let Some(controller_manager) = &self.controller_manager {
            controller_manager.start(&self.directory)?;
            let mut config = self.admin.config();
            config.cluster_url = flags::url(self.ports.controller_manager);
            let client = client(config)?;
            self.ready(controller_manager, async || {
                answers(&client, "/healthz").await
            })
            .await?;
        }
        Ok(())
    }

    async fn api_server_ready(&self) -> Result<(), Error> {
        let client = client(self.admin.config())?;
        self.ready(&self.api_server, async || answers(&client, "/readyz").await)
            .await?;
        for namespace in FIRST_NAMESPACES {
            let path = format!("/api/v1/namespaces/{namespace}");
            self.ready(&self.api_server, async || answers(&client, &path).await)
                .await?;
        }
        Ok(())
    }

    /// Waits until a program is ready. Fails on timeout, or if the program ends.
    async fn ready(
        &self,
        program: &Program,
        is_ready: impl AsyncFn() -> bool,
    ) -> Result<(), Error> {
        let since = Instant::now();
        while !is_ready().await {
            self.check()?;
            if since.elapsed() >= self.start_timeout {
                let problem = format!("was not healthy after {} s", self.start_timeout.as_secs());
                return Err(self.directory.process_error(program.name, problem));
            }
            sleep(ASK).await;
        }
        // The answer may be from another server, if the port was already in use.
        program.check(&self.directory)
    }

    /// Returns an error with the end of the log if a started program does not run.
    pub(super) fn check(&self) -> Result<(), Error> {
        let started = [
            Some(&self.etcd),
            Some(&self.api_server),
            self.controller_manager.as_ref(),
        ];
        let started = started
            .into_iter()
            .flatten()
            .filter(|program| program.process.lock().is_some());
        let mut checks = started
            .map(|program| program.check(&self.directory))
            .peekable();
        if checks.peek().is_none() {
            return Err(Error::Stopped);
        }
        checks.collect()
    }

    pub(super) async fn restart_api_server(&self) -> Result<(), Error> {
        let _changing = self.changing.lock().await;
        self.api_server.end(self.restart_grace).await?;
        self.api_server.start(&self.directory)?;
        self.api_server_ready().await
    }

    pub(super) fn signal_api_server(&self, signal: &str) -> Result<(), Error> {
        self.api_server.signal(signal)
    }

    /// Stops everything, etcd last, and removes the directory.
    pub(super) fn stop(&self) -> Result<(), Error> {
        if let Some(controller_manager) = &self.controller_manager {
            controller_manager.kill()?;
        }
        self.api_server.kill()?;
        self.etcd.kill()?;
        self.directory.clean_up()
    }

    pub(super) fn user(&self, name: &str, groups: &[&str]) -> Result<User, Error> {
        User::new(name, groups, &self.url, &self.authority)
    }
}

/// Creates a client for the current runtime.
pub(super) fn client(config: Config) -> Result<Client, Error> {
    Client::try_from(config).map_err(|error| Error::Request {
        operation: "create a client".into(),
        error: Arc::new(error),
    })
}

async fn answers(client: &Client, path: &str) -> bool {
    let Ok(request) = http::Request::get(path).body(Vec::new()) else {
        return false;
    };
    matches!(
        timeout(ANSWER, client.request_text(request)).await,
        Ok(Ok(_))
    )
}
