//! A controller with two watches, one of which is forbidden.
//!
//! `KUBECONFIG` names the server, which is our bench executable with `--serve`.

use crate::{pick, runtime};
use anyhow::Result;
use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::{Api, Client, ResourceExt};
use kube_runtime::{
    Controller,
    controller::{Action, Config},
    watcher,
};
use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Reconciles per second of a config map that changes ten times per second, while the controller
/// may neither list nor watch secrets.
///
/// The first reconcile of each object comes from the list and is not counted. Changes that wait
/// together are reconciled once, so delays lower the rate.
pub(crate) fn neighbour(quick: bool) -> Result<Vec<f64>> {
    let window = Duration::from_secs(pick(quick, 10, 30));
    let count = Arc::new(AtomicUsize::new(0));
    runtime()?.block_on(async {
        let client = Client::try_default().await?;
        let reconcile = {
            let (count, mut seen) = (count.clone(), HashSet::new());
            move |object: Arc<ConfigMap>, _: Arc<()>| {
                if !seen.insert(object.name_any()) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                future::ready(Ok::<_, Infallible>(Action::await_change()))
            }
        };
        let controller = Controller::new(
            Api::<ConfigMap>::all(client.clone()),
            watcher::Config::default(),
        )
        .owns(Api::<Secret>::all(client), watcher::Config::default())
        .with_config(Config::default().concurrency(1))
        .run(reconcile, |_, _, _| Action::await_change(), Arc::new(()));
        let running = tokio::spawn(controller.for_each(|_| future::ready(())));
        tokio::time::sleep(window).await;
        running.abort();
        Ok(vec![
            count.load(Ordering::Relaxed) as f64 / window.as_secs_f64(),
        ])
    })
}
