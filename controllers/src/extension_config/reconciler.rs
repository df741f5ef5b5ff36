//! One reconcile of an `ExtensionConfig`.
//!
//! Steps:
//! 1. Before the warmup has completed, requeue the request and read nothing.
//! 2. If the object is deleted, unregister its handlers, also if it is paused.
//! 3. If the object is paused, only write its condition `Paused`. Its handlers stay registered.
//! 4. Discover and register the handlers. After a failure, earlier handlers stay registered.
//!
//! The read-only mode replaces steps 3 and 4: it registers the handlers in the status, unless the
//! status reports a pause.

use super::{ExtensionConfig, client::RuntimeClient, discovered::Discoverer, read_only};
use crate::cluster_api::ensure_paused;
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use std::time::Duration;
use steersman::{
    prelude::*,
    reconcile::{Context, Failure, Result},
};
use tracing::{debug, info};

/// Delay of a reconcile before the warmup has completed.
const NOT_READY_DELAY: Duration = Duration::from_secs(10);

pub(super) struct ExtensionConfigReconciler {
    pub(super) client: Client,
    pub(super) runtime: RuntimeClient,
    pub(super) read_only: bool,
    /// Keeps the informer alive that the runtime client reads.
    pub(super) _namespaces: Informer<Metadata<Namespace>>,
}

impl Reconciler for ExtensionConfigReconciler {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        if !self.runtime.registry().is_ready() {
            return Ok(Outcome::requeue_after(NOT_READY_DELAY));
        }
        let read = self.client.get::<ExtensionConfig>(&request).await?;
        let Some(read) = read.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            info!(name = request.name(), "unregistering extension handlers");
            self.runtime.unregister(request.name())?;
            return Ok(Outcome::done());
        };
        if self.read_only {
            if read_only::is_paused(&read) {
                return Ok(Outcome::done());
            }
            read_only::validate(&read).context("failed to validate ExtensionConfig")?;
            return self.register(&read);
        }
        let mut config = (*read).clone();
        let paused = ensure_paused(&self.client, None, &mut config, cx.now()).await?;
        if paused.ends_reconcile() {
            return Ok(Outcome::done());
        }
        let discoverer = Discoverer {
            client: self.client.clone(),
            runtime: self.runtime.clone(),
        };
        match discoverer.discover(&read, config, cx.now()).await {
            Ok(config) => self.register(&config),
            Err(failed) => {
                let error = failed.error.context("failed to reconcile ExtensionConfig");
                if failed.is_permanent {
                    return Err(Failure::terminal(error).into());
                }
                Err(error)
            }
        }
    }
}

impl ExtensionConfigReconciler {
    fn register(&self, config: &ExtensionConfig) -> Result<Outcome> {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        debug!(name, "registering extension handlers");
        self.runtime.register(config)?;
        Ok(Outcome::done())
    }
}
