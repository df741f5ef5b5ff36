//! A request from its first byte to its answer: what is the same for all of them.

use super::{
    body::Body,
    path::{Location, Target},
    query::Query,
    reply::{Reply, Wish, respond},
};
use crate::{
    auth::{Identity, forbidden_for, forbidden_path_for},
    cut::{Closed, DropAfter},
    faults::Then,
    journal::Entry,
    matcher,
    server::Core,
    status::{Failure, Result},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Response, header, request::Parts};
use std::{panic::resume_unwind, sync::Arc};
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, sleep},
};

/// Writes with bodies larger than this are answered on a thread for blocking work. Smaller ones take at most some milliseconds.
const LARGE_BODY: usize = 64 << 10;

impl Core {
    /// Answer a request.
    pub(crate) async fn handle(self: &Arc<Self>, request: Parts, body: Result<Bytes>) -> Response<Body> {
        let (at, started) = (self.clock.now(), Instant::now());
        let request = Arc::new(request);
        let query = Arc::new(Query::parse(request.uri.query()));
        let target = Target::parse(request.uri.path());
        let nowhere = Location::default();
        let location = match &target {
            Ok(Target::Resource(location)) => location,
            _ => &nowhere,
        };
        let verb = verb(&request.method, location, &query);
        let call = matcher::Call {
            method: request.method.as_str(),
            verb,
            group: &location.group,
            resource: &location.resource,
            subresource: location.subresource.as_deref().unwrap_or_default(),
            namespace: location.namespace.as_deref().unwrap_or_default(),
            name: location.name.as_deref().unwrap_or_default(),
        };
        let action = self.faults.decide(&call);
        let identity = self.authenticator.authenticate(&request);
        let mut drop_after = None;
        let mut fate = Ok(());
        if let Some(action) = action {
            sleep(action.delay).await;
            match action.then {
                Then::Serve => {}
                Then::Fail(failure) => fate = Err(Some(failure)),
                Then::Close => fate = Err(None),
                Then::DropWatchAfter(events) => drop_after = Some(events),
            }
        }
        let user = identity.as_ref().map(|identity| identity.user.clone()).unwrap_or_default();
        let wish = wish(&request, &query);
        let kept = body.as_ref().ok().cloned();
        let response = match fate {
            Ok(()) => {
                let reply = match (&target, identity, body) {
                    (Ok(target), Ok(identity), Ok(body)) => {
                        let (core, parts, query) = (self.clone(), request.clone(), query.clone());
                        Arc::new(Request { core, parts, query, identity, body }).answer(target, verb).await
                    }
                    (Err(failure), _, _) => Err(failure.clone()),
                    (_, Err(failure), _) | (_, _, Err(failure)) => Err(failure),
                };
                Some(respond(reply, wish))
            }
            Err(Some(failure)) => Some(respond(Err(failure), wish)),
            Err(None) => None,
        };
        let location = match target {
            Ok(Target::Resource(location)) => location,
            _ => nowhere,
        };
        self.journal.record(Entry {
            at,
            method: request.method.as_str().into(),
            path: request.uri.path().into(),
            query: request.uri.query().unwrap_or_default().into(),
            verb: verb.into(),
            group: location.group,
            resource: location.resource,
            subresource: location.subresource.unwrap_or_default(),
            namespace: location.namespace.unwrap_or_default(),
            name: location.name.unwrap_or_default(),
            user,
            user_agent: text_header(&request.headers, &header::USER_AGENT).unwrap_or_default().into(),
            code: response.as_ref().map_or(0, |response| response.status().as_u16()),
            duration: started.elapsed(),
            body: kept.filter(|body| !body.is_empty()),
            ..Entry::default()
        });
        match (response, drop_after) {
            (None, _) => Closed::response(),
            (Some(response), None) => response,
            (Some(response), Some(events)) => response.map(|body| Body::stream(DropAfter::new(body, events))),
        }
    }
}

fn text_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// How failures of a request are told.
pub(super) fn wish<'a>(request: &'a Parts, query: &Query) -> Wish<'a> {
    Wish {
        accept: text_header(&request.headers, &header::ACCEPT),
        pretty: wants_pretty(query, &request.headers),
        head: request.method == Method::HEAD,
    }
}

/// Whether the answer shall be indented: by what the request says, or because it comes from a tool that people look at.
fn wants_pretty(query: &Query, headers: &HeaderMap) -> bool {
    let accept = text_header(headers, &header::ACCEPT).unwrap_or_default();
    if accept.contains("pretty=") {
        return accept.contains("pretty=1");
    }
    let by_people = || {
        let agent = text_header(headers, &header::USER_AGENT).unwrap_or_default();
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
    };
    query.pretty().unwrap_or_else(by_people)
}

/// What Kubernetes calls it.
fn verb(method: &Method, location: &Location, query: &Query) -> &'static str {
    let watches = || location.legacy_watch || query.flag("watch").unwrap_or(false);
    match (method, &location.name) {
        _ if location.resource.is_empty() => match *method {
            Method::GET => "get",
            _ => "",
        },
        (&Method::GET, Some(_)) if location.legacy_watch => "watch",
        (&Method::GET | &Method::HEAD, Some(_)) => "get",
        (&Method::GET | &Method::HEAD, None) => {
            if watches() {
                "watch"
            } else {
                "list"
            }
        }
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        (&Method::DELETE, None) => "deletecollection",
        _ => "",
    }
}

/// A request whose sender is known and whose body is here.
pub(super) struct Request {
    pub(super) core: Arc<Core>,
    pub(super) parts: Arc<Parts>,
    pub(super) query: Arc<Query>,
    pub(super) identity: Identity,
    pub(super) body: Bytes,
}

impl Request {
    async fn answer(self: Arc<Self>, target: &Target, verb: &'static str) -> Result<Reply> {
        self.authorize(target, verb)?;
        match target {
            Target::Resource(location) if self.is_large_write(verb) => {
                self.resource_on_blocking_thread(location.clone(), verb).await
            }
            Target::Resource(location) => self.resource(location, verb).await,
            Target::Nothing => Ok(Reply::nothing()),
            other => self.document(other),
        }
    }

    fn is_large_write(&self, verb: &str) -> bool {
        self.body.len() > LARGE_BODY && !matches!(verb, "get" | "list" | "watch")
    }

    /// Answers a write without blocking a thread of the runtime. A write never waits, it only computes.
    async fn resource_on_blocking_thread(self: Arc<Self>, location: Location, verb: &'static str) -> Result<Reply> {
        // The write goes on if the client drops the request.
        let busy = self.core.activity.begin();
        let runtime = Handle::current();
        let answered = spawn_blocking(move || {
            let _busy = busy;
            runtime.block_on(self.resource(&location, verb))
        });
        answered.await.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(Failure::internal("the server is shutting down")),
        })
    }

    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        text_header(&self.parts.headers, name)
    }

    /// Whether the answer shall be indented.
    pub(super) fn pretty(&self) -> bool {
        wants_pretty(&self.query, &self.parts.headers)
    }

    /// The place of RBAC: until it is here, whoever is known may do everything, and others may see that the server is well. It comes
    /// first: what there is, and what is not, is told to nobody else.
    fn authorize(&self, target: &Target, verb: &str) -> Result<()> {
        if !self.identity.is_anonymous() || matches!(target, Target::Health { .. } | Target::Version) {
            return Ok(());
        }
        let Target::Resource(location) = target else {
            let verb = self.parts.method.as_str().to_lowercase();
            return Err(forbidden_path_for(&self.identity, &verb, self.parts.uri.path()));
        };
        let resource = match &location.subresource {
            Some(subresource) => format!("{}/{subresource}", location.resource),
            None => location.resource.clone(),
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (name, namespace) = (text(&location.name), text(&location.namespace));
        Err(forbidden_for(&self.identity, verb, &location.group, &resource, &name, &namespace))
    }
}
