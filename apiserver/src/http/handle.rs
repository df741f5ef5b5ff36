//! A request from its first byte to its answer.

use super::{
    accept::{self, Answer as AnswerKind, Format, Representation, Shape},
    body::Body,
    discovery::{self, Document},
    path::{Location, Target},
    query::{
        ListOptions, Query,
        write::{Write, WriteOptions},
    },
    show::Show,
    watch::watch,
};
use crate::{
    auth::{Identity, forbidden_for, forbidden_path_for},
    catalog::Served,
    cut::{Closed, DropAfter},
    decode,
    faults::Then,
    journal::Entry,
    matcher,
    patch::Patch,
    registry::{Answer, Call, DeleteOptions, Input, Part, ScaleInput},
    server::Core,
    status::{Failure, Reason, Result},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::Value;
use std::sync::Arc;
use tokio::time::{Instant, sleep};

/// What aggregated discovery is sent as.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// An answer that is not a failure.
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Body,
    pub(super) warnings: Vec<String>,
    pub(super) etag: Option<String>,
    pub(super) retry_after: Option<u32>,
}

impl Reply {
    pub(super) fn new(code: u16, content_type: &'static str, body: impl Into<Body>) -> Self {
        Self { code, content_type, body: body.into(), warnings: Vec::new(), etag: None, retry_after: None }
    }

    fn text(code: u16, text: &'static str) -> Self {
        Self::new(code, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
    }

    /// What is said where there is nothing, outside of the core group.
    fn nothing() -> Self {
        Self::text(404, "404 page not found\n")
    }
}

impl Core {
    /// Answer a request.
    pub(crate) async fn handle(self: &Arc<Self>, request: Parts, body: Result<Bytes>) -> Response<Body> {
        let (at, started) = (self.clock.now(), Instant::now());
        let query = Query::parse(request.uri.query());
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
        let kept = body.as_ref().ok().cloned();
        let response = match fate {
            Ok(()) => {
                let reply = match (&target, identity, body) {
                    (Ok(target), Ok(identity), Ok(body)) => {
                        Request { core: self, parts: &request, query: &query, identity, body }
                            .answer(target, verb)
                            .await
                    }
                    (Err(failure), _, _) => Err(failure.clone()),
                    (_, Err(failure), _) | (_, _, Err(failure)) => Err(failure),
                };
                Some(respond(reply))
            }
            Err(Some(failure)) => Some(respond(Err(failure))),
            Err(None) => None,
        };
        self.journal.record(Entry {
            at,
            method: call.method.into(),
            path: request.uri.path().into(),
            query: request.uri.query().unwrap_or_default().into(),
            verb: verb.into(),
            group: call.group.into(),
            resource: call.resource.into(),
            subresource: call.subresource.into(),
            namespace: call.namespace.into(),
            name: call.name.into(),
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

fn respond(reply: Result<Reply>) -> Response<Body> {
    let reply = reply.unwrap_or_else(|failure| {
        let retry_after = failure.details.as_ref().and_then(|details| details.retry_after_seconds);
        Reply { retry_after, ..Reply::new(failure.code, accept::JSON, Bytes::from(failure.to_json())) }
    });
    let mut response = Response::new(reply.body);
    *response.status_mut() = StatusCode::from_u16(reply.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    for warning in &reply.warnings {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.append(header::WARNING, text);
        }
    }
    if let Some(seconds) = reply.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if let Some(etag) = reply.etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) {
        headers.insert(header::ETAG, etag);
    }
    response
}

/// A request whose sender is known and whose body is here.
struct Request<'a> {
    core: &'a Arc<Core>,
    parts: &'a Parts,
    query: &'a Query,
    identity: Identity,
    body: Bytes,
}

impl Request<'_> {
    async fn answer(&self, target: &Target, verb: &str) -> Result<Reply> {
        self.authorize(target, verb)?;
        match target {
            Target::Resource(location) => self.resource(location, verb).await,
            Target::Nothing => Ok(Reply::nothing()),
            _ if !matches!(self.parts.method, Method::GET | Method::HEAD) => Err(Failure::method_not_allowed()),
            other => self.document(other),
        }
    }

    fn header(&self, name: &HeaderName) -> Option<&str> {
        text_header(&self.parts.headers, name)
    }

    /// Everything that is not about objects.
    fn document(&self, target: &Target) -> Result<Reply> {
        let catalog = self.core.catalog();
        let served = || catalog.iter().map(|served| &served.resource);
        let asked = |kind| Representation::negotiate(self.header(&header::ACCEPT), kind);
        let document = match target {
            Target::Health { .. } => return Ok(Reply::text(200, "ok")),
            Target::Version => discovery::version(),
            Target::Root => discovery::paths(served()),
            Target::CoreVersions | Target::Groups => {
                let core = matches!(target, Target::CoreVersions);
                match asked(AnswerKind::Discovery)?.shape {
                    Shape::AggregatedDiscovery => return Ok(self.tagged(&discovery::aggregated(served(), core))),
                    _ if core => discovery::api_versions(served(), self.header(&header::HOST).unwrap_or_default()),
                    _ => discovery::group_list(served()),
                }
            }
            Target::Group(group) => match discovery::group(served(), group) {
                Some(document) => document,
                None => return Ok(Reply::nothing()),
            },
            Target::Resources { group, version } => match discovery::resource_list(served(), group, version) {
                Some(document) => document,
                None => return Ok(Reply::nothing()),
            },
            Target::Openapi | Target::OpenapiDocument { .. } | Target::Nothing | Target::Resource(_) => {
                return Ok(Reply::nothing());
            }
        };
        let format = asked(AnswerKind::Other)?.format;
        self.encoded(200, &document, format)
    }

    /// Aggregated discovery, which clients keep and ask for again by its tag.
    fn tagged(&self, document: &Value) -> Reply {
        let document = Document::new(document);
        let known = self.header(&header::IF_NONE_MATCH).is_some_and(|tags| document.is_known_by(tags));
        let (code, body) = if known { (304, Body::default()) } else { (200, Bytes::from(document.body).into()) };
        Reply { etag: Some(document.etag), ..Reply::new(code, AGGREGATED, body) }
    }

    fn encoded(&self, code: u16, value: &Value, format: Format) -> Result<Reply> {
        Ok(match format {
            Format::Json if self.query.pretty() == Some(true) => {
                let text = serde_json::to_string_pretty(value).map_err(Failure::internal)?;
                Reply::new(code, accept::JSON, Bytes::from(text + "\n"))
            }
            Format::Json => Reply::new(code, accept::JSON, Bytes::from(value.to_string())),
            Format::Yaml => {
                let text = serde_saphyr::to_string(value).map_err(Failure::internal)?;
                Reply::new(code, accept::YAML, Bytes::from(text))
            }
        })
    }

    /// Everything about objects.
    async fn resource(&self, location: &Location, verb: &str) -> Result<Reply> {
        let catalog = self.core.catalog();
        let Some(served) = catalog.find(&location.group, &location.version, &location.resource) else {
            return if location.group.is_empty() { Err(Failure::no_resource()) } else { Ok(Reply::nothing()) };
        };
        let namespace = location.namespace.as_deref().unwrap_or_default();
        let scoped = served.resource.namespaced;
        let across = namespace.is_empty() && scoped;
        if (!scoped && !namespace.is_empty()) || (across && location.name.is_some()) {
            return if location.group.is_empty() { Err(Failure::no_resource()) } else { Ok(Reply::nothing()) };
        }
        if across && !matches!(verb, "list" | "watch") {
            return if served.strategy().custom { Ok(Reply::nothing()) } else { Err(Failure::method_not_allowed()) };
        }
        let part = part(served, location)?;
        let misplaced = match verb {
            "create" => location.name.is_some(),
            "update" | "patch" => location.name.is_none(),
            _ => part != Part::Whole && verb != "get",
        };
        if misplaced || !served.resource.verbs.contains(&verb) {
            return Err(Failure::method_not_allowed());
        }
        let options = self.write_options(verb)?;
        let mut call = Call {
            core: self.core,
            served,
            namespace,
            part,
            identity: &self.identity,
            options: &options,
            warnings: Vec::new(),
        };
        let mut reply = self.serve(&mut call, served, location, verb).await?;
        reply.warnings = call.warnings;
        Ok(reply)
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

    fn write_options(&self, verb: &str) -> Result<WriteOptions> {
        let write = match verb {
            "create" => Write::Create,
            "update" => Write::Update,
            "patch" if self.patch_type(true) == Ok(accept::APPLY_PATCH) => Write::Apply,
            "patch" => Write::Patch,
            _ => return Ok(WriteOptions::default()),
        };
        WriteOptions::parse(self.query, write)
    }

    fn patch_type(&self, strategic: bool) -> Result<&'static str> {
        accept::patch_type(self.header(&header::CONTENT_TYPE), strategic)
    }

    async fn serve(&self, call: &mut Call<'_>, served: &Arc<Served>, location: &Location, verb: &str) -> Result<Reply> {
        let name = location.name.as_deref().unwrap_or_default();
        match verb {
            "watch" => self.watch(call, served, location).await,
            "list" => self.list(call).await,
            "get" => self.get(call, name).await,
            "create" => {
                let show = self.show_object()?;
                let object = call.accept(self.decode_body()?)?;
                let answer = call.create(object)?;
                self.object(201, call, &answer, show)
            }
            "update" | "patch" if call.part == Part::Scale => self.scale(call, name, verb),
            "update" => {
                let show = self.show_object()?;
                let object = call.accept(self.decode_body()?)?;
                let (answer, created) = call.update(name, &Input::Replace(object))?;
                self.object(if created { 201 } else { 200 }, call, &answer, show)
            }
            "patch" => {
                let show = self.show_object()?;
                let patch = self.patch(call)?;
                let duplicates = match &patch {
                    Patch::Merge(_) => decode::json(&self.body)?.duplicates,
                    Patch::Json(_) => Vec::new(),
                };
                let (answer, _) = call.update(name, &Input::Patch(patch, duplicates))?;
                self.object(200, call, &answer, show)
            }
            "delete" => {
                let show = self.show_object()?;
                let options = self.delete_options()?;
                let answer = call.delete(name, &options)?;
                self.object(200, call, &answer, show)
            }
            "deletecollection" => self.delete_collection(call),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn show_object(&self) -> Result<Show> {
        Show::negotiate(self.header(&header::ACCEPT), AnswerKind::Objects, self.query, &self.core.clock)
    }

    fn decode_body(&self) -> Result<decode::Body> {
        match accept::body_format(self.header(&header::CONTENT_TYPE))? {
            Format::Json => decode::json(&self.body),
            Format::Yaml => decode::yaml(&self.body),
        }
    }

    fn patch(&self, call: &Call<'_>) -> Result<Patch> {
        let strategic = !call.served.strategy().custom;
        match self.patch_type(strategic)? {
            // The place of server-side apply and strategic merge: until they are served, they are types not known.
            accept::APPLY_PATCH | accept::STRATEGIC_MERGE_PATCH => {
                Err(Failure::unsupported_media_type(&[accept::JSON_PATCH, accept::MERGE_PATCH]))
            }
            kind => Patch::parse(kind, &self.body),
        }
    }

    fn delete_options(&self) -> Result<DeleteOptions> {
        let body = if self.body.is_empty() { None } else { Some(self.decode_body()?.value) };
        DeleteOptions::parse(body.as_ref(), self.query)
    }

    async fn get(&self, call: &Call<'_>, name: &str) -> Result<Reply> {
        let show = self.show_object()?;
        let wanted = super::query::resource_version(self.query.get("resourceVersion").unwrap_or_default())?;
        self.core.reach(wanted).await?;
        let object = call.get(name)?;
        if call.part == Part::Scale {
            let scale = call.scale(&object)?;
            return self.encoded(200, &scale, show.format());
        }
        self.object(200, call, &Answer::Stored(object), show)
    }

    fn scale(&self, call: &mut Call<'_>, name: &str, verb: &str) -> Result<Reply> {
        let show = self.show_object()?;
        let input = match verb {
            "patch" => ScaleInput::Patch(self.patch(call)?),
            _ => ScaleInput::replace(self.decode_body()?.value)?,
        };
        let scale = call.update_scale(name, &input)?;
        self.encoded(200, &scale, show.format())
    }

    async fn list(&self, call: &Call<'_>) -> Result<Reply> {
        let show = self.show_object()?;
        let options = ListOptions::parse(self.query, false)?;
        self.core.reach(options.resource_version).await?;
        let list = call.list(&options)?;
        let body = show.list(call.served, &list);
        self.shown(200, body, &show)
    }

    async fn watch(&self, call: &Call<'_>, served: &Arc<Served>, location: &Location) -> Result<Reply> {
        let show = Show::negotiate(self.header(&header::ACCEPT), AnswerKind::Watch, self.query, &self.core.clock)?;
        let mut options = ListOptions::parse(self.query, true)?;
        if let Some(name) = &location.name {
            options.select_name(name);
        }
        let body = watch(call, served, &options, show).await?;
        Ok(Reply::new(200, accept::JSON, body))
    }

    fn delete_collection(&self, call: &mut Call<'_>) -> Result<Reply> {
        let show = self.show_object()?;
        let delete = self.delete_options()?;
        let options = ListOptions::parse(self.query, false)?;
        let mut list = call.list(&options)?;
        list.objects = call.delete_all(list.objects, &delete)?;
        let body = show.list(call.served, &list);
        self.shown(200, body, &show)
    }

    fn object(&self, code: u16, call: &Call<'_>, answer: &Answer, show: Show) -> Result<Reply> {
        let body = match answer {
            Answer::Stored(object) => show.object(call.served, object),
            Answer::Value(value) => show.value(call.served, value),
        };
        self.shown(code, body, &show)
    }

    fn shown(&self, code: u16, body: Bytes, show: &Show) -> Result<Reply> {
        if show.format() == Format::Json && self.query.pretty() != Some(true) {
            return Ok(Reply::new(code, accept::JSON, body));
        }
        let value: Value = serde_json::from_slice(&body).map_err(Failure::internal)?;
        self.encoded(code, &value, show.format())
    }
}

/// Which part of an object a path is about; 404 if the resource has none of that name.
fn part(served: &Served, location: &Location) -> Result<Part> {
    let strategy = served.strategy();
    match location.subresource.as_deref() {
        None => Ok(Part::Whole),
        Some("status") if strategy.status.is_some() => Ok(Part::Status),
        Some("scale") if strategy.scale.is_some() => Ok(Part::Scale),
        Some("finalize") if &*served.table == "namespaces" => Ok(Part::Finalize),
        Some(_) => Err(Failure::new(404, Reason::NotFound, "the server could not find the requested resource")),
    }
}
