//! Requests about objects: each verb, from its body to what it is answered with.

use super::{
    accept::{self, Answer as AnswerKind, Format},
    handle::Request,
    handle::wish,
    path::Location,
    query::{
        ListOptions,
        write::{Write, WriteOptions},
    },
    reply::Reply,
    show::Show,
    watch::watch,
};
use crate::{
    catalog::{NAMESPACES, Served},
    decode,
    patch::Patch,
    registry::{Answer, Call, DeleteOptions, Input, Part, ScaleInput, meta_text, unrecognized},
    status::{Failure, Result, StrictErrors},
};
use bytes::Bytes;
use http::{Method, header};
use serde_json::Value;
use std::sync::Arc;

impl Request {
    /// Everything about objects.
    pub(super) async fn resource(&self, location: &Location, verb: &str) -> Result<Reply> {
        let catalog = self.core.catalog();
        // Below built-in groups what is not there is told as a status, elsewhere as text.
        let nothing =
            || if catalog.has_built_in(&location.group) { Err(Failure::no_resource()) } else { Ok(Reply::nothing()) };
        let Some(served) = catalog.find(&location.group, &location.version, &location.resource) else {
            return nothing();
        };
        let namespace = location.namespace.as_deref().unwrap_or_default();
        let scoped = served.resource.namespaced;
        let across = namespace.is_empty() && scoped;
        if (!scoped && !namespace.is_empty()) || (across && location.name.is_some()) {
            return nothing();
        }
        let custom = served.strategy().custom;
        if across && !matches!(verb, "list" | "watch") {
            return if custom { Ok(Reply::nothing()) } else { Err(Failure::method_not_allowed()) };
        }
        let part = part(served, location)?;
        if custom {
            check_custom(served, location, verb, part)?;
        } else {
            self.check_route(served, location, verb, part)?;
        }
        let options = self.write_options(verb)?;
        let mut call = Call {
            core: &self.core,
            served,
            namespace,
            part,
            identity: &self.identity,
            options: &options,
            warnings: served.resource.deprecation.iter().map(ToString::to_string).collect(),
        };
        let mut reply = match self.serve(&mut call, served, location, verb).await {
            Ok(reply) => reply,
            // What was doubtful is told beside what was wrong.
            Err(failure) if !call.warnings.is_empty() => wish(&self.parts, &self.query).failure(&failure),
            Err(failure) => return Err(failure),
        };
        reply.warnings = call.warnings;
        Ok(reply)
    }

    /// Whether there is a route to a built-in resource for a verb, and for what the request takes.
    fn check_route(&self, served: &Served, location: &Location, verb: &str, part: Part) -> Result<()> {
        let fits = match (verb, part) {
            ("create", _) => location.name.is_none(),
            ("update", _) => location.name.is_some(),
            (_, Part::Finalize) => false,
            ("patch", _) => location.name.is_some(),
            (_, Part::Whole) => true,
            _ => verb == "get",
        };
        if !fits || self.parts.method == Method::HEAD || !served.resource.verbs.contains(&verb) {
            return Err(Failure::method_not_allowed());
        }
        accept::check_route(self.header(&header::ACCEPT), matches!(verb, "list" | "watch"))
    }

    fn write_options(&self, verb: &str) -> Result<WriteOptions> {
        let write = match verb {
            "create" => Write::Create,
            "update" => Write::Update,
            "patch" if self.patch_type(true) == Ok(accept::APPLY_PATCH) => Write::Apply,
            "patch" => Write::Patch,
            _ => return Ok(WriteOptions::default()),
        };
        WriteOptions::parse(&self.query, write)
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
                let object = call.accept(self.decode_object(&call.served.resource.kind)?)?;
                if !served.resource.verbs.contains(&verb) {
                    let why = "create not allowed while custom resource definition is terminating";
                    let (group, resource) = (&served.resource.group, &served.resource.plural);
                    return Err(Failure::forbidden(group, resource, meta_text(&object, "name"), why));
                }
                let answer = call.create(object)?;
                self.object(201, call, &answer, show)
            }
            "update" | "patch" if call.part == Part::Scale => self.scale(call, name, verb),
            "update" => {
                let show = self.show_object()?;
                let object = call.accept(self.decode_object(&call.served.resource.kind)?)?;
                let (answer, created) = call.update(name, &Input::Replace(object))?;
                self.object(if created { 201 } else { 200 }, call, &answer, show)
            }
            "patch" => {
                let show = self.show_object()?;
                let (patch, faults) = self.patch(call)?;
                let (answer, _) = call.update(name, &Input::Patch(patch, faults))?;
                self.object(200, call, &answer, show)
            }
            "delete" => {
                let show = self.show_object()?;
                let options = self.delete_options()?;
                let (answer, gone) = call.delete(name, &options)?;
                let code = if options.asks_whether_gone && !gone { 202 } else { 200 };
                self.object(code, call, &answer, show)
            }
            "deletecollection" => self.delete_collection(call),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn show_object(&self) -> Result<Show> {
        Show::negotiate(self.header(&header::ACCEPT), AnswerKind::Objects, &self.query, &self.core.clock)
    }

    fn decode_body(&self) -> Result<decode::Body> {
        match accept::body_format(self.header(&header::CONTENT_TYPE))? {
            Format::Json => decode::json(&self.body),
            Format::Yaml => decode::yaml(&self.body),
        }
    }

    /// The same for an object of a kind.
    fn decode_object(&self, kind: &str) -> Result<decode::Body> {
        self.decode_body().map_err(|failure| {
            let version = if failure.message.starts_with("json") { "couldn't get version/kind; " } else { "" };
            match failure.code {
                400 => unrecognized(kind, &format!("{version}{}", failure.message), &self.body),
                _ => failure,
            }
        })
    }

    /// A patch, and what is doubtful in it.
    fn patch(&self, call: &Call<'_>) -> Result<(Patch, StrictErrors)> {
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
        let unread = |failure: Box<Failure>| {
            let message = format!("couldn't get version/kind; {}", failure.message);
            if failure.code == 400 { Failure::bad_request(message) } else { failure }
        };
        let body = if self.body.is_empty() { None } else { Some(self.decode_body().map_err(unread)?.value) };
        DeleteOptions::parse(body.as_ref(), &self.query)
    }

    async fn get(&self, call: &Call<'_>, name: &str) -> Result<Reply> {
        let show = self.show_object()?;
        let wanted = super::query::resource_version(self.query.get("resourceVersion").unwrap_or_default())?;
        self.core.reach(wanted).await?;
        let object = call.get(name)?;
        if call.part == Part::Scale {
            let scale = show.whole(call.scale(&object)?);
            return self.encoded(200, &scale, show.format());
        }
        self.object(200, call, &Answer::Stored(object), show)
    }

    fn scale(&self, call: &mut Call<'_>, name: &str, verb: &str) -> Result<Reply> {
        let show = self.show_object()?;
        let input = match verb {
            "patch" => {
                let (patch, faults) = self.patch(call)?;
                ScaleInput::Patch(patch, faults)
            }
            _ => ScaleInput::Replace(self.decode_body()?),
        };
        let scale = call.update_scale(name, &input)?;
        self.encoded(200, &scale, show.format())
    }

    async fn list(&self, call: &Call<'_>) -> Result<Reply> {
        let show = self.show_object()?;
        let options = ListOptions::parse(&self.query, false)?;
        self.core.reach(options.resource_version).await?;
        let list = call.list(&options)?;
        let body = show.list(call.served, &list)?;
        self.shown(200, body, &show)
    }

    async fn watch(&self, call: &Call<'_>, served: &Arc<Served>, location: &Location) -> Result<Reply> {
        let show = Show::negotiate(self.header(&header::ACCEPT), AnswerKind::Watch, &self.query, &self.core.clock)?;
        let mut options = ListOptions::parse(&self.query, true)?;
        if let Some(name) = &location.name {
            options.select_name(name);
        }
        let body = watch(call, served, &options, show).await?;
        Ok(Reply::new(200, accept::JSON, body))
    }

    fn delete_collection(&self, call: &Call<'_>) -> Result<Reply> {
        let show = self.show_object()?;
        let delete = self.delete_options()?;
        let options = ListOptions::parse(&self.query, false)?;
        let list = call.list(&options)?;
        call.delete_all(&list.objects, &delete)?;
        let body = show.list(call.served, &list)?;
        self.shown(200, body, &show)
    }

    fn object(&self, code: u16, call: &Call<'_>, answer: &Answer, show: Show) -> Result<Reply> {
        let body = match answer {
            Answer::Stored(object) => show.object(call.served, object)?,
            Answer::Value(value) => show.value(call.served, value)?,
        };
        self.shown(code, body, &show)
    }

    fn encoded(&self, code: u16, value: &Value, format: Format) -> Result<Reply> {
        Reply::value(code, value, format, self.pretty())
    }

    fn shown(&self, code: u16, body: Bytes, show: &Show) -> Result<Reply> {
        if show.format() == Format::Json && !self.pretty() {
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
        Some("finalize") if &*served.table == NAMESPACES => Ok(Part::Finalize),
        Some(_) if strategy.custom => {
            let resource = &served.resource;
            Err(Failure::not_found(&resource.group, &resource.plural, location.name.as_deref().unwrap_or_default()))
        }
        Some(_) => Err(Failure::no_resource()),
    }
}

/// Whether a verb fits a path of a custom resource: there are no routes to them in the real server, but one handler for all.
fn check_custom(served: &Served, location: &Location, verb: &str, part: Part) -> Result<()> {
    let known = match part {
        Part::Whole => !verb.is_empty(),
        _ => matches!(verb, "get" | "update" | "patch"),
    };
    if !known {
        return Err(Failure::verb_not_supported(verb, &served.resource.group, &served.resource.plural));
    }
    if matches!(verb, "update" | "patch") && location.name.is_none() {
        return Err(Failure::bad_request("name must be provided"));
    }
    Ok(())
}
