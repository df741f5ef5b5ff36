//! The server handle, its options, and the state that requests and controllers share.

use crate::{
    activity::Activity,
    admission::Admission,
    auth::{Authenticator, Identity},
    browser,
    catalog::{Catalog, NAMESPACES},
    clock::Clock,
    controllers::{self, Controllers},
    dropped_connection::Closed,
    faults::Faults,
    http::{Body, read_body},
    journal::Journal,
    limits::ConnectionLimits,
    object::{Content, Key},
    persist,
    serve::{ListenError, RunningServer},
    status::Failure,
    store::{HistoryLimits, Store, WriteError},
    tls::Authority,
};
use http::{Request, Response};
use jiff::Timestamp;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    error::Error as StdError,
    fmt,
    future::{Future, poll_fn},
    net::SocketAddr,
    path::PathBuf,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};
use steersman_browser_guard::{BrowserGuard, InvalidHost};
use tokio::sync::watch;

/// Options of an [`ApiServer`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of changes kept per resource. A watch or a page that starts before the oldest one
    /// gets 410. Default: 10,000.
    pub history: usize,
    /// Bytes of history kept for all resources together. The resource with the most bytes drops its
    /// oldest changes first; the last change of each resource stays. A watch that starts with all
    /// objects keeps those that its client has not read yet, beside this limit. Default: 128 MiB.
    pub history_bytes: usize,
    /// Seed of generated names and uids, so that they repeat in every run. Default: none, they are
    /// random.
    pub seed: Option<u64>,
    /// Time of the server when it starts. From then on it follows tokio's clock, which tests can
    /// pause. Default: the wall clock.
    pub start_time: Option<Timestamp>,
    /// Whether to run the controllers: garbage collection, namespaces and the conditions of CRDs.
    /// Without them custom resources are still served, but dependents are not collected and deleted
    /// namespaces stay. Default: true.
    pub controllers: bool,
    /// Closures that admit or change every write. Default: none.
    pub admission: Admission,
    /// Journal that records the requests. Default: the last 1000, without bodies.
    pub journal: Journal,
    /// Authentication of callers. Default: every caller is an administrator.
    pub authenticator: Authenticator,
    /// DNS names and IP addresses, without port, that requests on sockets may name as host, besides
    /// loopback. Ignored if callers need a token. Default: none.
    pub hosts: Vec<String>,
    /// Directory that keeps the objects across restarts. Default: none, objects are lost.
    pub data_dir: Option<PathBuf>,
    /// Timeouts of requests and the maximum number of connections. Default: see
    /// [`ConnectionLimits`].
    pub connections: ConnectionLimits,
    /// Whether to sync each write to disk before it is acknowledged, so that it survives a power
    /// failure. Default: false.
    pub fsync: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: 10_000,
            history_bytes: 128 << 20,
            seed: None,
            start_time: None,
            controllers: true,
            admission: Admission::default(),
            journal: Journal::default(),
            authenticator: Authenticator::default(),
            hosts: Vec::new(),
            data_dir: None,
            connections: ConnectionLimits::default(),
            fsync: false,
        }
    }
}

const CONTROLLERS_ENDED: &str = "the API server's controllers ended with the tokio runtime that created it; \
    create the server in the runtime that uses it";

/// State that requests and controllers share.
pub(crate) struct Core {
    pub(crate) store: Store,
    catalog: watch::Sender<Arc<Catalog>>,
    pub(crate) clock: Clock,
    pub(crate) admission: Admission,
    pub(crate) authenticator: Authenticator,
    /// Checks requests on sockets. `None` if callers need a token.
    guard: Option<BrowserGuard>,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    pub(crate) activity: Arc<Activity>,
    connections: ConnectionLimits,
    /// Seed that forks derive theirs from.
    seed: Option<u64>,
    random: Mutex<StdRng>,
    /// Held while an address or a port is allocated, until the object that uses it is stored.
    pub(crate) allocation: Mutex<()>,
}

impl Core {
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.borrow().clone()
    }

    /// Changes which resources are served.
    pub(crate) fn change_catalog(&self, change: impl FnOnce(&mut Catalog)) {
        self.catalog
            .send_modify(|catalog| change(Arc::make_mut(catalog)));
    }

    /// Subscribes to changes of which resources are served.
    pub(crate) fn catalogs(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.subscribe()
    }

    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.random.lock())
    }

    /// Returns a random UUID for a new object.
    pub(crate) fn uid(&self) -> String {
        let bits: u128 = self.random(RngExt::random);
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ]
        .join("-")
    }

    /// Creates the namespaces that every cluster has.
    fn create_first_namespaces(&self) -> Result<(), StartError> {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({
                "metadata": {
                    "name": name, "uid": self.uid(), "creationTimestamp": self.clock.timestamp(),
                    "labels": {"kubernetes.io/metadata.name": name},
                },
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            let content = namespace.as_object().map(Content::encode);
            // Other errors mean that the data directory already has it.
            if let Err(WriteError::Log(error)) =
                self.store
                    .write(NAMESPACES, &Key::new("", name), None, content)
            {
                return Err(StartError::DataDir(error.into()));
            }
        }
        Ok(())
    }
}

fn random_generator(seed: Option<u64>) -> Mutex<StdRng> {
    Mutex::new(seed.map_or_else(rand::make_rng, StdRng::seed_from_u64))
}

/// Derives the seed of a fork from the seed of its origin and the revision of the fork.
///
/// It is not drawn from the origin's generator, so forking does not change what the origin draws.
fn derive_seed(seed: u64, revision: u64) -> u64 {
    let mut both = [0; 32];
    both[..8].copy_from_slice(&seed.to_le_bytes());
    both[8..16].copy_from_slice(&revision.to_le_bytes());
    StdRng::from_seed(both).random()
}

/// A Kubernetes API server in this process.
///
/// This is a handle. Clones share one server, which ends when the last clone and the last of its
/// services is dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, Client, api::PostParams};
/// use steersman_apiserver::{ApiServer, Options};
///
/// let server = ApiServer::new(Options::default())?;
/// let client = Client::new(server.service(), "default");
///
/// let config: Api<ConfigMap> = Api::default_namespaced(client);
/// let created = config.create(&PostParams::default(), &serde_json::from_value(serde_json::json!({
///     "metadata": {"generateName": "settings-"}, "data": {"color": "blue"},
/// }))?).await?;
/// assert!(created.metadata.name.unwrap().starts_with("settings-"));
/// assert_eq!(server.journal().count("POST configmaps"), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ApiServer {
    core: Arc<Core>,
    controllers: Arc<Controllers>,
    recovery_note: Option<Arc<str>>,
}

impl ApiServer {
    /// Starts a server, which is ready when this returns. Its controllers are tasks of the current
    /// tokio runtime.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn new(options: Options) -> Result<Self, StartError> {
        let guard = browser::guard(&options.authenticator, &options.hosts)?;
        let limits = HistoryLimits {
            changes: options.history,
            bytes: options.history_bytes,
        };
        let store = Store::new(limits, controllers::concerns_controllers);
        let mut recovery_note = None;
        if let Some(dir) = &options.data_dir {
            let (log, restored) = persist::Log::open(
                dir,
                persist::Options {
                    fsync: options.fsync,
                },
            )?;
            store.restore(restored.revision, restored.objects.into_iter());
            store.set_log(log);
            recovery_note = restored.recovery_note.map(Arc::from);
        }
        let core = Core {
            store,
            catalog: watch::Sender::new(Arc::new(Catalog::builtin())),
            clock: Clock::new(options.start_time),
            admission: options.admission,
            authenticator: options.authenticator,
            guard,
            faults: Faults::default(),
            journal: options.journal,
            activity: Arc::default(),
            connections: options.connections,
            seed: options.seed,
            random: random_generator(options.seed),
            allocation: Mutex::new(()),
        };
        for served in core.catalog().iter() {
            core.store.create_table(&served.table);
        }
        core.create_first_namespaces()?;
        Ok(Self {
            recovery_note,
            ..Self::run(core, options.controllers)
        })
    }

    fn run(core: Core, with_controllers: bool) -> Self {
        let core = Arc::new(core);
        controllers::register_definitions(&core);
        let controllers = Arc::new(Controllers::start(&core, with_controllers));
        Self {
            core,
            controllers,
            recovery_note: None,
        }
    }

    /// Returns a service for `kube::Client::new` that calls the server without a socket.
    pub fn service(&self) -> Service {
        Service {
            server: self.clone(),
            identity: None,
            on_socket: false,
        }
    }

    /// Returns a service without a socket whose requests are authenticated as `identity`.
    pub fn service_as(&self, identity: Identity) -> Service {
        Service {
            identity: Some(identity),
            ..self.service()
        }
    }

    /// Returns what was repaired in the data directory, as text for the operator.
    ///
    /// That is usually an incomplete last write, which was never acknowledged.
    pub fn recovery_note(&self) -> Option<&str> {
        self.recovery_note.as_deref()
    }

    /// Returns the fault rules, with which tests make requests fail.
    pub fn faults(&self) -> &Faults {
        &self.core.faults
    }

    /// Returns the journal of requests.
    pub fn journal(&self) -> &Journal {
        &self.core.journal
    }

    /// Returns the revision of the last write.
    pub fn revision(&self) -> u64 {
        self.core.store.revision()
    }

    /// Drops the history, as a compaction of etcd does. A watch or a page that starts at an earlier
    /// revision gets 410.
    pub fn compact(&self) {
        self.core.store.compact(u64::MAX);
    }

    /// Creates an independent copy of the server in its current state, for tests that share a long
    /// setup.
    ///
    /// The copy has no fault rules and no data directory. Its journal is empty and has the capacity
    /// of the origin's. With [`Options::seed`], all forks of one revision generate the same names
    /// and uids, which differ from the origin's. A fork does not change what the origin generates.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    #[must_use]
    pub fn fork(&self) -> Self {
        let store = self.core.store.fork();
        let seed = self
            .core
            .seed
            .map(|seed| derive_seed(seed, store.revision()));
        let core = Core {
            store,
            catalog: watch::Sender::new(self.core.catalog()),
            clock: self.core.clock.clone(),
            admission: self.core.admission.clone(),
            authenticator: self.core.authenticator.clone(),
            guard: self.core.guard.clone(),
            faults: Faults::default(),
            journal: self.core.journal.to_empty(),
            activity: Arc::default(),
            connections: self.core.connections,
            seed,
            random: random_generator(seed),
            allocation: Mutex::new(()),
        };
        Self::run(core, self.controllers.is_complete())
    }

    /// Waits until the server is idle.
    ///
    /// The server is idle if no request is in flight, the controllers have nothing to do, and every
    /// watcher has been sent everything. A request is in flight once its body is complete. A
    /// watcher that is not read keeps the server busy, and so does a deletion that an admission
    /// closure rejects, because it is retried. This says nothing about clients: a controller that
    /// uses the server may still have requests in its queue.
    ///
    /// # Panics
    /// If the runtime that created the server has ended, because its controllers ended with it.
    pub async fn wait_idle(&self) {
        self.core.activity.wait_idle(&self.core.store).await;
        assert!(!self.controllers.have_stopped(), "{CONTROLLERS_ENDED}");
    }

    /// Serves on a socket: over TLS if an authority is given, else plain HTTP.
    ///
    /// Without tokens in [`Options::authenticator`] every caller is an administrator, so the
    /// address must be loopback. With tokens, an address other than loopback needs an authority,
    /// because tokens must not be sent in the clear.
    pub async fn listen(
        &self,
        address: SocketAddr,
        authority: Option<&Authority>,
    ) -> Result<RunningServer, ListenError> {
        let service = Service {
            on_socket: true,
            ..self.service()
        };
        RunningServer::start(
            address,
            authority,
            &self.core.authenticator,
            self.core.connections,
            service,
        )
        .await
    }

    /// Creates or replaces a CRD and waits until its resource is served.
    ///
    /// With kube-derive: `server.install(serde_json::to_value(Widget::crd())?)`.
    pub async fn install(&self, crd: Value) -> Result<(), Box<Failure>> {
        let _busy = self.core.activity.begin();
        if self.controllers.have_stopped() {
            return Err(Failure::internal(CONTROLLERS_ENDED));
        }
        controllers::install(&self.core, crd).await
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

/// Error of starting a server.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be used. The text contains the reason and the fix.
    DataDir(Box<dyn StdError + Send + Sync>),
    /// An entry of [`Options::hosts`] is neither a DNS name nor an IP address.
    InvalidHost(String),
}

impl From<persist::Error> for StartError {
    fn from(error: persist::Error) -> Self {
        Self::DataDir(error.into())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataDir(error) => write!(f, "{error}"),
            Self::InvalidHost(host) => write!(f, "{}", InvalidHost(host.clone())),
        }
    }
}

impl StdError for StartError {}

/// A [`tower::Service`](tower_service::Service) that calls a server from the same process.
#[derive(Clone, Debug)]
pub struct Service {
    server: ApiServer,
    identity: Option<Identity>,
    /// Requests arrive on a socket, so a web page may have caused them.
    on_socket: bool,
}

impl<B> tower_service::Service<Request<B>> for Service
where
    B: http_body::Body<Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    B::Data: Send,
{
    type Response = Response<Body>;
    type Error = Closed;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Closed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.server.clone();
        let mut busy = server.core.activity.begin();
        let (mut parts, body) = request.into_parts();
        if let Some(identity) = &self.identity {
            parts.extensions.insert(identity.clone());
        }
        let guard = server.core.guard.as_ref().filter(|_| self.on_socket);
        let checked = guard.map_or(Ok(()), |guard| guard.check(&parts, !body.is_end_stream()));
        Box::pin(async move {
            let mut reading = pin!(read_body(body, server.core.connections));
            let body = match checked {
                Err(rejection) => Err(browser::forbidden(&rejection)),
                Ok(()) => match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
                    Poll::Ready(body) => body,
                    // The request is not in flight while the server waits for the client.
                    Poll::Pending => {
                        drop(busy);
                        let body = reading.await;
                        busy = server.core.activity.begin();
                        body
                    }
                },
            };
            let response = server.core.handle(parts, body).await;
            drop(busy);
            // The server has ended meanwhile and its store is empty, so the response is wrong.
            if server.core.store.is_closed() {
                Err(Closed)
            } else {
                Closed::check(response)
            }
        })
    }
}
