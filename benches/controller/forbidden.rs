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
    cache::{Cache, CacheOptions},
    controller::{Controller, ControllerMetrics},
    reconcile::{self, Outcome, Request},
    testing::{Embedded, TestServer},
};
use steersman_apiserver::Fault;

pub(crate) const NAME: &str = "forbidden-neighbour";

/// One of them changes at a time, in turn.
const OBJECTS: usize = 10;
const EVERY: Duration = Duration::from_millis(100);

/// How many reconciles per second a controller of config maps has, ten of which change per second, from its start on, while its watch of secrets is refused;
/// they can be listed. The first reconcile of each does not count: it is of the list.
///
/// Were the list refused too, a controller of ours or of controller-runtime would say so, and not begin.
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
        let (_controller, task) = Controller::builder("bench")
            .cache(&cache)
            .for_::<ConfigMap>()
            .owns::<Secret>()
            .metrics(&metrics)
            .build(reconciler)
            .expect("it can be built");
        tokio::spawn(cache.run_until(std::future::pending()));
        let running = tokio::spawn(task.run_until(tokio::time::sleep(window)));
        running.await.expect("the controller does not panic").expect("it runs");
    });
    let (count, _) = *seen.lock().expect("nobody panics");
    vec![f64::from(count) / window.as_secs_f64()]
}

/// The embedded server, over TLS: everybody may list secrets and nobody may watch them, and a config map changes every 100 ms.
pub(crate) fn serve() {
    runtime().block_on(async {
        let server = Embedded::start().expect("it starts");
        server.server().faults().add(Fault::on("watch secrets").status(403));
        let maps = Api::<ConfigMap>::namespaced(server.client().expect("a client"), "default");
        for number in 0..OBJECTS {
            let metadata = ObjectMeta { name: Some(name(number)), ..ObjectMeta::default() };
            let map = ConfigMap { metadata, ..ConfigMap::default() };
            maps.create(&PostParams::default(), &map).await.expect("it can be created");
        }
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            for number in 0.. {
                ticks.tick().await;
                let patch = Patch::Merge(json!({"data": {"number": number.to_string()}}));
                let patched = maps.patch(&name(number % OBJECTS), &PatchParams::default(), &patch).await;
                patched.expect("it can be changed");
            }
        });
        until_input_ends(&server.kubeconfig().await.expect("a kubeconfig"));
    });
}

fn name(number: usize) -> String {
    format!("object-{number:08}")
}

/// The other threads serve meanwhile.
fn until_input_ends(kubeconfig: &Path) {
    println!("{}", kubeconfig.display());
    tokio::task::block_in_place(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).expect("an input");
}
