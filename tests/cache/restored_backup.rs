//! Tests of a server that was restored from a backup and reassigns revisions.

use super::{
    faulty_network::FaultyNetwork,
    support::{Running, create_map, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use steersman::{
    cache::{Cache, CacheOptions, InformerEvent, Query, Select},
    event::Event,
    object::ObjectKey,
};
use steersman_apiserver::{ApiServer, Options};

async fn paint(client: Client, color: &str) -> Option<String> {
    let (api, patch) = (
        Api::<ConfigMap>::namespaced(client, "default"),
        json!({"data": {"color": color}}),
    );
    let painted = api
        .patch("painted", &PatchParams::default(), &Patch::Merge(patch))
        .await;
    painted.expect("exists").metadata.resource_version
}

fn color_of(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("color").map(String::as_str)
}

#[tokio::test(start_paused = true)]
async fn an_object_with_a_reassigned_resource_version_is_updated() {
    for select in [
        Select::<ConfigMap>::new(),
        Select::<ConfigMap>::new().compact(),
    ] {
        let network = FaultyNetwork::new(
            ApiServer::new(Options::default()).expect("the server starts"),
            0,
        );
        network.set_reliable(true);
        let cache = Running::new(
            Cache::new(network.client(), CacheOptions::default()).expect("a ready client"),
        );
        let maps = cache.informer_of(select).expect("the informer is declared");
        create_map(&network.direct_client(), "default", "painted", "blue").await;
        let backup = network.server().fork();
        let lost = paint(network.direct_client(), "lost").await;
        create_map(&network.direct_client(), "default", "other", "blue").await;
        maps.await_synced().await.expect("synced");
        until(|| maps.list(&Query::default()).expect("synced").len() == 2).await;
        let mut events = maps.events();
        while !matches!(
            events.next().await.expect("the cache runs"),
            InformerEvent::Synced
        ) {}

        let restored = paint(Client::new(backup.service(), "default"), "restored").await;
        assert_eq!(lost, restored, "the same version of two objects");
        network.replace(backup);
        until(|| maps.resource_version() == Some(network.server().revision())).await;
        let painted = maps
            .get(&ObjectKey::new("default", "painted"))
            .expect("synced")
            .expect("exists");
        assert_eq!(color_of(&painted), Some("restored"));
        loop {
            let InformerEvent::Event(event) = events.next().await.expect("the cache runs") else {
                continue;
            };
            let Event::Update { old, new } = event else {
                continue;
            };
            if new.name() == "painted" {
                let [old, new] = [old, new].map(|map| map.decode().expect("a config map"));
                assert_eq!(
                    (color_of(&old), color_of(&new)),
                    (Some("lost"), Some("restored"))
                );
                break;
            }
        }
        cache.stop().await;
    }
}
