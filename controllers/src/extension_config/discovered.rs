//! Discovers the handlers of an `ExtensionConfig` and writes the result to its status.
//!
//! The reconciler and the warmup use it. It has four steps:
//! 1. Validate the spec. Nothing is sent to an invalid address.
//! 2. Write the CA of the annotated Secret to the spec. The conditions then report the generation
//!    of this write.
//! 3. Call the extension.
//! 4. Write handlers and conditions in one patch, so that a reader never sees the condition of one
//!    discovery with the handlers of another.
//!
//! Invariant: a result that is equal to the status causes no write. Therefore no message contains
//! a part that changes between attempts.

use super::{
    ExtensionConfig, ExtensionHandler, admission,
    ca_bundle::{CaBundleError, injected_ca_bundle},
    client::RuntimeClient,
};
use crate::cluster_api::{
    PatchHelper, PatchOptions, Severity, aggregate,
    conditions::{self, PAUSED},
    deprecated,
};
use anyhow::Context as _;
use k8s_openapi::{ByteString, jiff::Timestamp};
use steersman::{
    conditions::{Status, new},
    prelude::*,
};
use tracing::debug;

/// Type of the condition that reports whether the handlers are known.
pub const DISCOVERED: &str = "Discovered";
/// Reason of the condition `Discovered` after a successful discovery.
pub const DISCOVERED_REASON: &str = "Discovered";
/// Reason of the condition `Discovered` if the spec is invalid or the discovery failed.
pub const NOT_DISCOVERED_REASON: &str = "NotDiscovered";
/// Reason of the condition `Discovered` if the annotated Secret does not exist.
pub const CA_SECRET_NOT_FOUND_REASON: &str = "CASecretNotFound";
/// Reason of the condition `Discovered` if the annotated Secret has no usable CA.
pub const CA_SECRET_INVALID_REASON: &str = "CASecretInvalid";
/// Reason of the deprecated condition `Discovered`, for every failure.
const DISCOVERY_FAILED_REASON: &str = "DiscoveryFailed";

/// Maximum length of a condition's message, in bytes.
///
/// The CRD limits messages of deprecated conditions to 10240 characters.
const MAX_MESSAGE: usize = 10_000;

/// Discovers handlers and writes the status.
#[derive(Clone)]
pub(super) struct Discoverer {
    pub(super) client: Client,
    pub(super) runtime: RuntimeClient,
}

/// Error of a discovery.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: anyhow::Error,
    /// Whether a retry fails in the same way until the object changes.
    pub(super) is_permanent: bool,
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            is_permanent: false,
        }
    }
}

impl Discoverer {
    /// Discovers the handlers of `config` and writes the result.
    ///
    /// `before` is the object as it was read, and `config` has the changes of the reconcile so far.
    /// Returns the object with its new status.
    pub(super) async fn discover(
        &self,
        before: &ExtensionConfig,
        mut config: ExtensionConfig,
        now: Timestamp,
    ) -> Result<ExtensionConfig, Failed> {
        let mut helper = PatchHelper::new(&self.client, before);
        if let Err(invalid) = admission::validate(&config) {
            set_failed(
                &mut config,
                NOT_DISCOVERED_REASON,
                &invalid.to_string(),
                now,
            );
            self.write(&helper, &config).await?;
            return Err(Failed {
                error: invalid.into(),
                is_permanent: true,
            });
        }
        match injected_ca_bundle(&self.client, &config).await {
            Ok(None) => {}
            Ok(Some(ca_bundle)) => {
                if let Some(patched) = self.inject(&config, ca_bundle).await? {
                    helper = PatchHelper::new(&self.client, &patched);
                    config = with_paused_of(&config, patched);
                }
            }
            Err(error) => return Err(self.report_ca_error(&helper, config, error, now).await),
        }
        let name = config.metadata.name.as_deref().unwrap_or_default();
        debug!(name, "discovering handlers");
        let result = match self.runtime.discover(&config).await {
            Ok(handlers) => {
                let known = &mut config.status.get_or_insert_default().handlers;
                // The replicas of an extension can list their handlers in different orders.
                if !has_same_handlers(known, &handlers) {
                    *known = handlers;
                }
                set_discovered(&mut config, now);
                Ok(())
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                let message = format!("Error in discovery: {error:#}");
                set_failed(&mut config, NOT_DISCOVERED_REASON, &message, now);
                Err(error)
            }
        };
        let written = self.write(&helper, &config).await;
        match aggregate([result, written].into_iter().filter_map(Result::err)) {
            Some(error) => Err(error.into()),
            None => Ok(config),
        }
    }

    /// Writes the CA to the spec. Returns the new object; `None` if the spec has this CA already.
    async fn inject(
        &self,
        config: &ExtensionConfig,
        ca_bundle: ByteString,
    ) -> anyhow::Result<Option<ExtensionConfig>> {
        // An empty and an absent bundle both mean the CAs of the system.
        let ca_bundle = Some(ca_bundle).filter(|it| !it.0.is_empty());
        if config.spec.client_config.ca_bundle == ca_bundle {
            return Ok(None);
        }
        let mut changed = config.clone();
        changed.spec.client_config.ca_bundle = ca_bundle;
        let name = config.metadata.name.as_deref().unwrap_or_default();
        debug!(name, "injecting CA bundle");
        // The patch contains only the bundle, so it need not fail if the object has changed.
        let client = self.client.optimistic_lock(false);
        let patched = client.patch_from(config, &changed).await;
        let patched = patched.with_context(|| format!("failed to patch ExtensionConfig {name}"))?;
        Ok(Some(patched))
    }

    /// Writes a missing or invalid CA to the status. Returns all errors, also those not written.
    async fn report_ca_error(
        &self,
        helper: &PatchHelper<ExtensionConfig>,
        mut config: ExtensionConfig,
        error: CaBundleError,
        now: Timestamp,
    ) -> Failed {
        let reason = error.reason();
        let error = anyhow::Error::from(error).context("failed to reconcile caBundle");
        let Some(reason) = reason else {
            return error.into();
        };
        set_failed(&mut config, reason, &format!("{error:#}"), now);
        let written = self.write(helper, &config).await.err();
        // Is `Some`, because there is at least one error.
        let error = aggregate([Some(error), written].into_iter().flatten());
        error
            .unwrap_or_else(|| anyhow::anyhow!("failed to reconcile caBundle"))
            .into()
    }

    async fn write(
        &self,
        helper: &PatchHelper<ExtensionConfig>,
        config: &ExtensionConfig,
    ) -> anyhow::Result<()> {
        let options = PatchOptions {
            owned: &[DISCOVERED, PAUSED],
            owned_deprecated: &[DISCOVERED],
            joined_status: true,
            ..PatchOptions::default()
        };
        Ok(helper.patch(config, &options).await?)
    }
}

/// Returns `patched` with the condition `Paused` of `config`, for the generation of `patched`.
fn with_paused_of(config: &ExtensionConfig, mut patched: ExtensionConfig) -> ExtensionConfig {
    if let Some(paused) = conditions::find(config, PAUSED) {
        conditions::set(&mut patched, paused.clone());
    }
    patched
}

/// Returns whether two lists have the same handlers, in any order. Their names are unique.
fn has_same_handlers(one: &[ExtensionHandler], other: &[ExtensionHandler]) -> bool {
    one.len() == other.len() && one.iter().all(|handler| other.contains(handler))
}

fn set_discovered(config: &mut ExtensionConfig, now: Timestamp) {
    let condition = new(DISCOVERED, Status::True, DISCOVERED_REASON, "", now);
    conditions::set(config, condition);
    deprecated::mark_true(config, DISCOVERED, now);
}

fn set_failed(config: &mut ExtensionConfig, reason: &str, message: &str, now: Timestamp) {
    let message = shortened(message);
    let condition = new(DISCOVERED, Status::False, reason, &*message, now);
    conditions::set(config, condition);
    let (reason, severity) = (DISCOVERY_FAILED_REASON, Severity::Error);
    deprecated::mark_false(config, DISCOVERED, reason, severity, message, now);
}

/// Returns the text, cut to [`MAX_MESSAGE`] bytes.
fn shortened(message: &str) -> String {
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MAX_MESSAGE - "...".len());
    format!("{}...", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&format!("a{}", "é".repeat(MAX_MESSAGE)));
        assert!(
            cut.len() <= MAX_MESSAGE && cut.len() > MAX_MESSAGE - 3,
            "{}",
            cut.len()
        );
        assert!(cut.ends_with("é..."), "{}", &cut[cut.len() - 10..]);
    }
}
