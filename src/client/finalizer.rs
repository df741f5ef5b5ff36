//! Finalizers: cleanup before an object is deleted.
//!
//! Invariant: finalizers of other controllers are never added or removed. The list of finalizers is
//! written as a whole, with the resource version that was read, so a concurrent write is a
//! conflict.

use super::{Client, Result};
use crate::object::{KubeObject, ObjectKey};
use std::sync::Arc;

/// Attempts of `finish` if other clients write concurrently.
const TRIES: usize = 5;

/// State of an object with a finalizer, returned by [`Client::finalizer`].
///
/// Match on it at the start of a reconcile.
#[derive(Clone, Debug)]
#[must_use]
pub enum Finalize<K> {
    /// The object has the finalizer and is not being deleted.
    Active(Arc<K>),
    /// The object is being deleted: clean up, then call [`Deletion::finish`].
    Deleting(Deletion<K>),
    /// The object is being deleted and does not have the finalizer any more.
    Released,
}

/// Pending cleanup of an object that is being deleted.
#[derive(Clone, Debug)]
#[must_use = "the object stays until `finish`"]
pub struct Deletion<K> {
    client: Client,
    object: Arc<K>,
    name: String,
}

impl Client {
    /// Adds a finalizer to the object, or reports that it is time to clean up.
    ///
    /// `name` has the form `domain/name`. Do not create anything that needs cleanup before the
    /// result is `Active`.
    ///
    /// Only the first call sends a request. It fails with a conflict if `object` is not the latest
    /// version.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use steersman::{client::Finalize, prelude::*, testing::{Env, TestServer}};
    ///
    /// /// Returns whether the object needs no further work.
    /// async fn reconcile(client: &Client, key: &ObjectKey) -> anyhow::Result<bool> {
    ///     let Some(map) = client.get::<ConfigMap>(key).await? else { return Ok(true) };
    ///     match client.finalizer(map, "shop.example/account").await? {
    ///         Finalize::Active(_map) => {} // Open the account.
    ///         Finalize::Deleting(deletion) => {
    ///             // Close the account of `deletion.object()`.
    ///             deletion.finish().await?;
    ///         }
    ///         Finalize::Released => return Ok(true),
    ///     }
    ///     Ok(false)
    /// }
    ///
    /// let client = Client::new(Env::embedded()?.client()?)?;
    /// let key = ObjectKey::new("default", "customer");
    /// let customer = serde_json::json!({"metadata": {"namespace": "default", "name": "customer"}});
    /// client.create::<ConfigMap>(&serde_json::from_value(customer)?).await?;
    /// assert!(!reconcile(&client, &key).await?);
    /// client.delete::<ConfigMap>(&key).await?;
    /// assert!(client.get::<ConfigMap>(&key).await?.is_some(), "the account is open");
    /// assert!(!reconcile(&client, &key).await?);
    /// assert!(reconcile(&client, &key).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn finalizer<K: KubeObject>(
        &self,
        object: Arc<K>,
        name: &str,
    ) -> Result<Finalize<K>> {
        let held = has_finalizer(&*object, name);
        if object.meta().deletion_timestamp.is_some() {
            let deletion = || Deletion {
                client: self.clone(),
                object,
                name: name.into(),
            };
            return Ok(if held {
                Finalize::Deleting(deletion())
            } else {
                Finalize::Released
            });
        }
        if held {
            return Ok(Finalize::Active(object));
        }
        let kind = self.kind_of(&*object).await?;
        self.no_subresource(&kind)?;
        let mut held = (*object).clone();
        add_finalizer(&mut held, name);
        self.patch_from(&*object, &held)
            .await
            .map(|object| Finalize::Active(Arc::new(object)))
    }
}

impl<K: KubeObject> Deletion<K> {
    /// Returns the object that was passed to [`Client::finalizer`].
    pub fn object(&self) -> &Arc<K> {
        &self.object
    }

    /// Removes the finalizer after the cleanup, so that the object can be deleted.
    ///
    /// Succeeds if the finalizer or the object is already gone. After a conflict, it reads the
    /// object from the API server and retries, up to five attempts in total.
    pub async fn finish(self) -> Result<()> {
        let Self {
            client,
            object,
            name,
        } = self;
        let kind = client.kind_of(&*object).await?;
        client.no_subresource(&kind)?;
        let (key, uid) = (ObjectKey::of(&*object), object.meta().uid.clone());
        let mut current = object;
        for tries_left in (0..TRIES).rev() {
            let mut released = (*current).clone();
            if !remove_finalizer(&mut released, &name) {
                break;
            }
            match client.patch_from(&*current, &released).await {
                Ok(_) => break,
                Err(error) if error.is_not_found() => break,
                Err(error) if error.is_conflict() && tries_left > 0 => {}
                Err(error) => return Err(error),
            }
            match client.get_live::<K>(&kind, &key).await? {
                // Skip a new object of the same name.
                Some(found) if found.meta().uid == uid => current = found,
                _ => break,
            }
        }
        Ok(())
    }
}

/// Returns whether an object has a finalizer.
pub fn has_finalizer(object: &impl KubeObject, name: &str) -> bool {
    object
        .meta()
        .finalizers
        .iter()
        .flatten()
        .any(|known| known == name)
}

/// Adds a finalizer to an object in memory; returns false if it is present.
///
/// Use it in [`Client::create_or_patch`]. [`Client::finalizer`] also writes the object.
pub fn add_finalizer(object: &mut impl KubeObject, name: &str) -> bool {
    let absent = !has_finalizer(object, name);
    if absent {
        object
            .meta_mut()
            .finalizers
            .get_or_insert_default()
            .push(name.into());
    }
    absent
}

/// Removes a finalizer from an object in memory; returns false if not present.
pub fn remove_finalizer(object: &mut impl KubeObject, name: &str) -> bool {
    let present = has_finalizer(object, name);
    let finalizers = &mut object.meta_mut().finalizers;
    if let Some(names) = finalizers {
        names.retain(|known| known != name);
    }
    finalizers.take_if(|names| names.is_empty());
    present
}
