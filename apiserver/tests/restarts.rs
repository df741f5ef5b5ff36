//! kube-rs's reflectors across restarts of the program: whatever they had seen, they end with what there is.

use crate::{
    process::{Process, Scratch},
    support::config_map,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        reflector::{self, Store},
        watcher::{self, watcher},
    },
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use std::{collections::BTreeMap, path::Path, time::Duration};
use steersman_testkit::{Seeds, this_test};

async fn connect(kubeconfig: &Path) -> Api<ConfigMap> {
    let read = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.expect("a config");
    Api::default_namespaced(Client::try_from(config).expect("a client"))
}

/// Keep a store for as long as the test runs. After an error it tries again at once.
fn reflect(api: Api<ConfigMap>, config: watcher::Config) -> Store<ConfigMap> {
    let (store, writer) = reflector::store();
    let events = reflector::reflector(writer, watcher(api, config));
    tokio::spawn(events.for_each(|event| async move {
        if event.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }));
    store
}

async fn write(api: &Api<ConfigMap>, random: &mut StdRng) {
    let name = format!("c{}", random.random_range(0..10));
    let answer = match random.random_range(0..3) {
        0 => api.delete(&name, &DeleteParams::default()).await.map(drop),
        1 => {
            api.create(&PostParams::default(), &serde_json::from_value(config_map(&name)).expect("one")).await.map(drop)
        }
        _ => {
            let patch = Patch::Merge(json!({"data": {"k": random.random::<u32>().to_string()}}));
            api.patch(&name, &PatchParams::default(), &patch).await.map(drop)
        }
    };
    // It may be there already, or not.
    assert!(matches!(&answer, Ok(()) | Err(kube::Error::Api(_))), "{answer:?}");
}

/// Names and revisions.
fn world(maps: impl Iterator<Item = impl ResourceExt>) -> BTreeMap<String, Option<String>> {
    maps.map(|map| (map.name_any(), map.resource_version())).collect()
}

#[tokio::test]
async fn soak_reflectors_end_with_what_there_is_after_every_restart() {
    for seed in Seeds::new(this_test!(), 1) {
        restart_ten_times(seed).await;
    }
}

async fn restart_ten_times(seed: u64) {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let data = data.to_str().expect("a path");
    let mut process = Process::start(&scratch, &["--data-dir", data]);
    // The next ones are to be found in the same place.
    let address = process.address().to_string();
    let api = connect(process.kubeconfig()).await;
    let stores = [
        reflect(api.clone(), watcher::Config::default()),
        reflect(api.clone(), watcher::Config::default().streaming_lists()),
    ];
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..10 {
        for _ in 0..20 {
            write(&api, &mut random).await;
        }
        if round % 2 == 0 {
            process.kill();
        } else {
            process.end_by("TERM");
        }
        process = Process::start(&scratch, &["--data-dir", data, "--listen", &address]);
        // A connection of before may still be tried once.
        while api.list(&ListParams::default()).await.is_err() {}
        write(&api, &mut random).await;
        let there = world(api.list(&ListParams::default()).await.expect("a list").items.into_iter());
        let settled = async {
            for store in &stores {
                while world(store.state().iter().map(|map| (**map).clone())) != there {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), settled).await.unwrap_or_else(|_| {
            let seen = stores.each_ref().map(|store| world(store.state().iter().map(|map| (**map).clone())));
            panic!("round {round}: there is {there:?}, seen {seen:?}")
        });
    }
}
