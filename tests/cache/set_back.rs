//! A server that was restored from a backup, and has given out the same versions again.

use super::{
    chaos::Door,
    support::{Running, make, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use steersman::{
    cache::{Cache, CacheOptions, Notice, Query, Select},
    event::Event,
    object::ObjectKey,
};
use steersman_apiserver::{ApiServer, Options};

async fn paint(client: Client, color: &str) -> Option<String> {
    let (api, patch) = (Api::<ConfigMap>::namespaced(client, "default"), json!({"data": {"door": color}}));
    let painted = api.patch("painted", &PatchParams::default(), &Patch::Merge(patch)).await;
    painted.expect("it is there").metadata.resource_version
}

fn door_of(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("door").map(String::as_str)
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_version_is_given_out_again_is_shown_as_it_is_and_told() {
    for select in [Select::<ConfigMap>::new(), Select::<ConfigMap>::new().compact()] {
        let door = Door::new(ApiServer::new(Options::default()).expect("it starts"), 0);
        door.set_calm(true);
        let cache = Running::new(Cache::new(door.client(), CacheOptions::default()).expect("a ready client"));
        let maps = cache.informer_of(select).expect("it is new");
        make(&door.inside(), "default", "painted", "blue").await;
        let backup = door.server().fork();
        let lost = paint(door.inside(), "lost").await;
        make(&door.inside(), "default", "other", "blue").await;
        maps.await_synced().await.expect("it syncs");
        until(|| maps.list(&Query::default()).expect("synced").len() == 2).await;
        let mut events = maps.events();
        while !matches!(events.next().await.expect("it goes on"), Notice::InitialDone) {}

        let restored = paint(Client::new(backup.service(), "default"), "restored").await;
        assert_eq!(lost, restored, "the same version of two objects");
        door.replace(backup);
        until(|| maps.resource_version() == Some(door.server().revision())).await;
        let painted = maps.get(&ObjectKey::new("default", "painted")).expect("synced").expect("it is there");
        assert_eq!(door_of(&painted), Some("restored"));
        loop {
            let Notice::Event(event) = events.next().await.expect("it goes on") else { continue };
            let Event::Update { old, new } = event else { continue };
            if new.name() == "painted" {
                let [old, new] = [old, new].map(|map| map.decode().expect("it is one"));
                assert_eq!((door_of(&old), door_of(&new)), (Some("lost"), Some("restored")));
                break;
            }
        }
        cache.stop().await;
    }
}
