//! The path of every request: fault rules, authentication, authorization, dispatch and the journal.

use super::{
    body::Body,
    path::{Location, Target},
    query::{Query, time_limit::time_limit},
    reply::{Reply, ResponseFormat, respond},
};
use crate::{
    auth::{Identity, check_impersonation, forbidden_for, forbidden_path_for},
    dropped_connection::{Closed, DropAfter},
    faults::ActionKind,
    journal::JournalEntry,
    matcher,
    object::Key,
    server::Core,
    status::{Failure, Result},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Response, header, request::Parts};
use std::{panic::resume_unwind, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

/// Size of body and stored object together above which a write runs on a thread for blocking work.
/// Smaller ones take a few milliseconds at most.
const LARGE_WRITE: usize = 64 << 10;

impl Core {
    /// Handles a request.
    pub(crate) async fn handle(
        self: &Arc<Self>,
        request: Parts,
        body: Result<Bytes>,
    ) -> Response<Body> {
        let at = self.clock.now();
        let started = Instant::now();
        let request = Arc::new(request);
        let query = Arc::new(Query::parse(request.uri.query()));
        let target = Target::parse(request.uri.path());
        let no_location = Location::default();
        let location = match &target {
            Ok(Target::Resource(location)) => location,
            _ => &no_location,
        };
        let verb = verb(&request.method, location, &query);
        let call = matcher::RequestInfo {
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
        // `Err(None)` closes the connection.
        let mut injected = Ok(());
        if let Some(action) = action {
            sleep(action.delay).await;
            match action.kind {
                ActionKind::Serve => {}
                ActionKind::Fail(failure) => injected = Err(Some(failure)),
                ActionKind::Close => injected = Err(None),
                ActionKind::DropWatchAfter(events) => drop_after = Some(events),
            }
        }
        let user = identity
            .as_ref()
            .map(|identity| identity.user.clone())
            .unwrap_or_default();
        let response_format = response_format(&request, &query);
        let recorded_body = body.as_ref().ok().cloned();
        let response = match injected {
            Ok(()) => {
                // Watches have a limit of their own.
                let limit = match verb {
                    "watch" => Ok(None),
                    _ => time_limit(&query),
                };
                let reply = match (limit, &target, identity, body) {
                    (Ok(limit), Ok(target), Ok(identity), Ok(body)) => {
                        let request = Arc::new(Request {
                            core: self.clone(),
                            parts: request.clone(),
                            query: query.clone(),
                            identity,
                            body,
                        });
                        request.answer_within(limit, target, verb).await
                    }
                    (_, Err(failure), _, _) => Err(failure.clone()),
                    (Err(failure), ..) | (.., Err(failure), _) | (.., Err(failure)) => Err(failure),
                };
                Some(respond(reply, response_format))
            }
            Err(Some(failure)) => Some(respond(Err(failure), response_format)),
            Err(None) => None,
        };
        let location = match target {
            Ok(Target::Resource(location)) => location,
            _ => no_location,
        };
        self.journal.record(JournalEntry {
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
            user_agent: text_header(&request.headers, &header::USER_AGENT)
                .unwrap_or_default()
                .into(),
            code: response
                .as_ref()
                .map_or(0, |response| response.status().as_u16()),
            duration: started.elapsed(),
            body: recorded_body.filter(|body| !body.is_empty()),
            ..JournalEntry::default()
        });
        match (response, drop_after) {
            (None, _) => Closed::response(),
            (Some(response), None) => response,
            (Some(response), Some(events)) => {
                response.map(|body| Body::stream(DropAfter::new(body, events)))
            }
        }
    }
}

fn text_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub(super) fn response_format<'a>(request: &'a Parts, query: &Query) -> ResponseFormat<'a> {
    ResponseFormat {
        accept: text_header(&request.headers, &header::ACCEPT),
        pretty: wants_pretty(query, &request.headers),
        head: request.method == Method::HEAD,
    }
}

/// Returns whether to indent the response: as the request says, or if the client is a tool that
/// people read.
fn wants_pretty(query: &Query, headers: &HeaderMap) -> bool {
    let accept = text_header(headers, &header::ACCEPT).unwrap_or_default();
    if accept.contains("pretty=") {
        return accept.contains("pretty=1");
    }
    let is_interactive = || {
        let agent = text_header(headers, &header::USER_AGENT).unwrap_or_default();
        ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|tool| agent.starts_with(tool))
    };
    query.pretty().unwrap_or_else(is_interactive)
}

/// Returns the Kubernetes verb of a request, empty if it has none.
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

/// An authenticated request with its complete body.
pub(super) struct Request {
    pub(super) core: Arc<Core>,
    pub(super) parts: Arc<Parts>,
    pub(super) query: Arc<Query>,
    pub(super) identity: Identity,
    pub(super) body: Bytes,
}

impl Request {
    /// Answers with 504 after `limit`. A write that has begun completes nevertheless.
    async fn answer_within(
        self: Arc<Self>,
        limit: Option<Duration>,
        target: &Target,
        verb: &'static str,
    ) -> Result<Reply> {
        let answer = self.answer(target, verb);
        match limit {
            None => answer.await,
            Some(limit) => timeout(limit, answer)
                .await
                .unwrap_or_else(|_| Ok(Reply::timed_out())),
        }
    }

    async fn answer(self: Arc<Self>, target: &Target, verb: &'static str) -> Result<Reply> {
        self.authorize(target, verb)?;
        match target {
            Target::Resource(location) if self.is_large_write(location, verb) => {
                self.resource_on_blocking_thread(location.clone(), verb)
                    .await
            }
            Target::Resource(location) => self.resource(location, verb).await,
            Target::NotFound => Ok(Reply::page_not_found()),
            other => self.document(other),
        }
    }

    /// Returns whether a write may take longer than some milliseconds.
    fn is_large_write(&self, location: &Location, verb: &str) -> bool {
        match verb {
            "get" | "list" | "watch" => false,
            // Any number of objects.
            "deletecollection" => true,
            // Copies can make a large object of a small one by a small patch.
            "patch" if self.is_json_patch() => true,
            _ => self.body.len() + self.stored_size(location) > LARGE_WRITE,
        }
    }

    /// Returns the size of the object at `location`, 0 if there is none.
    fn stored_size(&self, location: &Location) -> usize {
        let catalog = self.core.catalog();
        let served = catalog.find(&location.group, &location.version, &location.resource);
        let (Some(served), Some(name)) = (served, &location.name) else {
            return 0;
        };
        let key = Key::new(location.namespace.as_deref().unwrap_or_default(), name);
        let stored = self.core.store.get(&served.table, key.as_str());
        stored.map_or(0, |object| object.size())
    }

    /// Serves a write without blocking a thread of the runtime. A write never waits, it only
    /// computes.
    async fn resource_on_blocking_thread(
        self: Arc<Self>,
        location: Location,
        verb: &'static str,
    ) -> Result<Reply> {
        // Keeps the server busy until the write is complete, even if the client drops the request.
        let busy = self.core.activity.begin();
        let runtime = Handle::current();
        let answered = spawn_blocking(move || {
            let _busy = busy;
            runtime.block_on(self.resource(&location, verb))
        });
        answered
            .await
            .unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => Err(Failure::internal("the server is shutting down")),
            })
    }

    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        text_header(&self.parts.headers, name)
    }

    /// Returns whether to indent the response.
    pub(super) fn pretty(&self) -> bool {
        wants_pretty(&self.query, &self.parts.headers)
    }

    /// Authorizes the request. Every authenticated user may do everything; others only read health
    /// and version.
    ///
    /// Runs before anything is looked up, so that other callers cannot find out what exists.
    fn authorize(&self, target: &Target, verb: &str) -> Result<()> {
        check_impersonation(&self.identity, &self.parts.headers)?;
        if !self.identity.is_anonymous()
            || matches!(target, Target::Health { .. } | Target::Version)
        {
            return Ok(());
        }
        let Target::Resource(location) = target else {
            let verb = self.parts.method.as_str().to_lowercase();
            return Err(forbidden_path_for(
                &self.identity,
                &verb,
                self.parts.uri.path(),
            ));
        };
        let resource = match &location.subresource {
            Some(subresource) => format!("{}/{subresource}", location.resource),
            None => location.resource.clone(),
        };
        let name = location.name.as_deref().unwrap_or_default();
        let namespace = location.namespace.as_deref().unwrap_or_default();
        Err(forbidden_for(
            &self.identity,
            verb,
            &location.group,
            &resource,
            name,
            namespace,
        ))
    }
}
