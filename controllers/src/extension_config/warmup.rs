//! Fills the registry at the start.
//!
//! The warmup runs beside the controllers, after the process has become the leader. Until it has
//! completed, the registry is not ready: hooks cannot be called, and the controller does not
//! reconcile.
//!
//! As in Cluster API, it also discovers paused objects and objects that are being deleted. The
//! controller unregisters the latter.

use super::{
    ExtensionConfig,
    client::RuntimeClient,
    discovered::Discoverer,
    options::{Options, WarmupPolicy},
    read_only,
    registry::Registry,
};
use crate::cluster_api::{aggregate, labels::WATCH_FILTER};
use anyhow::{Context as _, Result, anyhow};
use futures::{StreamExt, stream};
use std::{sync::Arc, time::Duration};
use steersman::{cache::Query, manager::RunContext, prelude::*, reconcile::Context};
use tokio::{
    select,
    time::{sleep, timeout},
};
use tracing::{info, warn};

/// Delay between two attempts.
const INTERVAL: Duration = Duration::from_secs(2);
/// Default time limit of all attempts.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Number of extensions that are called at the same time.
pub(super) const MAX_CONCURRENT: usize = 100;

pub(super) struct Warmup {
    pub(super) client: Client,
    pub(super) runtime: RuntimeClient,
    pub(super) options: Options,
}

/// Object that can be registered, or its name and the reason why it cannot.
type Prepared = Result<ExtensionConfig, (String, anyhow::Error)>;

impl Warmup {
    /// Runs the warmup as a task of a manager.
    pub(super) async fn run(self, cx: RunContext) -> Result<()> {
        // Controllers start without waiting for the warmup.
        cx.ready();
        select! {
            () = cx.stopped() => Ok(()),
            result = self.warm_up() => result,
        }
    }

    async fn warm_up(&self) -> Result<()> {
        if self.runtime.registry().is_ready() {
            return Ok(());
        }
        let mut last = None;
        let attempts = async {
            while let Err(error) = self.attempt().await {
                let text = format!("{error:#}");
                warn!(
                    error = text,
                    "warmup of extension registry failed, retrying"
                );
                last = Some(text);
                sleep(INTERVAL).await;
            }
        };
        let limit = self.options.warmup_timeout.unwrap_or(TIMEOUT);
        if timeout(limit, attempts).await.is_ok() {
            info!("extension registry is warmed up");
            return Ok(());
        }
        let last = last.unwrap_or_else(|| "no attempt has completed".into());
        Err(anyhow!(
            "ExtensionConfig registry warmup timed out after {limit:?}: {last}; correct or delete \
             the ExtensionConfigs, or use the warmup policy lenient"
        ))
    }

    async fn attempt(&self) -> Result<()> {
        let list = self
            .list()
            .await
            .context("failed to list ExtensionConfigs")?;
        let prepared: Vec<Prepared> = stream::iter(list)
            .map(|config| self.prepare(config))
            .buffered(MAX_CONCURRENT)
            .collect()
            .await;
        let mut healthy = Vec::new();
        let mut errors = Vec::new();
        for it in prepared {
            match it {
                Ok(config) => healthy.push(config),
                Err((_, error)) if self.options.warmup == WarmupPolicy::Strict => {
                    errors.push(error);
                }
                Err((name, error)) => {
                    let error = format!("{error:#}");
                    warn!(name, error, "extension not registered, controller retries");
                }
            }
        }
        if let Some(error) = aggregate(errors) {
            return Err(error);
        }
        Ok(self.runtime.warm_up(&healthy)?)
    }

    async fn list(&self) -> Result<Vec<Arc<ExtensionConfig>>> {
        let mut query = Query::default().sorted();
        let filter = &self.options.watch_filter;
        if !filter.is_empty() {
            query = query.labels(format!("{WATCH_FILTER}={filter}"))?;
        }
        Ok(self.client.live().list(&query).await?)
    }

    async fn prepare(&self, config: Arc<ExtensionConfig>) -> Prepared {
        let name = config.metadata.name.clone().unwrap_or_default();
        let result = if self.options.read_only {
            let result = read_only::validate(&config).map(|()| (*config).clone());
            result.context("failed to validate ExtensionConfig")
        } else {
            let discoverer = Discoverer {
                client: self.client.clone(),
                runtime: self.runtime.clone(),
            };
            let now = Context::default().now();
            let result = discoverer.discover(&config, (*config).clone(), now).await;
            let result = result.map_err(|failed| failed.error);
            result.with_context(|| format!("failed to reconcile ExtensionConfig {name}"))
        };
        // Checks each object alone, because `warm_up` fails if one cannot be registered.
        let result = result.and_then(|config| {
            Registry::new().warm_up(std::slice::from_ref(&config))?;
            Ok(config)
        });
        result.map_err(|error| (name, error))
    }
}
