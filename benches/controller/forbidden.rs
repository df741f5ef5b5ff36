//! A watch that is forbidden beside one that is not.

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

/// The config map that changes, and how often.
const MAP: &str = "changes";
const EVERY: Duration = Duration::from_millis(100);

/// How many reconciles per second a controller of config maps has, one of which changes ten times per second, from its start on, while it may neither list nor
/// watch secrets. The first reconcile of each does not count: it is of the list. What comes late comes as one: changes that wait together are reconciled once.
///
/// Its start does not wait for the secrets: otherwise it would not begin, as controller-runtime's does not, and say why.
pub(crate) fn neighbour(quick: bool) -> Vec<f64> {
    let window = Duration::from_secs(pick(quick, 10, 30));
    let seen = Arc::new(Mutex::new((0_u32, HashSet::new())));
    runtime().block_on(async {
        let config = Config::infer().await.expect("KUBECONFIG names the server: see `--serve`");
        let cache = Cache::new(config, CacheOptions::default()).expect("a client");
        let reconciler = {
            let seen = seen.clone();
            reconcile::from_fn(move |request: Request, _cx| {
                let (count, names) = &mut *seen.lock().expect("nobody panics");
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
            .expect("it can be built");
        tokio::spawn(cache.run_until(std::future::pending()));
        let over = async move {
            tokio::time::sleep(window).await;
            let refused = |watch: WatchHandle| matches!(watch.state(), WatchState::Degraded { .. });
            assert!(controller.watches().into_iter().any(refused), "nothing is forbidden here");
        };
        let running = tokio::spawn(task.run_until(over));
        running.await.expect("the controller does not panic").expect("it runs");
    });
    let (count, _) = *seen.lock().expect("nobody panics");
    vec![f64::from(count) / window.as_secs_f64()]
}

/// The embedded server, over TLS: nobody may list or watch secrets, and a config map changes every 100 ms.
pub(crate) fn serve() {
    runtime().block_on(async {
        let server = Embedded::start().expect("it starts");
        for verb in ["list", "watch"] {
            server.server().faults().add(Fault::on(&format!("{verb} secrets")).status(403));
        }
        let maps = Api::<ConfigMap>::namespaced(server.client().expect("a client"), "default");
        let metadata = ObjectMeta { name: Some(MAP.into()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        maps.create(&PostParams::default(), &map).await.expect("it can be created");
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            for number in 0_u64.. {
                ticks.tick().await;
                let patch = Patch::Merge(json!({"data": {"number": number.to_string()}}));
                maps.patch(MAP, &PatchParams::default(), &patch).await.expect("it can be changed");
            }
        });
        until_input_ends(&server.kubeconfig().await.expect("a kubeconfig"));
    });
}

/// The other threads serve meanwhile.
fn until_input_ends(kubeconfig: &Path) {
    println!("{}", kubeconfig.display());
    tokio::task::block_in_place(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).expect("an input");
}
