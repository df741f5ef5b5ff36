//! Finalizers: what has to be done before an object goes.
//!
//! What holds: nobody else's finalizer is ever added or taken off. Finalizers are a list, which is written as a whole; so it is written with the version
//! that it was read with, and whoever was faster makes it a conflict.

use super::{Client, Result};
use crate::object::{KubeObject, ObjectKey};
use std::sync::Arc;

/// How often `finish` starts again when others write at the same time.
const TRIES: usize = 5;

/// Where an object with a finalizer of ours stands, from [`Client::finalizer`]. Match on it at the top of a reconcile.
#[derive(Clone, Debug)]
#[must_use]
pub enum Finalize<K> {
    /// Not being deleted, and the finalizer is on it.
    Active(Arc<K>),
    /// Being deleted: clean up, then [`Deletion::finish`].
    Deleting(Deletion<K>),
    /// Being deleted, and our part is done.
    Released,
}

/// The right to take our finalizer off.
#[derive(Clone, Debug)]
#[must_use = "the object stays until `finish`"]
pub struct Deletion<K> {
    client: Client,
    object: Arc<K>,
    name: String,
}

impl Client {
    /// Make sure that the finalizer is on the object, or say that it is time to clean up. `name` is `domain/name`.
    ///
    /// It is written once, and needs no request afterwards; a conflict if `object` is not the latest then. Do nothing that needs cleaning up before it is
    /// `Active`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use steersman::{client::Finalize, prelude::*, testing::{Env, TestServer}};
    ///
    /// /// True when the object is done with.
    /// async fn reconcile(client: &Client, key: &ObjectKey) -> anyhow::Result<bool> {
    ///     let Some(map) = client.get::<ConfigMap>(key).await? else { return Ok(true) };
    ///     match client.finalizer(map, "shop.example/account").await? {
    ///         Finalize::Active(_map) => {} // open the account
    ///         Finalize::Deleting(deletion) => {
    ///             // close the account of `deletion.object()`
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
    pub async fn finalizer<K: KubeObject>(&self, object: Arc<K>, name: &str) -> Result<Finalize<K>> {
        let held = has_finalizer(&*object, name);
        if object.meta().deletion_timestamp.is_some() {
            let deletion = || Deletion { client: self.clone(), object, name: name.into() };
            return Ok(if held { Finalize::Deleting(deletion()) } else { Finalize::Released });
        }
        if held {
            return Ok(Finalize::Active(object));
        }
        let kind = self.kind_of(&*object).await?;
        self.no_subresource(&kind)?;
        let mut held = (*object).clone();
        add_finalizer(&mut held, name);
        self.patch_from(&*object, &held).await.map(|object| Finalize::Active(Arc::new(object)))
    }
}

impl<K: KubeObject> Deletion<K> {
    /// What is being deleted, as it was given.
    pub fn object(&self) -> &Arc<K> {
        &self.object
    }

    /// All is cleaned up: take the finalizer off, and let the object go.
    ///
    /// Fine if that was done already or the object is gone. If others write to it at the same time it is read from the server and tried again, a few times;
    /// then it is a conflict.
    pub async fn finish(self) -> Result<()> {
        let Self { client, object, name } = self;
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
                // Not one that has its name by now.
                Some(found) if found.meta().uid == uid => current = found,
                _ => break,
            }
        }
        Ok(())
    }
}

/// Whether an object has a finalizer.
pub fn has_finalizer(object: &impl KubeObject, name: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|known| known == name)
}

/// Put a finalizer on an object in hand, as in [`Client::create_or_patch`]; false if it has it. [`Client::finalizer`] also writes it.
pub fn add_finalizer(object: &mut impl KubeObject, name: &str) -> bool {
    let absent = !has_finalizer(object, name);
    if absent {
        object.meta_mut().finalizers.get_or_insert_default().push(name.into());
    }
    absent
}

/// Take a finalizer off an object in hand; false if it does not have it.
pub fn remove_finalizer(object: &mut impl KubeObject, name: &str) -> bool {
    let present = has_finalizer(object, name);
    let finalizers = &mut object.meta_mut().finalizers;
    if let Some(names) = finalizers {
        names.retain(|known| known != name);
    }
    finalizers.take_if(|names| names.is_empty());
    present
}
