//! Encodes objects: in full, their metadata only, or as the table that `kubectl get` prints.

use super::{
    accept::{Format, Representation, ResponseKind, Shape},
    query::Query,
    table::{self, Include, Tables},
};
use crate::{
    catalog::Served,
    clock::Clock,
    object::Object,
    registry::List,
    status::{Failure, Reason, Result},
};
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value, json};

/// Encodes objects in the form that the client accepts.
#[derive(Clone, Debug)]
pub(crate) struct ObjectEncoder {
    representation: Representation,
    include: Include,
    clock: Clock,
    /// The column definitions were sent. A watch sends them once.
    columns_sent: bool,
}

impl ObjectEncoder {
    pub(crate) fn negotiate(
        accept: Option<&str>,
        response: ResponseKind,
        query: &Query,
        clock: &Clock,
    ) -> Result<Self> {
        let representation = Representation::negotiate(accept, response)?;
        let include = match representation.shape {
            Shape::Table => Include::parse(query.get("includeObject").unwrap_or_default())?,
            _ => Include::default(),
        };
        Ok(Self {
            representation,
            include,
            clock: clock.clone(),
            columns_sent: false,
        })
    }

    pub(crate) fn format(&self) -> Format {
        self.representation.format
    }

    fn is_plain(&self) -> bool {
        matches!(
            self.representation.shape,
            Shape::Plain | Shape::AggregatedDiscovery
        )
    }

    /// Encodes an object.
    pub(crate) fn object(&self, served: &Served, object: &Object) -> Result<Bytes> {
        match self.representation.shape {
            Shape::Plain | Shape::AggregatedDiscovery => Ok(served.json(object)),
            _ => self.value(served, &served.decode(object)),
        }
    }

    /// Encodes an object that is not stored, or a `Status`, which is never converted.
    pub(crate) fn value(&self, served: &Served, value: &Value) -> Result<Bytes> {
        if value["kind"] == "Status" && value["apiVersion"] == "v1" {
            return Ok(value.to_string().into());
        }
        let shown = match self.representation.shape {
            // As in kube-apiserver, which has no Go type for custom resources.
            Shape::PartialMetadataList if served.strategy().custom => {
                return Err(Failure::new(500, None, "content is not a list"));
            }
            Shape::PartialMetadataList => {
                let found = format!(
                    "PartialObjectMetadataList, but the requested object is not a list ({})",
                    go_type(served, "")
                );
                return Err(Failure::new(
                    406,
                    Reason::NotAcceptable,
                    format!("you requested {found}"),
                ));
            }
            Shape::PartialMetadata => table::partial(value, self.representation.meta),
            Shape::Table => self.tables(served, |tables| {
                tables.one(&served.to_stored(value.clone()))
            }),
            Shape::Plain | Shape::AggregatedDiscovery => return Ok(value.to_string().into()),
        };
        Ok(shown.to_string().into())
    }

    /// Converts an object that has no table, such as a scale.
    pub(crate) fn whole(&self, value: Value) -> Value {
        match self.representation.shape {
            Shape::PartialMetadata => table::partial(&value, self.representation.meta),
            _ => value,
        }
    }

    /// Builds tables, which need objects in their stored form.
    fn tables(&self, served: &Served, show: impl FnOnce(Tables<'_>) -> Value) -> Value {
        let meta = self.representation.meta;
        show(Tables {
            resource: &served.resource,
            clock: &self.clock,
            include: self.include,
            meta,
        })
    }

    /// Encodes a list.
    pub(crate) fn list(&self, served: &Served, list: &List) -> Result<Bytes> {
        let mut meta = Map::new();
        meta.insert("resourceVersion".into(), list.revision.to_string().into());
        if served.strategy().custom && self.is_plain() {
            // Lists of custom resources always have `continue`.
            meta.insert("continue".into(), "".into());
        }
        if let Some(next) = &list.next {
            meta.insert("continue".into(), next.as_str().into());
        }
        if let Some(remaining) = list.remaining {
            meta.insert("remainingItemCount".into(), remaining.into());
        }
        let decoded: Vec<_> = match self.representation.shape {
            Shape::PartialMetadata => {
                let found = format!(
                    "PartialObjectMetadata, but the requested object is a list ({})",
                    go_type(served, "List")
                );
                return Err(Failure::new(
                    406,
                    Reason::NotAcceptable,
                    format!("you requested {found}"),
                ));
            }
            Shape::Plain | Shape::AggregatedDiscovery => {
                // Lists of custom resources always have `continue`.
                if served.strategy().custom {
                    meta.entry("continue").or_insert_with(|| "".into());
                }
                return Ok(plain_list(served, list, &meta));
            }
            _ => list
                .objects
                .iter()
                .map(|object| served.to_stored(served.decode(object)))
                .collect(),
        };
        let shown = match self.representation.shape {
            Shape::Table => self.tables(served, |tables| tables.list(meta.into(), &decoded)),
            _ => table::partial_list(meta.into(), &decoded, self.representation.meta),
        };
        Ok(shown.to_string().into())
    }

    /// Appends the object of a watch event.
    pub(crate) fn write(
        &mut self,
        out: &mut BytesMut,
        served: &Served,
        object: &Object,
        revision: u64,
    ) {
        let shown = match self.representation.shape {
            Shape::Plain | Shape::AggregatedDiscovery => {
                return served.write(out, object, revision);
            }
            Shape::PartialMetadata | Shape::PartialMetadataList => table::partial(
                &served.decode_at(object, revision),
                self.representation.meta,
            ),
            Shape::Table => self.event_table(served, served.decode_at(object, revision)),
        };
        out.put_slice(shown.to_string().as_bytes());
    }

    /// Returns the object of a bookmark, in the form of the watch's other objects.
    pub(crate) fn bookmark(&mut self, served: &Served, meta: Value) -> Value {
        let resource = &served.resource;
        let object = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind, "metadata": meta});
        match self.representation.shape {
            Shape::Plain | Shape::AggregatedDiscovery => object,
            Shape::PartialMetadata | Shape::PartialMetadataList => {
                table::partial(&object, self.representation.meta)
            }
            Shape::Table => {
                // Clients find the end of the initial events in the row's object, so it is included
                // in any case.
                let include = self.include;
                if include == Include::None && object["metadata"]["annotations"].is_object() {
                    self.include = Include::Metadata;
                }
                let table = self.event_table(served, object);
                self.include = include;
                table
            }
        }
    }

    fn event_table(&mut self, served: &Served, object: Value) -> Value {
        let first = !std::mem::replace(&mut self.columns_sent, true);
        self.tables(served, |tables| {
            tables.event(&served.to_stored(object), first)
        })
    }
}

/// Returns the name of the Go type of an object or list in kube-apiserver.
fn go_type(served: &Served, list: &str) -> String {
    let resource = &served.resource;
    match resource.group.split('.').next().unwrap_or_default() {
        _ if resource.strategy.custom => format!("*unstructured.Unstructured{list}"),
        "" | "events" => format!("*core.{}{list}", resource.kind),
        package => format!("*{package}.{}{list}", resource.kind),
    }
}

fn plain_list(served: &Served, list: &List, meta: &Map<String, Value>) -> Bytes {
    let resource = &served.resource;
    let mut out = BytesMut::with_capacity(
        256 + list
            .objects
            .iter()
            .map(|object| object.content().tail().len() + 128)
            .sum::<usize>(),
    );
    let (kind, api_version) = (
        Value::from(&*resource.list_kind),
        Value::from(resource.api_version()),
    );
    let meta = serde_json::to_string(meta).unwrap_or_default();
    out.put_slice(
        format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":{meta},"items":["#)
            .as_bytes(),
    );
    for (index, object) in list.objects.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        served.write_item(&mut out, object);
    }
    out.put_slice(b"]}");
    out.freeze()
}
