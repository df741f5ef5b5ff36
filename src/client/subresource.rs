//! Parts of objects that are kinds of their own.

use super::{
    Client, Discovered, Patch, Result, Verb,
    read::statically,
    wire::{Asking, encode, unread},
};
use crate::object::{ObjectKey, StaticKind};
use http::Method;
use kube_core::GroupVersionKind;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, pin::pin, sync::Arc};

/// A part of an object that is a kind of its own: `scale`, `eviction`, `token`, `binding`. From [`Client::subresource_of`], or from
/// [`Dynamic::subresource_of`](super::Dynamic::subresource_of).
///
/// ```
/// # use steersman::{client::{Client, Result}, object::ObjectKey};
/// use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v1::Scale};
///
/// # async fn example(client: Client) -> Result<()> {
/// let scale = client.subresource_of::<Deployment>(&ObjectKey::new("shop", "web"), "scale");
/// if let Some(mut wanted) = scale.get::<Scale>().await? {
///     wanted.spec.get_or_insert_default().replicas = Some(3);
///     scale.update(&wanted).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Subresource {
    /// Of this part.
    client: Client,
    of: Of,
    key: ObjectKey,
}

#[derive(Clone)]
enum Of {
    Type(Arc<Discovered>),
    Kind(GroupVersionKind),
}

impl Client {
    /// A part of an object that is a kind of its own; what is the object itself, as `status` is, is meant with [`subresource`](Self::subresource).
    pub fn subresource_of<K: StaticKind>(&self, key: &ObjectKey, name: &str) -> Subresource {
        Subresource { client: self.subresource(name), of: Of::Type(Arc::new(statically::<K>())), key: key.clone() }
    }
}

impl Subresource {
    pub(super) fn named(client: &Client, kind: GroupVersionKind, key: &ObjectKey, name: &str) -> Self {
        Self { client: client.subresource(name), of: Of::Kind(kind), key: key.clone() }
    }

    /// From the server; `None` if there is no such object.
    pub async fn get<S: DeserializeOwned>(&self) -> Result<Option<S>> {
        let (kind, key) = self.place().await?;
        let read = pin!(async {
            let asking = Asking::get(self.client.path(&kind, &key)?, false);
            match self.client.judged(&kind, self.client.send(asking, false).await).await {
                Ok(answer) => Ok(Some(answer)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        });
        let answer = self.client.got(|| Discovered::clone(&kind), &key, read).await?;
        let answer = answer.map(|answer| serde_json::from_slice(&answer).map_err(unread(&kind, &key)));
        Ok(answer.transpose()?)
    }

    /// Ask for what this part does, as `eviction` and `token`. The answer may be of another type.
    pub async fn create<S: DeserializeOwned>(&self, body: &(impl Serialize + Sync)) -> Result<S> {
        self.send(Verb::Create, Method::POST, body).await
    }

    /// Replace it.
    pub async fn update<S: Serialize + DeserializeOwned + Sync>(&self, body: &S) -> Result<S> {
        self.send(Verb::Update, Method::PUT, body).await
    }

    /// Change it.
    pub async fn patch<S: DeserializeOwned>(&self, patch: &Patch<impl Serialize + Sync>) -> Result<S> {
        let (kind, key) = self.place().await?;
        let answer = self.client.send_patch(&kind, &key, patch, false).await?;
        Ok(serde_json::from_slice(&answer).map_err(unread(&kind, &key))?)
    }

    async fn send<S: DeserializeOwned>(&self, verb: Verb, method: Method, body: &(impl Serialize + Sync)) -> Result<S> {
        let (kind, key) = self.place().await?;
        let mut asking = Asking::json(method, self.client.path(&kind, &key)?, encode(&kind, &key, body)?);
        asking.query = self.client.0.settings.writing(false).finish();
        let answer = self.client.done(verb, &kind, &key, asking).await?;
        Ok(serde_json::from_slice(&answer).map_err(unread(&kind, &key))?)
    }

    async fn place(&self) -> Result<(Arc<Discovered>, ObjectKey)> {
        let kind = match &self.of {
            Of::Type(kind) => kind.clone(),
            Of::Kind(kind) => self.client.find(kind).await?,
        };
        let key = self.client.0.settings.key(&kind.resource.kind, kind.namespaced, &self.key)?;
        Ok((kind, key))
    }
}

impl fmt::Debug for Subresource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.client.0.settings.subresource;
        f.debug_struct("Subresource").field("key", &self.key).field("name", name).finish_non_exhaustive()
    }
}
