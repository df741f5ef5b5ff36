//! A controller with two watches, one of which is forbidden.

use crate::{pick, runtime};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Config,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use steersman::{
    cache::{Cache, CacheOptions, Select},
    controller::{Controller, ControllerMetrics, WatchHandle, WatchState},
    reconcile::{self, Outcome, Request},
    testing::{Embedded, TestServer},
};
use steersman_apiserver::Fault;

pub(crate) const NAME: &str = "forbidden-neighbour";

/// Name of the config map that changes.
const MAP: &str = "changes";
/// Interval of the changes.
const EVERY: Duration = Duration::from_millis(100);

/// Reconciles per second of a config map that changes ten times per second, while the controller
/// may neither list nor watch secrets.
///
/// The first reconcile of each object comes from the list and is not counted. Changes that wait in
/// the queue together are reconciled once, so delays lower the rate. The watch of secrets is
/// optional, because the controller would not start otherwise, as in controller-runtime.
pub(crate) fn neighbour(quick: bool) -> Vec<f64> {
    let window = Duration::from_secs(pick(quick, 10, 30));
    let seen = Arc::new(Mutex::new((0_u32, HashSet::new())));
    runtime().block_on(async {
        let config = Config::infer()
            .await
            .expect("KUBECONFIG is set to the output of `--serve`");
        let cache = Cache::new(config, CacheOptions::default()).expect("a client");
        let reconciler = {
            let seen = seen.clone();
            reconcile::from_fn(move |request: Request, _cx| {
                let (count, names) = &mut *seen.lock().expect("no reconcile panics");
                *count += u32::from(!names.insert(request));
                std::future::ready(Ok(Outcome::done()))
            })
        };
        let metrics = ControllerMetrics::default();
        let (controller, task) = Controller::builder("bench")
            .cache(&cache)
            .for_::<ConfigMap>()
            .owns_with(Select::<Secret>::new().optional())
            .metrics(&metrics)
            .build(reconciler)
            .expect("a valid controller");
        tokio::spawn(cache.run_until(std::future::pending()));
        let stop = async move {
            tokio::time::sleep(window).await;
            let is_degraded =
                |watch: WatchHandle| matches!(watch.state(), WatchState::Degraded { .. });
            assert!(
                controller.watches().into_iter().any(is_degraded),
                "no watch is forbidden"
            );
        };
        let running = tokio::spawn(task.run_until(stop));
        running
            .await
            .expect("the controller does not panic")
            .expect("the controller does not fail");
    });
    let (count, _) = *seen.lock().expect("no reconcile panics");
    vec![f64::from(count) / window.as_secs_f64()]
}

/// Runs the embedded server over TLS. It forbids to list and watch secrets, and changes a config
/// map every 100 ms.
pub(crate) fn serve() {
    runtime().block_on(async {
        let server = Embedded::start().expect("the server starts");
        for verb in ["list", "watch"] {
            server
                .server()
                .faults()
                .add(Fault::on(&format!("{verb} secrets")).status(403));
        }
        let maps = Api::<ConfigMap>::namespaced(server.client().expect("a client"), "default");
        let metadata = ObjectMeta {
            name: Some(MAP.into()),
            ..ObjectMeta::default()
        };
        let map = ConfigMap {
            metadata,
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map)
            .await
            .expect("the config map is created");
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            for number in 0_u64.. {
                ticks.tick().await;
                let patch = Patch::Merge(json!({"data": {"number": number.to_string()}}));
                maps.patch(MAP, &PatchParams::default(), &patch)
                    .await
                    .expect("the config map is patched");
            }
        });
        wait_until_stdin_closes(&server.kubeconfig().await.expect("a kubeconfig"));
    });
}

/// Prints the path and blocks this thread. The other threads serve requests.
fn wait_until_stdin_closes(kubeconfig: &Path) {
    println!("{}", kubeconfig.display());
    tokio::task::block_in_place(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .expect("standard input is readable");
}
