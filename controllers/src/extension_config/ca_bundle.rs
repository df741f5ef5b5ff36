//! Injection of the CA bundle from the Secret that an annotation names.
//!
//! The controller watches only the metadata of Secrets. It reads the annotated Secret from the API
//! server.

use super::{
    ExtensionConfig,
    discovered::{CA_SECRET_INVALID_REASON, CA_SECRET_NOT_FOUND_REASON},
};
use crate::cluster_api::labels::WATCH_FILTER;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt;
use steersman::{
    cache::{CacheError, Index},
    client,
    handler::{self, Handler},
    prelude::*,
};

/// Annotation that names the Secret with the CA bundle, as `<namespace>/<name>`.
///
/// The key `ca.crt` of the Secret becomes `spec.clientConfig.caBundle`.
pub const INJECT_CA_FROM_SECRET: &str = "runtime.cluster.x-k8s.io/inject-ca-from-secret";

/// Key of the CA in the Secret.
const CA_KEY: &str = "ca.crt";

/// Maximum length of a CA bundle in base64, as in the CRD.
const MAX_ENCODED: usize = 51_200;

/// Error of [`injected_ca_bundle`].
#[derive(Debug, thiserror::Error)]
pub(super) enum CaBundleError {
    #[error("secret name {0:?} must be in the form <namespace>/<name>")]
    Name(String),
    #[error("secret {0:?} not found")]
    NotFound(String),
    #[error("secret {0:?} does not contain a {CA_KEY:?} entry")]
    NoEntry(String),
    #[error(
        "secret {secret:?} has a {CA_KEY:?} entry of {bytes} bytes; use at most {} bytes",
        MAX_ENCODED / 4 * 3
    )]
    TooLarge { secret: String, bytes: usize },
    #[error("failed to get secret {secret:?}")]
    Read {
        secret: String,
        source: client::Error,
    },
}

impl CaBundleError {
    /// Returns the reason for the condition; `None` if the Secret could not be read.
    pub(super) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::NotFound(_) => Some(CA_SECRET_NOT_FOUND_REASON),
            Self::Name(_) | Self::NoEntry(_) | Self::TooLarge { .. } => {
                Some(CA_SECRET_INVALID_REASON)
            }
            Self::Read { .. } => None,
        }
    }
}

/// Reads the CA from the annotated Secret. Returns `None` without the annotation.
pub(super) async fn injected_ca_bundle(
    client: &Client,
    config: &ExtensionConfig,
) -> Result<Option<ByteString>, CaBundleError> {
    let Some(secret) = annotation(config) else {
        return Ok(None);
    };
    let key = key(secret).ok_or_else(|| CaBundleError::Name(secret.into()))?;
    let read = client.live().get::<Secret>(&key).await;
    let read = read.map_err(|source| match source {
        client::Error::BadName { .. } => CaBundleError::Name(secret.into()),
        source => CaBundleError::Read {
            secret: secret.into(),
            source,
        },
    })?;
    let read = read.ok_or_else(|| CaBundleError::NotFound(secret.into()))?;
    let ca = read.data.as_ref().and_then(|data| data.get(CA_KEY));
    let ca = ca.ok_or_else(|| CaBundleError::NoEntry(secret.into()))?;
    let bytes = ca.0.len();
    if bytes.div_ceil(3) * 4 > MAX_ENCODED {
        let secret = secret.into();
        return Err(CaBundleError::TooLarge { secret, bytes });
    }
    Ok(Some(ca.clone()))
}

fn annotation(config: &ExtensionConfig) -> Option<&str> {
    let annotations = config.metadata.annotations.as_ref()?;
    annotations.get(INJECT_CA_FROM_SECRET).map(String::as_str)
}

/// Returns the key of the annotated Secret.
fn key(secret: &str) -> Option<ObjectKey> {
    let (namespace, name) = secret.split_once('/')?;
    let is_valid = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    is_valid.then(|| ObjectKey::new(namespace, name))
}

/// Index of the `ExtensionConfig`s by their annotated Secret.
pub(super) struct Referrers(Index<ExtensionConfig, String>);

impl Referrers {
    /// Creates the index. An object is in it only if it matches the watch filter.
    pub(super) fn new(
        cache: &Cache,
        configs: Select<ExtensionConfig>,
        watch_filter: String,
    ) -> Result<Self, CacheError> {
        let informer = cache.informer_of(configs)?;
        let secrets = move |config: &ExtensionConfig| {
            let label = config.labels().get(WATCH_FILTER);
            let is_watched = watch_filter.is_empty() || label == Some(&watch_filter);
            let secret = annotation(config).filter(|_| is_watched);
            secret.map(str::to_owned).into_iter().collect()
        };
        Ok(Self(informer.index(secrets)))
    }

    /// Returns a handler that enqueues the `ExtensionConfig`s of a Secret.
    pub(super) fn of_secret(self) -> impl Handler<Metadata<Secret>, Request> {
        handler::map(move |secret: &Object<Metadata<Secret>>| {
            let namespace = secret.namespace().unwrap_or_default();
            self.0.keys(&format!("{namespace}/{}", secret.name()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_needs_a_namespace_and_a_name() {
        assert_eq!(key("capi/ca"), Some(ObjectKey::new("capi", "ca")));
        for text in ["", "ca", "/ca", "capi/", "/", "capi/ca/more"] {
            assert_eq!(key(text), None, "{text}");
        }
    }
}
