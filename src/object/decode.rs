//! From the wire to what a store keeps, in one pass.
//!
//! `metadata.managedFields` is passed over unless it is asked for; what is kept compact is packed as it is read. A message that
//! cannot be stored is an error that says what it was about; the next message is not affected.

use super::{
    by_namespace::ByNamespace,
    compact::Common,
    compact_meta::CompactMeta,
    error::Undecodable,
    key::ObjectKey,
    packed::{Pen, Quick},
    payload::{MetadataOnly, Payload},
    redact::redacted,
    transform::Transform,
    undecoded::Undecoded,
    weight::Weights,
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

/// What the objects of one informer have in common.
#[derive(Debug)]
pub(crate) struct Decoder {
    types: Arc<TypeMeta>,
    managed_fields: bool,
    /// If there are any.
    transforms: Option<ByNamespace<Option<Transform>>>,
    common: Arc<Common>,
    weights: Weights,
}

impl Decoder {
    /// For objects of this kind, which items of lists do not say.
    pub(crate) fn new(types: TypeMeta) -> Self {
        let (transforms, common, weights) = (None, Arc::default(), Weights::default());
        Self { types: Arc::new(types), managed_fields: false, transforms, common, weights }
    }

    /// Whether to keep `metadata.managedFields`.
    pub(crate) fn managed_fields(self, keep: bool) -> Self {
        Self { managed_fields: keep, ..self }
    }

    /// What to do with each object before it is kept.
    pub(crate) fn transform(self, transforms: impl Into<ByNamespace<Option<Transform>>>) -> Self {
        let transforms = transforms.into();
        let some = transforms.iter().any(Option::is_some);
        Self { transforms: some.then_some(transforms), ..self }
    }

    /// Give back the memory of decoded objects that nobody holds any more. See [`Registry`](super::decoded::Registry).
    pub(crate) fn sweep(&self) {
        self.common.registry.sweep();
    }

    /// How many objects it would look at.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.common.registry.len()
    }

    /// One object's JSON. What the type's own code, or the transform, panics on is not kept either.
    pub(crate) fn decode<P: Payload>(&self, json: &[u8]) -> Result<P, Undecodable> {
        let payload = catch_unwind(AssertUnwindSafe(|| {
            // Looked at once, and not string by string.
            let text = str::from_utf8(json).map_err(Error::custom)?;
            if let Some(payload) = P::read_quickly(self, text) {
                return Ok(payload);
            }
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let payload = self.seed().deserialize(&mut deserializer)?;
            deserializer.end().map(|()| payload)
        }));
        let payload = payload.unwrap_or_else(|_| Err(Error::custom("the type's own code, or its transform, panicked")));
        payload.map_err(|error| self.undecodable(json, error))
    }

    /// About how much memory an object takes. It is walked by its type's own code: nothing if that panics.
    pub(crate) fn measure<P: Payload>(payload: &P) -> Option<usize> {
        catch_unwind(AssertUnwindSafe(|| payload.heap_bytes())).ok()
    }

    /// The same of one whose JSON had this length, mostly without a walk.
    pub(crate) fn weigh<P: Payload>(&self, payload: &P, json: usize) -> u32 {
        let walk = || Self::measure(payload);
        let bytes = if P::WALKED { self.weights.weigh(json, walk) } else { payload.heap_bytes() };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// To decode an object inside of a larger message, as that is read. Its deserializer must be one of `serde_json`
    /// over memory.
    pub(crate) fn seed<P: Payload>(&self) -> Seed<'_, P> {
        Seed { decoder: self, payload: PhantomData }
    }

    /// Says of an object that was not to be decoded which one it was.
    pub(crate) fn undecodable(&self, json: &[u8], error: serde_json::Error) -> Undecodable {
        let mut found = Found::default();
        // Up to where the message is broken, if it is: what was found before that counts.
        let _ = FindObject(&mut found).deserialize(&mut serde_json::Deserializer::from_slice(json));
        let (uid, version) = (found.uid.filter(|uid| !uid.is_empty()), found.resource_version);
        let key = found.name.map(|name| ObjectKey::new(&found.namespace.unwrap_or_default(), &name));
        let metadata = key.clone().map(|key| {
            // The rest of the metadata may be what does not decode.
            MetadataOnly::untransformed(self, json).unwrap_or_else(|_| {
                MetadataOnly::identified(self.types.clone(), key, uid.as_deref(), version.as_deref())
            })
        });
        let kind = self.types.kind.clone();
        let object = metadata.map(|metadata| Arc::new(Undecoded::new(metadata, redacted(&kind, &error))));
        Undecodable { kind, key, revision: version.and_then(|version| version.parse().ok()), object, error }
    }

    pub(crate) fn types(&self) -> &Arc<TypeMeta> {
        &self.types
    }

    pub(super) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Whether objects are changed, in some namespace or everywhere.
    pub(super) fn transforms(&self) -> bool {
        self.transforms.is_some()
    }

    /// What changes the objects of a namespace.
    pub(crate) fn transform_of(&self, namespace: Option<&str>) -> Option<&Transform> {
        let namespace = namespace.filter(|name| !name.is_empty());
        self.transforms.as_ref()?.of(namespace).as_ref()
    }

    pub(super) fn keeps_managed_fields(&self) -> bool {
        self.managed_fields
    }
}

/// See [`Decoder::seed`].
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

/// An object's parts: what all that is kept compact is made from.
pub(super) struct Parts {
    pub(super) types: Arc<TypeMeta>,
    pub(super) meta: CompactMeta,
}

/// Reads [`Parts`].
pub(super) struct ReadParts<'a, 'p> {
    pub(super) decoder: &'a Decoder,
    /// Who writes down the other fields, if anybody does.
    pub(super) rest: Option<&'a mut Pen<'p>>,
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
        let (mut api_version, mut kind, mut meta) = (None::<Text<'de>>, None::<Text<'de>>, None::<WireMeta<'de>>);
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "apiVersion" => api_version = map.next_value()?,
                "kind" => kind = map.next_value()?,
                "metadata" => meta = map.next_value()?,
                name => match &mut self.rest {
                    Some(pen) => map.next_value_seed(pen.field(name))?,
                    None => drop(map.next_value::<IgnoredAny>()?),
                },
            }
        }
        Parts::new(self.decoder, [api_version, kind], meta.unwrap_or_default())
    }
}

impl Parts {
    /// From what an object says of its version and kind, if it does, and its metadata.
    fn new<E: Error>(decoder: &Decoder, said: [Option<Text<'_>>; 2], mut meta: WireMeta<'_>) -> Result<Self, E> {
        match meta.managed_fields {
            Some(fields) if decoder.managed_fields => {
                Vec::<ManagedFieldsEntry>::deserialize(fields).map_err(E::custom)?;
            }
            _ => meta.managed_fields = None,
        }
        let key = meta.key().ok_or_else(no_name)?;
        let meta = CompactMeta::pack(key, &mut meta);
        let given = &decoder.types;
        let [api_version, kind] = said.map(|said| said.map(|said| said.0));
        let api_version = api_version.unwrap_or(given.api_version.as_str().into());
        let kind = kind.unwrap_or(given.kind.as_str().into());
        let types = if *api_version == given.api_version && *kind == given.kind {
            given.clone()
        } else {
            Arc::new(TypeMeta { api_version: api_version.into_owned(), kind: kind.into_owned() })
        };
        Ok(Self { types, meta })
    }

    /// From a message that is in the words that servers use; nothing if it is not, or if anything is wrong. `pen` writes down the other fields.
    pub(super) fn read_quickly(decoder: &Decoder, text: &str, pen: &mut Pen<'_>) -> Option<Self> {
        let mut message = Quick::new(text);
        let (mut said, mut meta) = ([None, None], None);
        message.eat(b'{')?;
        loop {
            message.eat(b'"')?;
            let name = message.string()?;
            message.eat(b':')?;
            match &*name {
                "apiVersion" | "kind" => {
                    message.eat(b'"')?;
                    said[usize::from(name == "kind")] = Some(Text(message.string()?));
                }
                "metadata" => {
                    let mut values = serde_json::Deserializer::from_str(message.rest()).into_iter::<WireMeta<'_>>();
                    meta = Some(values.next()?.ok()?);
                    message.pass(values.byte_offset());
                }
                name => {
                    pen.field(name);
                    message.value(pen)?;
                }
            }
            match message.next()? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        message.end()?;
        Self::new::<serde_json::Error>(decoder, said, meta?).ok()
    }
}

/// What has no name cannot be stored.
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

/// Looks for what names an object, and remembers it as soon as it is found.
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
                // Whatever it is: what comes after it counts for more.
                "uid" => self.0.uid = map.next_value::<Value>()?.as_str().map(Into::into),
                "resourceVersion" => self.0.resource_version = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
