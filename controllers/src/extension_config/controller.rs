//! The function that adds the controller to a manager.

use super::{
    ExtensionConfig,
    ca_bundle::Referrers,
    client::RuntimeClient,
    failure_reports::NotFailureReport,
    options::Options,
    reconciler::ExtensionConfigReconciler,
    warmup::{self, Warmup},
};
use crate::cluster_api::predicates::{Changed, HasFilterLabel};
use k8s_openapi::api::core::v1::Secret;
use std::time::Duration;
use steersman::{
    builder::BuildError,
    cache::CacheError,
    controller,
    event::Event,
    manager::{ManagerError, ManagerHandle, RunContext, Stage},
    predicate::{self, Predicate},
    prelude::*,
    workqueue::Limiter,
};
use tokio::select;

/// Error of [`add_to`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An informer could not be declared.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The controller cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The manager rejected the controller or the warmup.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// Time limit of a reconcile.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Interval at which each extension is discovered again.
const RESYNC: Duration = Duration::from_mins(10);

/// Adds the controller to a manager, under the name `extension-config`, and the warmup.
///
/// The CRD of `ExtensionConfig` must be installed. Build `client` with the client of the manager,
/// and pass clones of it to the controllers that call hooks. They can wait for the warmup with
/// [`registry().ready()`](super::Registry::ready).
///
/// The manager reloads the client certificate of `client`, and caches the metadata of Namespaces.
pub fn add_to(
    manager: &ManagerHandle,
    client: RuntimeClient,
    options: &Options,
) -> Result<Controller, Error> {
    let configs = Select::<ExtensionConfig>::new().resync(RESYNC);
    let is_watched = HasFilterLabel(options.watch_filter.clone());
    // In the read-only mode, another process reports failures.
    let read_only = options.read_only;
    let accepts = move |event: &Event<ExtensionConfig>| {
        is_watched.accepts(event) && (read_only || NotFailureReport.accepts(event))
    };
    let builder = manager
        .controller("extension-config")
        .for_with(configs.clone().filter(predicate::from_fn(accepts)))
        .limiter(limiter())
        .options(controller::Options {
            max_concurrent: Some(options.workers.unwrap_or(warmup::MAX_CONCURRENT)),
            reconcile_timeout: Some(TIMEOUT),
            ..controller::Options::default()
        });
    let builder = if options.read_only {
        builder
    } else {
        let referrers = Referrers::new(&manager.cache(), configs, options.watch_filter.clone())?;
        let secrets = Select::<Metadata<Secret>>::new().filter(Changed);
        builder.watches_with(secrets, referrers.of_secret())
    };
    let controller = builder.reconcile(ExtensionConfigReconciler {
        client: manager.client(),
        runtime: client.clone(),
        read_only: options.read_only,
        _namespaces: manager.cache().informer()?,
    })?;
    if let Some(certificate) = client.client_certificate().cloned() {
        let reload = async move |cx: RunContext| {
            cx.ready();
            select! {
                () = cx.stopped() => {}
                () = certificate.run() => {}
            }
            Ok(())
        };
        manager.add(Stage::Other, "client certificate of extensions", reload)?;
    }
    let warmup = Warmup {
        client: manager.client(),
        runtime: client,
        options: options.clone(),
    };
    manager.add(Stage::Leader, "extension-config warmup", |cx| {
        warmup.run(cx)
    })?;
    Ok(controller)
}

/// Returns the limiter of retries, with the delays of Cluster API.
///
/// They start at 1 s plus 5 ms, double with each attempt, and end at 1000 s.
fn limiter() -> Limiter<Request> {
    let base = Duration::from_secs(1);
    let doubled = Limiter::exponential(Duration::from_millis(5), Duration::from_secs(999));
    Limiter::new(move |key, attempt, now| base + doubled.delay(key, attempt, now))
}
