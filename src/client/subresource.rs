//! Subresources whose type differs from that of the object.

use super::{
    Client, Discovered, Patch, Result, Verb,
    read::static_kind,
    wire::{ApiRequest, decode_error, encode},
};
use crate::object::{ObjectKey, StaticKind};
use http::Method;
use kube_core::GroupVersionKind;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, pin::pin, sync::Arc};

/// Subresource with its own type: `scale`, `eviction`, `token`, `binding`.
///
/// [`Client::subresource_of`] and [`Dynamic::subresource_of`](super::Dynamic::subresource_of)
/// create it.
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
    /// Client with the name of the subresource in its settings.
    client: Client,
    kind: ObjectKind,
    key: ObjectKey,
}

#[derive(Clone)]
enum ObjectKind {
    Type(Arc<Discovered>),
    Kind(GroupVersionKind),
}

impl Client {
    /// Returns a subresource whose type differs from that of the object.
    ///
    /// For `status` and others with the type of the object, use [`subresource`](Self::subresource).
    pub fn subresource_of<K: StaticKind>(&self, key: &ObjectKey, name: &str) -> Subresource {
        Subresource {
            client: self.subresource(name),
            kind: ObjectKind::Type(Arc::new(static_kind::<K>())),
            key: key.clone(),
        }
    }
}

impl Subresource {
    pub(super) fn named(
        client: &Client,
        kind: GroupVersionKind,
        key: &ObjectKey,
        name: &str,
    ) -> Self {
        Self {
            client: client.subresource(name),
            kind: ObjectKind::Kind(kind),
            key: key.clone(),
        }
    }

    /// Reads the subresource from the API server; `None` if the object does not exist.
    pub async fn get<S: DeserializeOwned>(&self) -> Result<Option<S>> {
        let (kind, key) = self.resolve().await?;
        let read = pin!(async {
            let request = ApiRequest::get(self.client.path(&kind, &key)?, false);
            match self
                .client
                .classified(&kind, self.client.send(request, false).await)
                .await
            {
                Ok(response) => Ok(Some(response)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        });
        let response = self
            .client
            .intercept_get(|| Discovered::clone(&kind), &key, read)
            .await?;
        let response = response
            .map(|response| serde_json::from_slice(&response).map_err(decode_error(&kind, &key)));
        Ok(response.transpose()?)
    }

    /// Posts to the subresource, such as `eviction` and `token`.
    ///
    /// The response may have another type than the body.
    pub async fn create<S: DeserializeOwned>(&self, body: &(impl Serialize + Sync)) -> Result<S> {
        self.send(Verb::Create, Method::POST, body).await
    }

    /// Replaces the subresource.
    pub async fn update<S: Serialize + DeserializeOwned + Sync>(&self, body: &S) -> Result<S> {
        self.send(Verb::Update, Method::PUT, body).await
    }

    /// Patches the subresource.
    pub async fn patch<S: DeserializeOwned>(
        &self,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<S> {
        let (kind, key) = self.resolve().await?;
        let response = self.client.send_patch(&kind, &key, patch, false).await?;
        Ok(serde_json::from_slice(&response).map_err(decode_error(&kind, &key))?)
    }

    async fn send<S: DeserializeOwned>(
        &self,
        verb: Verb,
        method: Method,
        body: &(impl Serialize + Sync),
    ) -> Result<S> {
        let (kind, key) = self.resolve().await?;
        let mut request = ApiRequest::json(
            method,
            self.client.path(&kind, &key)?,
            encode(&kind, &key, body)?,
        );
        request.query = self.client.0.settings.writing(false).finish();
        let response = self.client.send_write(verb, &kind, &key, request).await?;
        Ok(serde_json::from_slice(&response).map_err(decode_error(&kind, &key))?)
    }

    async fn resolve(&self) -> Result<(Arc<Discovered>, ObjectKey)> {
        let kind = match &self.kind {
            ObjectKind::Type(kind) => kind.clone(),
            ObjectKind::Kind(kind) => self.client.find(kind).await?,
        };
        let key = self
            .client
            .0
            .settings
            .key(&kind.resource.kind, kind.namespaced, &self.key)?;
        Ok((kind, key))
    }
}

impl fmt::Debug for Subresource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.client.0.settings.subresource;
        f.debug_struct("Subresource")
            .field("key", &self.key)
            .field("name", name)
            .finish_non_exhaustive()
    }
}
