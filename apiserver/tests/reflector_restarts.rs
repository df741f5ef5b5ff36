//! kube-rs reflectors across restarts of the binary: after each restart their stores converge to
//! the objects on the server.

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
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .expect("a config");
    Api::default_namespaced(Client::try_from(config).expect("a client"))
}

/// Starts a reflector that runs until the end of the test. It retries errors after 5 ms.
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
    let result = match random.random_range(0..3) {
        0 => api.delete(&name, &DeleteParams::default()).await.map(drop),
        1 => api
            .create(
                &PostParams::default(),
                &serde_json::from_value(config_map(&name)).expect("a config map"),
            )
            .await
            .map(drop),
        _ => {
            let patch = Patch::Merge(json!({"data": {"k": random.random::<u32>().to_string()}}));
            api.patch(&name, &PatchParams::default(), &patch)
                .await
                .map(drop)
        }
    };
    // 404 and 409 are expected: the object may or may not exist.
    assert!(
        matches!(&result, Ok(()) | Err(kube::Error::Api(_))),
        "{result:?}"
    );
}

/// Returns the resource version of each object by name.
fn versions_by_name(
    maps: impl Iterator<Item = impl ResourceExt>,
) -> BTreeMap<String, Option<String>> {
    maps.map(|map| (map.name_any(), map.resource_version()))
        .collect()
}

#[tokio::test]
async fn soak_reflectors_converge_after_every_restart() {
    for seed in Seeds::new(this_test!(), 1) {
        restart_ten_times(seed).await;
    }
}

async fn restart_ten_times(seed: u64) {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let data = data.to_str().expect("a path");
    let mut process = Process::start(&scratch, &["--data-dir", data]);
    // Restarted processes listen on the same address.
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
            process.signal_and_wait("TERM");
        }
        process = Process::start(&scratch, &["--data-dir", data, "--listen", &address]);
        // The client may still try a connection to the old process.
        while api.list(&ListParams::default()).await.is_err() {}
        write(&api, &mut random).await;
        let expected = versions_by_name(
            api.list(&ListParams::default())
                .await
                .expect("a list")
                .items
                .into_iter(),
        );
        let settled = async {
            for store in &stores {
                while versions_by_name(store.state().iter().map(|map| (**map).clone())) != expected
                {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), settled)
            .await
            .unwrap_or_else(|_| {
                let seen = stores
                    .each_ref()
                    .map(|store| versions_by_name(store.state().iter().map(|map| (**map).clone())));
                panic!("round {round}: expected {expected:?}, stores {seen:?}")
            });
    }
}
