//! Decoder from JSON to the representation of a store, in one pass.
//!
//! Skips `metadata.managedFields` unless they are kept, and packs compact objects while it reads
//! them. A message that cannot be decoded is an error that names the object. It does not affect
//! later messages.

use super::{
    by_namespace::ByNamespace,
    compact::Common,
    compact_meta::CompactMeta,
    error::Undecodable,
    key::ObjectKey,
    packed::{FastParser, Packer},
    payload::{MetadataOnly, Payload},
    redact::redacted,
    size_estimate::SizeEstimator,
    transform::Transform,
    undecoded::Undecoded,
    wire_meta::{Text, WireMeta},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube_core::TypeMeta;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;
use std::{
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Decoder of the objects of one informer.
#[derive(Debug)]
pub(crate) struct Decoder {
    types: Arc<TypeMeta>,
    managed_fields: bool,
    /// `None` if there are no transforms.
    transforms: Option<ByNamespace<Option<Transform>>>,
    common: Arc<Common>,
    weights: SizeEstimator,
}

impl Decoder {
    /// Creates a decoder for a kind, because items of lists do not contain it.
    pub(crate) fn new(types: TypeMeta) -> Self {
        let (transforms, common, weights) = (None, Arc::default(), SizeEstimator::default());
        Self {
            types: Arc::new(types),
            managed_fields: false,
            transforms,
            common,
            weights,
        }
    }

    /// Sets whether to keep `metadata.managedFields`. Default: false.
    pub(crate) fn managed_fields(self, keep: bool) -> Self {
        Self {
            managed_fields: keep,
            ..self
        }
    }

    /// Sets the transforms to apply to each object before it is stored.
    pub(crate) fn transform(self, transforms: impl Into<ByNamespace<Option<Transform>>>) -> Self {
        let transforms = transforms.into();
        let some = transforms.iter().any(Option::is_some);
        Self {
            transforms: some.then_some(transforms),
            ..self
        }
    }

    /// Frees decoded values that are not in use. See [`Registry`](super::decoded::Registry).
    pub(crate) fn sweep(&self) {
        self.common.registry.sweep();
    }

    /// Returns the number of objects that `sweep` visits.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.common.registry.len()
    }

    /// Decodes the JSON of an object. A panic of the type or the transform is an error.
    pub(crate) fn decode<P: Payload>(&self, json: &[u8]) -> Result<P, Undecodable> {
        let payload = catch_unwind(AssertUnwindSafe(|| {
            // Validates UTF-8 once instead of per string.
            let text = str::from_utf8(json).map_err(Error::custom)?;
            if let Some(payload) = P::read_quickly(self, text) {
                return Ok(payload);
            }
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let payload = self.seed().deserialize(&mut deserializer)?;
            deserializer.end().map(|()| payload)
        }));
        let payload = payload.unwrap_or_else(|_| {
            Err(Error::custom(
                "deserializing or transforming the type panicked",
            ))
        });
        payload.map_err(|error| self.undecodable(json, error))
    }

    /// Returns the approximate memory of an object; `None` if its type panics.
    pub(crate) fn measure<P: Payload>(payload: &P) -> Option<usize> {
        catch_unwind(AssertUnwindSafe(|| payload.heap_bytes())).ok()
    }

    /// Returns the approximate memory of an object from the length of its JSON.
    ///
    /// Traverses only some of the objects.
    pub(crate) fn estimate_size<P: Payload>(&self, payload: &P, json: usize) -> u32 {
        let walk = || Self::measure(payload);
        let bytes = if P::WALKED {
            self.weights.estimate(json, walk)
        } else {
            payload.heap_bytes()
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Returns a seed to decode an object inside of a larger message.
    ///
    /// The deserializer must be one of `serde_json` over memory.
    pub(crate) fn seed<P: Payload>(&self) -> Seed<'_, P> {
        Seed {
            decoder: self,
            payload: PhantomData,
        }
    }

    /// Returns an error with the identity of an object that cannot be decoded.
    pub(crate) fn undecodable(&self, json: &[u8], error: serde_json::Error) -> Undecodable {
        let mut found = Found::default();
        // Uses what is found before the position where the message is invalid.
        let _ = FindObject(&mut found).deserialize(&mut serde_json::Deserializer::from_slice(json));
        let (uid, version) = (
            found.uid.filter(|uid| !uid.is_empty()),
            found.resource_version,
        );
        let key = found
            .name
            .map(|name| ObjectKey::new(found.namespace.unwrap_or_default(), &name));
        let metadata = key.clone().map(|key| {
            // The rest of the metadata may be the part that cannot be decoded.
            MetadataOnly::untransformed(self, json).unwrap_or_else(|_| {
                MetadataOnly::identified(
                    self.types.clone(),
                    key,
                    uid.as_deref(),
                    version.as_deref(),
                )
            })
        });
        let kind = self.types.kind.clone();
        let object =
            metadata.map(|metadata| Arc::new(Undecoded::new(metadata, redacted(&kind, &error))));
        Undecodable {
            kind,
            key,
            revision: version.and_then(|version| version.parse().ok()),
            object,
            error,
        }
    }

    pub(crate) fn types(&self) -> &Arc<TypeMeta> {
        &self.types
    }

    pub(super) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Returns whether any namespace has a transform.
    pub(super) fn transforms(&self) -> bool {
        self.transforms.is_some()
    }

    /// Returns the transform of a namespace.
    pub(crate) fn transform_of(&self, namespace: Option<&str>) -> Option<&Transform> {
        let namespace = namespace.filter(|name| !name.is_empty());
        self.transforms.as_ref()?.of(namespace).as_ref()
    }

    pub(super) fn keeps_managed_fields(&self) -> bool {
        self.managed_fields
    }
}

/// Seed that decodes an object, see [`Decoder::seed`].
pub(crate) struct Seed<'a, P> {
    decoder: &'a Decoder,
    payload: PhantomData<fn() -> P>,
}

impl<'de, P: Payload> DeserializeSeed<'de> for Seed<'_, P> {
    type Value = P;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<P, D::Error> {
        P::read(self.decoder, deserializer)
    }
}

/// Type and metadata of an object.
pub(super) struct Parts {
    pub(super) types: Arc<TypeMeta>,
    pub(super) meta: CompactMeta,
}

/// Visitor that reads [`Parts`].
pub(super) struct ReadParts<'a, 'p> {
    pub(super) decoder: &'a Decoder,
    /// Packs the other fields, or skips them if `None`.
    pub(super) rest: Option<&'a mut Packer<'p>>,
}

impl<'de> DeserializeSeed<'de> for ReadParts<'_, '_> {
    type Value = Parts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parts, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReadParts<'_, '_> {
    type Value = Parts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of kind {}", self.decoder.types.kind)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Parts, A::Error> {
        let (mut api_version, mut kind, mut meta) =
            (None::<Text<'de>>, None::<Text<'de>>, None::<WireMeta<'de>>);
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "apiVersion" => api_version = map.next_value()?,
                "kind" => kind = map.next_value()?,
                "metadata" => meta = map.next_value()?,
                name => match &mut self.rest {
                    Some(packer) => map.next_value_seed(packer.field(name))?,
                    None => drop(map.next_value::<IgnoredAny>()?),
                },
            }
        }
        Parts::new(self.decoder, [api_version, kind], meta.unwrap_or_default())
    }
}

impl Parts {
    /// Creates the parts from `apiVersion` and `kind`, if present, and metadata.
    fn new<E: Error>(
        decoder: &Decoder,
        type_fields: [Option<Text<'_>>; 2],
        mut meta: WireMeta<'_>,
    ) -> Result<Self, E> {
        match meta.managed_fields {
            Some(fields) if decoder.managed_fields => {
                Vec::<ManagedFieldsEntry>::deserialize(fields).map_err(E::custom)?;
            }
            _ => meta.managed_fields = None,
        }
        let key = meta.key().ok_or_else(no_name)?;
        let meta = CompactMeta::pack(key, &mut meta);
        let given = &decoder.types;
        let [api_version, kind] = type_fields.map(|field| field.map(|text| text.0));
        let api_version = api_version.unwrap_or(given.api_version.as_str().into());
        let kind = kind.unwrap_or(given.kind.as_str().into());
        let types = if *api_version == given.api_version && *kind == given.kind {
            given.clone()
        } else {
            Arc::new(TypeMeta {
                api_version: api_version.into_owned(),
                kind: kind.into_owned(),
            })
        };
        Ok(Self { types, meta })
    }

    /// Reads a message in the usual format of API servers; `None` for any other.
    ///
    /// `packer` packs the other fields.
    pub(super) fn read_quickly(
        decoder: &Decoder,
        text: &str,
        packer: &mut Packer<'_>,
    ) -> Option<Self> {
        let mut message = FastParser::new(text);
        let (mut type_fields, mut meta) = ([None, None], None);
        message.eat(b'{')?;
        loop {
            message.eat(b'"')?;
            let name = message.string()?;
            message.eat(b':')?;
            match &*name {
                "apiVersion" | "kind" => {
                    message.eat(b'"')?;
                    type_fields[usize::from(name == "kind")] = Some(Text(message.string()?));
                }
                "metadata" => {
                    let mut values = serde_json::Deserializer::from_str(message.rest())
                        .into_iter::<WireMeta<'_>>();
                    meta = Some(values.next()?.ok()?);
                    message.pass(values.byte_offset());
                }
                name => {
                    packer.field(name);
                    message.value(packer)?;
                }
            }
            match message.next()? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        message.end()?;
        Self::new::<serde_json::Error>(decoder, type_fields, meta?).ok()
    }
}

/// Returns the error for an object without a name.
pub(super) fn no_name<E: Error>() -> E {
    E::custom("metadata.name is missing or empty")
}

#[derive(Default)]
struct Found {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Finds the identity of an object, and stores each part as soon as it is found.
struct FindObject<'a>(&'a mut Found);
struct FindMetadata<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for FindObject<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FindObject<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "metadata" => map.next_value_seed(FindMetadata(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for FindMetadata<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FindMetadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "name" => self.0.name = map.next_value()?,
                "namespace" => self.0.namespace = map.next_value()?,
                // Accepts any type, so that the fields after it are read.
                "uid" => self.0.uid = map.next_value::<Value>()?.as_str().map(Into::into),
                "resourceVersion" => self.0.resource_version = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
