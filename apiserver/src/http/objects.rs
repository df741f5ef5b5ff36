//! Requests about objects: each verb, from its body to what it is answered with.

use super::{
    accept::{self, Answer as AnswerKind, Format},
    handle::Request,
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
    registry::{Answer, Call, DeleteOptions, Input, Part, ScaleInput},
    status::{Failure, Reason, Result},
};
use bytes::Bytes;
use http::header;
use serde_json::Value;
use std::sync::Arc;

impl Request<'_> {
    /// Everything about objects.
    pub(super) async fn resource(&self, location: &Location, verb: &str) -> Result<Reply> {
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
            warnings: served.strategy().deprecated.into_iter().map(String::from).collect(),
        };
        let mut reply = match self.serve(&mut call, served, location, verb).await {
            // What was said before a request failed is told with the failure.
            Err(failure) if !call.warnings.is_empty() => Reply::failure(&failure),
            reply => reply?,
        };
        reply.warnings = call.warnings;
        Ok(reply)
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

    fn delete_collection(&self, call: &Call<'_>) -> Result<Reply> {
        let show = self.show_object()?;
        let delete = self.delete_options()?;
        let options = ListOptions::parse(self.query, false)?;
        let list = call.list(&options)?;
        call.delete_all(&list.objects, &delete)?;
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

    fn encoded(&self, code: u16, value: &Value, format: Format) -> Result<Reply> {
        Reply::value(code, value, format, self.query.pretty() == Some(true))
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
        Some("finalize") if &*served.table == NAMESPACES => Ok(Part::Finalize),
        Some(_) => Err(Failure::new(404, Reason::NotFound, "the server could not find the requested resource")),
    }
}
