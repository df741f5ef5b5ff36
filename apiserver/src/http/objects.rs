//! Requests for resources, by verb.

use super::{
    accept::{self, Format, ResponseKind},
    handle::Request,
    handle::response_format,
    object_encoder::ObjectEncoder,
    path::Location,
    query::{
        ListOptions,
        write::{WriteKind, WriteOptions},
    },
    reply::Reply,
    watch::watch,
};
use crate::{
    catalog::{NAMESPACES, Served},
    decode,
    patch::Patch,
    registry::{
        DeleteOptions, Input, ResourceRequest, ResponseObject, ScaleInput, Subresource, meta_text,
        unrecognized,
    },
    status::{Failure, Result, StrictErrors},
};
use bytes::Bytes;
use http::{Method, header};
use serde_json::Value;
use std::sync::Arc;

impl Request {
    /// Serves a request for a resource.
    pub(super) async fn resource(&self, location: &Location, verb: &str) -> Result<Reply> {
        let catalog = self.core.catalog();
        // As in kube-apiserver, unknown paths get a `Status` in built-in groups and plain text
        // elsewhere.
        let not_found = || {
            if catalog.has_builtin(&location.group) {
                Err(Failure::no_resource())
            } else {
                Ok(Reply::page_not_found())
            }
        };
        let Some(served) = catalog.find(&location.group, &location.version, &location.resource)
        else {
            return not_found();
        };
        let namespace = location.namespace.as_deref().unwrap_or_default();
        let namespaced = served.resource.namespaced;
        let all_namespaces = namespace.is_empty() && namespaced;
        if (!namespaced && !namespace.is_empty()) || (all_namespaces && location.name.is_some()) {
            return not_found();
        }
        let custom = served.strategy().custom;
        if all_namespaces && !matches!(verb, "list" | "watch") {
            return if custom {
                Ok(Reply::page_not_found())
            } else {
                Err(Failure::method_not_allowed())
            };
        }
        let subresource = subresource(served, location)?;
        if custom {
            check_custom(served, location, verb, subresource)?;
        } else {
            self.check_route(served, location, verb, subresource)?;
        }
        let options = self.write_options(verb, !custom)?;
        let mut call = ResourceRequest {
            core: &self.core,
            served,
            namespace,
            subresource,
            identity: &self.identity,
            options: &options,
            warnings: served
                .resource
                .deprecation
                .iter()
                .map(ToString::to_string)
                .collect(),
        };
        let mut reply = match self.serve(&mut call, served, location, verb).await {
            Ok(reply) => reply,
            // The response of a failure has the warnings, too.
            Err(failure) if !call.warnings.is_empty() => {
                response_format(&self.parts, &self.query).failure(&failure)
            }
            Err(failure) => return Err(failure),
        };
        reply.warnings = call.warnings;
        Ok(reply)
    }

    /// Checks that kube-apiserver has a route for this verb of a built-in resource and for the
    /// `Accept` header.
    fn check_route(
        &self,
        served: &Served,
        location: &Location,
        verb: &str,
        subresource: Subresource,
    ) -> Result<()> {
        let fits = match (verb, subresource) {
            ("create", _) => location.name.is_none(),
            ("update", _) => location.name.is_some(),
            (_, Subresource::Finalize) => false,
            ("patch", _) => location.name.is_some(),
            (_, Subresource::None) => true,
            _ => verb == "get",
        };
        if !fits || self.parts.method == Method::HEAD || !served.resource.verbs.contains(&verb) {
            return Err(Failure::method_not_allowed());
        }
        accept::check_route(
            self.header(&header::ACCEPT),
            matches!(verb, "list" | "watch"),
        )
    }

    fn write_options(&self, verb: &str, strategic: bool) -> Result<WriteOptions> {
        let write = match verb {
            "create" => WriteKind::Create,
            "update" => WriteKind::Update,
            "patch" if self.patch_type(strategic)? == accept::APPLY_PATCH => WriteKind::Apply,
            "patch" => WriteKind::Patch,
            _ => return Ok(WriteOptions::default()),
        };
        WriteOptions::parse(&self.query, write)
    }

    fn patch_type(&self, strategic: bool) -> Result<&'static str> {
        accept::patch_type(self.header(&header::CONTENT_TYPE), strategic)
    }

    pub(super) fn is_json_patch(&self) -> bool {
        self.patch_type(true) == Ok(accept::JSON_PATCH)
    }

    async fn serve(
        &self,
        call: &mut ResourceRequest<'_>,
        served: &Arc<Served>,
        location: &Location,
        verb: &str,
    ) -> Result<Reply> {
        let name = location.name.as_deref().unwrap_or_default();
        match verb {
            "watch" => self.watch(call, served, location).await,
            "list" => self.list(call).await,
            "get" => self.get(call, name).await,
            "create" => {
                let encoder = self.object_encoder()?;
                let object = call.accept(self.decode_object(&call.served.resource.kind)?)?;
                if !served.resource.verbs.contains(&verb) {
                    let reason =
                        "create not allowed while custom resource definition is terminating";
                    let group = &served.resource.group;
                    let resource = &served.resource.plural;
                    return Err(Failure::forbidden(
                        group,
                        resource,
                        meta_text(&object, "name"),
                        reason,
                    ));
                }
                let answer = call.create(object)?;
                self.object(201, call, &answer, encoder)
            }
            "update" | "patch" if call.subresource == Subresource::Scale => {
                self.scale(call, name, verb)
            }
            "update" => {
                let encoder = self.object_encoder()?;
                let object = call.accept(self.decode_object(&call.served.resource.kind)?)?;
                let (answer, created) = call.update(name, &Input::Replace(object))?;
                self.object(if created { 201 } else { 200 }, call, &answer, encoder)
            }
            "patch" => {
                let encoder = self.object_encoder()?;
                let (patch, faults) = self.patch(call)?;
                let (answer, _) = call.update(name, &Input::Patch(patch, faults))?;
                self.object(200, call, &answer, encoder)
            }
            "delete" => {
                let encoder = self.object_encoder()?;
                let options = self.delete_options()?;
                let (answer, gone) = call.delete(name, &options)?;
                let code = if options.reports_pending && !gone {
                    202
                } else {
                    200
                };
                self.object(code, call, &answer, encoder)
            }
            "deletecollection" => self.delete_collection(call),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn object_encoder(&self) -> Result<ObjectEncoder> {
        ObjectEncoder::negotiate(
            self.header(&header::ACCEPT),
            ResponseKind::Objects,
            &self.query,
            &self.core.clock,
        )
    }

    fn decode_body(&self) -> Result<decode::DecodedBody> {
        match accept::body_format(self.header(&header::CONTENT_TYPE))? {
            Format::Json => decode::json(&self.body),
            Format::Yaml => decode::yaml(&self.body),
        }
    }

    /// Decodes a body that must be an object of `kind`.
    fn decode_object(&self, kind: &str) -> Result<decode::DecodedBody> {
        self.decode_body().map_err(|failure| {
            let version = if failure.message.starts_with("json") {
                "couldn't get version/kind; "
            } else {
                ""
            };
            match failure.code {
                400 => unrecognized(kind, &format!("{version}{}", failure.message), &self.body),
                _ => failure,
            }
        })
    }

    /// Decodes a patch, and returns the strict decoding errors with it.
    fn patch(&self, call: &ResourceRequest<'_>) -> Result<(Patch, StrictErrors)> {
        let strategic = !call.served.strategy().custom;
        match self.patch_type(strategic)? {
            // Server-side apply and strategic merge are not supported yet, so they are unknown
            // types.
            accept::APPLY_PATCH | accept::STRATEGIC_MERGE_PATCH => {
                Err(Failure::unsupported_media_type(&[
                    accept::JSON_PATCH,
                    accept::MERGE_PATCH,
                ]))
            }
            kind => Patch::parse(kind, &self.body),
        }
    }

    fn delete_options(&self) -> Result<DeleteOptions> {
        let add_context = |failure: Box<Failure>| {
            let message = format!("couldn't get version/kind; {}", failure.message);
            if failure.code == 400 {
                Failure::bad_request(message)
            } else {
                failure
            }
        };
        let body = if self.body.is_empty() {
            None
        } else {
            Some(self.decode_body().map_err(add_context)?.value)
        };
        DeleteOptions::parse(body.as_ref(), &self.query)
    }

    async fn get(&self, call: &ResourceRequest<'_>, name: &str) -> Result<Reply> {
        let encoder = self.object_encoder()?;
        let wanted =
            super::query::resource_version(self.query.get("resourceVersion").unwrap_or_default())?;
        if self.query.flag("export") == Some(true) {
            return Err(Failure::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ));
        }
        self.core.wait_for_revision(wanted).await?;
        let object = call.get(name)?;
        if call.subresource == Subresource::Scale {
            let scale = encoder.whole(call.scale(&object)?);
            return self.value_reply(200, &scale, encoder.format());
        }
        self.object(200, call, &ResponseObject::Stored(object), encoder)
    }

    fn scale(&self, call: &mut ResourceRequest<'_>, name: &str, verb: &str) -> Result<Reply> {
        let encoder = self.object_encoder()?;
        let input = match verb {
            "patch" => {
                let (patch, faults) = self.patch(call)?;
                ScaleInput::Patch(patch, faults)
            }
            _ => ScaleInput::Replace(self.decode_body()?),
        };
        let scale = call.update_scale(name, &input)?;
        self.value_reply(200, &scale, encoder.format())
    }

    async fn list(&self, call: &ResourceRequest<'_>) -> Result<Reply> {
        let encoder = self.object_encoder()?;
        let options = ListOptions::parse(&self.query, false)?;
        self.core
            .wait_for_revision(options.resource_version)
            .await?;
        let list = call.list(&options)?;
        let body = encoder.list(call.served, &list)?;
        self.encoded_reply(200, body, &encoder)
    }

    async fn watch(
        &self,
        call: &ResourceRequest<'_>,
        served: &Arc<Served>,
        location: &Location,
    ) -> Result<Reply> {
        let encoder = ObjectEncoder::negotiate(
            self.header(&header::ACCEPT),
            ResponseKind::Watch,
            &self.query,
            &self.core.clock,
        )?;
        let mut options = ListOptions::parse(&self.query, true)?;
        if let Some(name) = &location.name {
            options.select_name(name);
        }
        let body = watch(call, served, &options, encoder).await?;
        Ok(Reply::new(200, accept::JSON, body))
    }

    fn delete_collection(&self, call: &ResourceRequest<'_>) -> Result<Reply> {
        let encoder = self.object_encoder()?;
        let delete = self.delete_options()?;
        delete.check_collection()?;
        let options = ListOptions::parse(&self.query, false)?;
        let list = call.list(&options)?;
        call.delete_all(&list.objects, &delete)?;
        let body = encoder.list(call.served, &list)?;
        self.encoded_reply(200, body, &encoder)
    }

    fn object(
        &self,
        code: u16,
        call: &ResourceRequest<'_>,
        answer: &ResponseObject,
        encoder: ObjectEncoder,
    ) -> Result<Reply> {
        let body = match answer {
            ResponseObject::Stored(object) => encoder.object(call.served, object)?,
            ResponseObject::Value(value) => encoder.value(call.served, value)?,
        };
        self.encoded_reply(code, body, &encoder)
    }

    fn value_reply(&self, code: u16, value: &Value, format: Format) -> Result<Reply> {
        Reply::value(code, value, format, self.pretty())
    }

    fn encoded_reply(&self, code: u16, body: Bytes, encoder: &ObjectEncoder) -> Result<Reply> {
        if encoder.format() == Format::Json && !self.pretty() {
            return Ok(Reply::new(code, accept::JSON, body));
        }
        let value: Value = serde_json::from_slice(&body).map_err(Failure::internal)?;
        self.value_reply(code, &value, encoder.format())
    }
}

/// Returns the subresource of a path, 404 if the resource does not have it.
fn subresource(served: &Served, location: &Location) -> Result<Subresource> {
    let strategy = served.strategy();
    match location.subresource.as_deref() {
        None => Ok(Subresource::None),
        Some("status") if strategy.status.is_some() => Ok(Subresource::Status),
        Some("scale") if strategy.scale.is_some() => Ok(Subresource::Scale),
        Some("finalize") if &*served.table == NAMESPACES => Ok(Subresource::Finalize),
        Some(_) if strategy.custom => {
            let resource = &served.resource;
            Err(Failure::not_found(
                &resource.group,
                &resource.plural,
                location.name.as_deref().unwrap_or_default(),
            ))
        }
        Some(_) => Err(Failure::no_resource()),
    }
}

/// Checks the verb of a request for a custom resource, which kube-apiserver serves by one handler
/// without routes.
fn check_custom(
    served: &Served,
    location: &Location,
    verb: &str,
    subresource: Subresource,
) -> Result<()> {
    let known = match subresource {
        Subresource::None => !verb.is_empty(),
        _ => matches!(verb, "get" | "update" | "patch"),
    };
    if !known {
        return Err(Failure::verb_not_supported(
            verb,
            &served.resource.group,
            &served.resource.plural,
        ));
    }
    if matches!(verb, "update" | "patch") && location.name.is_none() {
        return Err(Failure::bad_request("name must be provided"));
    }
    Ok(())
}
