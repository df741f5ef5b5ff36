//! The server: its parts put together, and what a test can do to it.

use crate::{
    activity::Activity,
    admission::Admission,
    auth::{Authenticator, Identity},
    browser,
    catalog::{Catalog, NAMESPACES},
    clock::Clock,
    controllers::{self, Controllers},
    cut::Closed,
    faults::Faults,
    http::{Body, read_body},
    journal::Journal,
    limits::ConnectionLimits,
    object::{Content, Key},
    persist,
    serve::{ListenError, Running},
    status::Failure,
    store::{HistoryLimits, Refused, Store},
    tls::Authority,
};
use http::{Request, Response};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
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

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// So many changes are kept per resource: who watches or pages from before them is told 410. Default: 10,000.
    pub history: usize,
    /// Most bytes of history that all resources keep together. The resource with the most bytes loses its oldest changes first; the
    /// last change of each resource stays. Default: 128 MiB.
    pub history_bytes: usize,
    /// Makes names and uids the same in every run. Default: none, they are random.
    pub seed: Option<u64>,
    /// The server's time when it starts; from there it follows tokio's clock, paused or not. Default: the wall clock's.
    pub started: Option<Timestamp>,
    /// Run the controllers beside it: garbage collection, namespaces, definitions. Without them, definitions are still served, but
    /// nothing is collected and namespaces stay. Default: true.
    pub controllers: bool,
    /// Closures that see every write. Default: none.
    pub admission: Admission,
    /// Which requests are remembered. Default: the last 1000, without bodies.
    pub journal: Journal,
    /// Who may ask. Default: everyone is an administrator.
    pub authenticator: Authenticator,
    /// DNS names and IP addresses, without port, by which clients on sockets may call the server, besides loopback. They
    /// matter only while callers need no token. Default: none.
    pub hosts: Vec<String>,
    /// Where to keep everything across restarts. Default: nowhere.
    pub data_dir: Option<PathBuf>,
    /// Time-outs of requests, and most connections. Default: see [`ConnectionLimits`].
    pub connections: ConnectionLimits,
    /// Wait for the disk before a write is acknowledged, so that it survives a power loss too. Default: false.
    pub fsync: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: 10_000,
            history_bytes: 128 << 20,
            seed: None,
            started: None,
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

const CONTROLLERS_ENDED: &str =
    "the server's controllers ended with the runtime that it was made in; make a server in the runtime that uses it";

/// What requests and controllers work on.
pub(crate) struct Core {
    pub(crate) store: Store,
    catalog: RwLock<Arc<Catalog>>,
    pub(crate) clock: Clock,
    pub(crate) admission: Admission,
    pub(crate) authenticator: Authenticator,
    /// Checks requests on sockets. `None` if callers need a token.
    guard: Option<BrowserGuard>,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    pub(crate) activity: Arc<Activity>,
    connections: ConnectionLimits,
    /// What forks derive their own from.
    seed: Option<u64>,
    random: Mutex<StdRng>,
    /// Held by whoever takes an address or a port, until it is stored.
    pub(crate) allocation: Mutex<()>,
}

impl Core {
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().clone()
    }

    /// Serve something else from now on.
    pub(crate) fn change_catalog(&self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = self.catalog.write();
        change(Arc::make_mut(&mut catalog));
    }

    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.random.lock())
    }

    /// A new object's uid: a random UUID.
    pub(crate) fn uid(&self) -> String {
        let bits: u128 = self.random(RngExt::random);
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// The namespaces that every cluster has.
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
            // Otherwise it may be there already, from a run before.
            if let Err(Refused::Log(error)) = self.store.write(NAMESPACES, &Key::new("", name), None, content) {
                return Err(StartError::Data(error.into()));
            }
        }
        Ok(())
    }
}

fn generator(seed: Option<u64>) -> Mutex<StdRng> {
    Mutex::new(seed.map_or_else(rand::make_rng, StdRng::seed_from_u64))
}

/// The seed of a fork: not drawn from its origin's generator, which would then go on differently.
fn derived(seed: u64, revision: u64) -> u64 {
    let mut both = [0; 32];
    both[..8].copy_from_slice(&seed.to_le_bytes());
    both[8..16].copy_from_slice(&revision.to_le_bytes());
    StdRng::from_seed(both).random()
}

/// A Kubernetes API server in this process. A handle: clones share one server, which ends with the last of them and of its services.
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
/// let made = config.create(&PostParams::default(), &serde_json::from_value(serde_json::json!({
///     "metadata": {"generateName": "settings-"}, "data": {"color": "blue"},
/// }))?).await?;
/// assert!(made.metadata.name.unwrap().starts_with("settings-"));
/// assert_eq!(server.journal().count("POST configmaps"), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ApiServer {
    core: Arc<Core>,
    controllers: Arc<Controllers>,
    note: Option<Arc<str>>,
}

impl ApiServer {
    /// Start a server, ready when this returns. Call it in a tokio runtime: its controllers are tasks there.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn new(options: Options) -> Result<Self, StartError> {
        let guard = browser::guard(&options.authenticator, &options.hosts)?;
        let limits = HistoryLimits { changes: options.history, bytes: options.history_bytes };
        let store = Store::new(limits, controllers::is_notable);
        let mut note = None;
        if let Some(dir) = &options.data_dir {
            let (log, restored) = persist::Log::open(dir, persist::Options { fsync: options.fsync })?;
            store.restore(restored.revision, restored.objects.into_iter());
            store.set_log(log);
            note = restored.note.map(Arc::from);
        }
        let core = Core {
            store,
            catalog: RwLock::new(Arc::new(Catalog::builtin())),
            clock: Clock::new(options.started),
            admission: options.admission,
            authenticator: options.authenticator,
            guard,
            faults: Faults::default(),
            journal: options.journal,
            activity: Arc::default(),
            connections: options.connections,
            seed: options.seed,
            random: generator(options.seed),
            allocation: Mutex::new(()),
        };
        for served in core.catalog().iter() {
            core.store.create_table(&served.table);
        }
        core.create_first_namespaces()?;
        Ok(Self { note, ..Self::run(core, options.controllers) })
    }

    fn run(core: Core, with_controllers: bool) -> Self {
        let core = Arc::new(core);
        controllers::register_definitions(&core);
        let controllers = Arc::new(Controllers::start(&core, with_controllers));
        Self { core, controllers, note: None }
    }

    /// The door without a socket: hand it to `kube::Client::new`.
    pub fn service(&self) -> Service {
        Service { server: self.clone(), identity: None, on_socket: false }
    }

    /// The same for somebody: what they do is done in their name.
    pub fn service_as(&self, identity: Identity) -> Service {
        Service { identity: Some(identity), ..self.service() }
    }

    /// What was found wrong in the data directory and mended, for people to read: usually a last write that was never acknowledged.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The rules by which requests fail.
    pub fn faults(&self) -> &Faults {
        &self.core.faults
    }

    /// The requests so far.
    pub fn journal(&self) -> &Journal {
        &self.core.journal
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.core.store.revision()
    }

    /// Forget history up to now: who watches or pages from an earlier revision is told 410, as after a compaction of etcd.
    pub fn compact(&self) {
        self.core.store.compact(u64::MAX);
    }

    /// A copy of the server as it is now, that goes its own way: for tests that share a long beginning. It has no fault rules, an
    /// empty journal that keeps as much as the origin's, and is not durable. With [`Options::seed`], forks made at one revision give
    /// the same names and uids, others than the origin does, which goes on as if there were no fork.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    #[must_use]
    pub fn fork(&self) -> Self {
        let store = self.core.store.fork();
        let seed = self.core.seed.map(|seed| derived(seed, store.revision()));
        let core = Core {
            store,
            catalog: RwLock::new(self.core.catalog()),
            clock: self.core.clock.clone(),
            admission: self.core.admission.clone(),
            authenticator: self.core.authenticator.clone(),
            guard: self.core.guard.clone(),
            faults: Faults::default(),
            journal: self.core.journal.emptied(),
            activity: Arc::default(),
            connections: self.core.connections,
            seed,
            random: generator(seed),
            allocation: Mutex::new(()),
        };
        Self::run(core, self.controllers.are_all())
    }

    /// Waits until the server is idle.
    ///
    /// The server is idle if no request is in flight, the controllers have nothing to do, and every
    /// watcher has been sent everything. A request is in flight once its body is complete. A
    /// watcher that is not read keeps the server busy, and so does a deletion that an admission
    /// closure rejects, because it is retried.
    ///
    /// # Panics
    /// If the runtime that the server was made in has ended: its controllers ended with it.
    pub async fn wait_idle(&self) {
        self.core.activity.wait_idle(&self.core.store).await;
        assert!(!self.controllers.have_ended(), "{CONTROLLERS_ENDED}");
    }

    /// Serves on a socket: plain HTTP, or TLS by an authority.
    ///
    /// Without tokens in [`Options::authenticator`] every caller is an administrator, and the address has to be loopback. With
    /// tokens, another address than loopback needs an authority: tokens are not sent in the clear.
    pub async fn listen(&self, address: SocketAddr, authority: Option<&Authority>) -> Result<Running, ListenError> {
        let service = Service { on_socket: true, ..self.service() };
        Running::start(address, authority, &self.core.authenticator, self.core.connections, service).await
    }

    /// Install a definition, or replace the one of that name, and wait until its resource is served. With kube-derive:
    /// `server.install(serde_json::to_value(Widget::crd())?)`.
    pub async fn install(&self, definition: Value) -> Result<(), Box<Failure>> {
        let _busy = self.core.activity.begin();
        if self.controllers.have_ended() {
            return Err(Failure::internal(CONTROLLERS_ENDED));
        }
        controllers::install(&self.core, definition).await
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be used; the text says why and what to do.
    Data(Box<dyn StdError + Send + Sync>),
    /// An entry of [`Options::hosts`] is neither a DNS name nor an IP address.
    Host(String),
}

impl From<persist::Error> for StartError {
    fn from(error: persist::Error) -> Self {
        Self::Data(error.into())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(error) => write!(f, "{error}"),
            Self::Host(host) => write!(f, "{}", InvalidHost(host.clone())),
        }
    }
}

impl StdError for StartError {}

/// A server's door for clients in the same process, as a [`tower::Service`](tower_service::Service).
#[derive(Clone, Debug)]
pub struct Service {
    server: ApiServer,
    identity: Option<Identity>,
    /// Requests come from a socket, and may come from a web page.
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
            // The server has ended meanwhile, and its store is empty: that is no answer.
            if server.core.store.is_closed() { Err(Closed) } else { Closed::check(response) }
        })
    }
}
