//! Cases of concurrent writes.

use super::{Notes, code, config_map, config_maps, is_conflict, to_json, widget, widgets};
use crate::runner::{Names, Transcript};
use futures::{StreamExt, TryStreamExt, future::join_all};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use std::collections::BTreeMap;

pub(super) async fn many_puts(client: Client, names: Names) -> Transcript {
    let api = config_maps(&client, &names);
    let mut notes = Notes::default();
    let first = api
        .create(&PostParams::default(), &config_map("a"))
        .await
        .expect("created");
    let puts = (0..20).map(|number| {
        let mut changed = first.clone();
        changed.data = Some([("k".into(), number.to_string())].into());
        let api = api.clone();
        async move { code(&api.replace("a", &PostParams::default(), &changed).await) }
    });
    let mut codes = join_all(puts).await;
    codes.sort_unstable();
    notes.add("twenty puts that know the same version", codes);
    notes.finish()
}

pub(super) async fn many_merges(client: Client, names: Names) -> Transcript {
    let api = widgets(&client, &names);
    let mut notes = Notes::default();
    api.create(&PostParams::default(), &widget("w"))
        .await
        .expect("created");
    let merges = (0..60).map(|number| {
        let api = api.clone();
        async move {
            let patch = json!({"metadata": {"annotations": {format!("k{number:02}"): "1"}}});
            code(
                &api.patch("w", &PatchParams::default(), &Patch::Merge(patch))
                    .await,
            )
        }
    });
    let codes = join_all(merges).await;
    notes.add("sixty merges", codes);
    notes.add(
        "the object",
        to_json(api.get("w").await)["metadata"]["annotations"].clone(),
    );
    notes.finish()
}

pub(super) async fn writers_that_retry(client: Client, names: Names) -> Transcript {
    let api = config_maps(&client, &names);
    let mut notes = Notes::default();
    api.create(&PostParams::default(), &config_map("counter"))
        .await
        .expect("created");
    let writers = (0..4).map(|_| {
        let api = api.clone();
        async move {
            for _ in 0..10 {
                loop {
                    let mut read = api.get("counter").await.expect("the object");
                    let data = read.data.get_or_insert_default();
                    let count: u32 = data
                        .get("n")
                        .map_or(0, |count| count.parse().expect("a number"));
                    data.insert("n".into(), (count + 1).to_string());
                    let written = api.replace("counter", &PostParams::default(), &read).await;
                    if !is_conflict(&written) {
                        written.expect("written");
                        break;
                    }
                }
            }
        }
    });
    join_all(writers).await;
    notes.add(
        "four writers, ten increments each",
        api.get("counter").await.expect("the object").data,
    );
    notes.finish()
}

pub(super) async fn watchers_agree(client: Client, names: Names) -> Transcript {
    let api = config_maps(&client, &names);
    let mut notes = Notes::default();
    let from = api
        .list(&ListParams::default())
        .await
        .expect("a list")
        .metadata
        .resource_version
        .expect("a version");
    let watch = async || {
        let events = api
            .watch(&kube::api::WatchParams::default(), &from)
            .await
            .expect("a watch");
        let events = events.map_ok(|event| match event {
            kube::api::WatchEvent::Added(object) => ("added", object),
            kube::api::WatchEvent::Modified(object) => ("modified", object),
            kube::api::WatchEvent::Deleted(object) => ("deleted", object),
            other => panic!("{other:?}"),
        });
        let events =
            events.map_ok(|(kind, object)| (kind, object.name_any(), object.resource_version()));
        events
            .take(300)
            .try_collect::<Vec<_>>()
            .await
            .expect("events")
    };
    let write = async |writer: usize| {
        for number in 0..25 {
            let name = format!("o{writer}-{number}");
            api.create(&PostParams::default(), &config_map(&name))
                .await
                .expect("created");
            let patch = Patch::Merge(json!({"data": {"k": "v"}}));
            api.patch(&name, &PatchParams::default(), &patch)
                .await
                .expect("the object");
            api.delete(&name, &DeleteParams::default())
                .await
                .expect("the object");
        }
    };
    let (seen, ..) = tokio::join!(
        async { tokio::join!(watch(), watch(), watch()) },
        write(0),
        write(1),
        write(2),
        write(3)
    );
    notes.add(
        "all three saw the same",
        seen.0 == seen.1 && seen.1 == seen.2,
    );
    let versions: Vec<u64> = seen
        .0
        .iter()
        .filter_map(|(_, _, version)| version.as_ref()?.parse().ok())
        .collect();
    notes.add(
        "versions only grow",
        versions.len() == 300 && versions.is_sorted_by(|a, b| a < b),
    );
    let mut events_by_name = BTreeMap::<_, Vec<_>>::new();
    for (kind, name, _) in seen.0 {
        events_by_name.entry(name).or_default().push(kind);
    }
    notes.add("the life of each", events_by_name);
    notes.finish()
}
