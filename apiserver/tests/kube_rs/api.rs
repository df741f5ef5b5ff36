//! All methods of `kube::Api`.

use super::{Site, SiteStatus, config_map, config_maps, site, sites, start, start_with_sites};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt,
    api::{
        DeleteParams, GetParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
        Preconditions, VersionMatch, WatchEvent, WatchParams,
        entry::{CommitError, Entry},
    },
};
use serde_json::json;

fn code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn create_get_and_replace_work_and_a_stale_replace_conflicts() {
    let (server, client) = start_with_sites().await;
    let api = sites(&client);
    let created = api
        .create(&PostParams::default(), &site("a", "red"))
        .await
        .expect("created");
    assert_eq!(
        (created.spec.replicas, created.metadata.generation),
        (1, Some(1))
    );
    let exists = api
        .create(&PostParams::default(), &site("a", "red"))
        .await
        .expect_err("already exists");
    assert!(
        matches!(&exists, kube::Error::Api(status) if status.reason == "AlreadyExists"),
        "{exists}"
    );
    let revision = server.revision();
    let dry_run_params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    assert!(
        api.create(&dry_run_params, &site("b", "red"))
            .await
            .expect("a dry run")
            .resource_version()
            .is_none()
    );
    assert_eq!(server.revision(), revision);

    let mut changed = created.clone();
    changed.spec.color = "blue".into();
    let changed = api
        .replace("a", &PostParams::default(), &changed)
        .await
        .expect("replaced");
    assert_eq!(changed.metadata.generation, Some(2));
    assert_eq!(
        code(
            api.replace("a", &PostParams::default(), &created)
                .await
                .expect_err("a conflict")
        ),
        409
    );

    assert_eq!(api.get("a").await.expect("the object").spec.color, "blue");
    assert_eq!(
        api.get_with("a", &GetParams::any())
            .await
            .expect("the object")
            .resource_version(),
        changed.resource_version()
    );
    assert_eq!(
        api.get_metadata("a")
            .await
            .expect("the object")
            .metadata
            .uid,
        created.uid()
    );
    assert!(api.get_opt("none").await.expect("no error").is_none());
    assert!(
        api.get_metadata_opt("none")
            .await
            .expect("no error")
            .is_none()
    );
    assert_eq!(code(api.get("none").await.expect_err("not found")), 404);
}

#[tokio::test(start_paused = true)]
async fn lists_support_pages_selectors_and_resource_versions() {
    let (server, client) = start();
    let api = config_maps(&client);
    for n in 0..10 {
        let mut map = config_map(&format!("c{n}"), "0");
        map.labels_mut().insert("half".into(), (n % 2).to_string());
        api.create(&PostParams::default(), &map)
            .await
            .expect("created");
    }
    let first = api
        .list(&ListParams::default().limit(4))
        .await
        .expect("a page");
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (4, Some(6))
    );
    api.delete("c5", &DeleteParams::default())
        .await
        .expect("deleted");
    let token = first.metadata.continue_.clone().expect("more");
    let second = api
        .list(&ListParams::default().limit(4).continue_token(&token))
        .await
        .expect("a page");
    let names: Vec<_> = second.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(
        names,
        ["c4", "c5", "c6", "c7"],
        "the second page shows the state of the first"
    );
    assert_eq!(
        second.metadata.resource_version,
        first.metadata.resource_version
    );

    let old = first.metadata.resource_version.expect("a revision");
    let then = api
        .list(&ListParams::default().at(&old).matching(VersionMatch::Exact))
        .await
        .expect("a list of the past");
    assert_eq!(then.items.len(), 10);
    assert_eq!(
        api.list(&ListParams::default().match_any())
            .await
            .expect("a current list")
            .items
            .len(),
        9
    );
    assert_eq!(
        api.list(&ListParams::default().labels("half=1"))
            .await
            .expect("a list by label")
            .items
            .len(),
        4
    );
    assert_eq!(
        api.list(&ListParams::default().fields("metadata.name=c3"))
            .await
            .expect("a list by name")
            .items
            .len(),
        1
    );
    assert_eq!(
        api.list_metadata(&ListParams::default())
            .await
            .expect("metadata")
            .items
            .len(),
        9
    );
    server.compact();
    let expired = api
        .list(&ListParams::default().at(&old).matching(VersionMatch::Exact))
        .await
        .expect_err("expired");
    assert_eq!(code(expired), 410);
}

#[tokio::test(start_paused = true)]
async fn merge_json_and_metadata_patches_work() {
    let (_server, client) = start_with_sites().await;
    let api = sites(&client);
    api.create(&PostParams::default(), &site("a", "red"))
        .await
        .expect("created");
    let params = PatchParams::default();
    let merge =
        Patch::Merge(json!({"spec": {"color": "blue"}, "metadata": {"labels": {"x": "y"}}}));
    let patched = api.patch("a", &params, &merge).await.expect("patched");
    assert_eq!(
        (patched.spec.color.as_str(), patched.labels()["x"].as_str()),
        ("blue", "y")
    );
    assert_eq!(
        api.patch("a", &params, &merge)
            .await
            .expect("patched again")
            .resource_version(),
        patched.resource_version()
    );
    let steps = json!([
        {"op": "test", "path": "/spec/color", "value": "blue"},
        {"op": "replace", "path": "/spec/color", "value": "green"},
    ]);
    let steps: Patch<()> = Patch::Json(serde_json::from_value(steps).expect("a patch"));
    assert_eq!(
        api.patch("a", &params, &steps)
            .await
            .expect("patched")
            .spec
            .color,
        "green"
    );
    assert_eq!(
        code(
            api.patch("a", &params, &steps)
                .await
                .expect_err("the test fails")
        ),
        422
    );
    let metadata = api
        .patch_metadata(
            "a",
            &params,
            &Patch::Merge(json!({"metadata": {"labels": {"x": null}}})),
        )
        .await;
    assert!(metadata.expect("patched").labels().is_empty());
    let unknown = Patch::Merge(json!({"spec": {"nope": 1}}));
    let strict = api
        .patch("a", &PatchParams::default().validation_strict(), &unknown)
        .await;
    assert_eq!(code(strict.expect_err("an unknown field")), 422);
    assert_eq!(
        code(
            api.patch("none", &params, &merge)
                .await
                .expect_err("not found")
        ),
        404
    );
}

#[tokio::test(start_paused = true)]
async fn status_and_scale_can_be_replaced_and_patched() {
    let (_server, client) = start_with_sites().await;
    let api = sites(&client);
    let mut object = api
        .create(&PostParams::default(), &site("a", "red"))
        .await
        .expect("created");
    assert_eq!(object.status, None);
    object.status = Some(SiteStatus {
        observed_generation: Some(1),
        replicas: 1,
    });
    object.spec.color = "ignored".into();
    let object = api
        .replace_status("a", &PostParams::default(), &object)
        .await
        .expect("replaced");
    assert_eq!(
        (object.spec.color.as_str(), object.metadata.generation),
        ("red", Some(1))
    );
    let patch = Patch::Merge(json!({"status": {"replicas": 2}}));
    api.patch_status("a", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    assert_eq!(
        api.get_status("a")
            .await
            .expect("the object")
            .status
            .expect("a status")
            .replicas,
        2
    );

    let mut scale = api.get_scale("a").await.expect("the object");
    let replicas = |scale: &k8s_openapi::api::autoscaling::v1::Scale| {
        (
            scale.spec.as_ref().and_then(|spec| spec.replicas),
            scale.status.as_ref().map(|status| status.replicas),
        )
    };
    assert_eq!(replicas(&scale), (Some(1), Some(2)));
    scale.spec.get_or_insert_default().replicas = Some(5);
    let scale = api
        .replace_scale("a", &PostParams::default(), &scale)
        .await
        .expect("scaled");
    assert_eq!(replicas(&scale), (Some(5), Some(2)));
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    api.patch_scale("a", &PatchParams::default(), &patch)
        .await
        .expect("scaled");
    let object = api.get("a").await.expect("the object");
    assert_eq!(
        (object.spec.replicas, object.metadata.generation),
        (7, Some(3))
    );
}

#[tokio::test(start_paused = true)]
async fn delete_and_delete_collection_work_with_preconditions_and_dry_run() {
    let (server, client) = start();
    let api = config_maps(&client);
    let mut uids = Vec::new();
    for n in 0..5 {
        uids.push(
            api.create(&PostParams::default(), &config_map(&format!("c{n}"), "0"))
                .await
                .expect("created")
                .uid(),
        );
    }
    let wrong = DeleteParams::default().preconditions(Preconditions {
        uid: Some("another".into()),
        ..Preconditions::default()
    });
    assert_eq!(
        code(api.delete("c0", &wrong).await.expect_err("a uid conflict")),
        409
    );
    let right = DeleteParams::default().preconditions(Preconditions {
        uid: uids[0].clone(),
        ..Preconditions::default()
    });
    let status = api
        .delete("c0", &right)
        .await
        .expect("deleted")
        .right()
        .expect("a status");
    assert_eq!(
        status.details.expect("details").uid,
        uids[0].clone().expect("a uid")
    );
    let revision = server.revision();
    let some = ListParams::default().fields("metadata.name!=c4");
    let dry = api
        .delete_collection(&DeleteParams::default().dry_run(), &some)
        .await
        .expect("a dry run");
    assert_eq!(dry.left().expect("a list").items.len(), 3);
    assert_eq!(server.revision(), revision);
    let deleted = api
        .delete_collection(&DeleteParams::default(), &some)
        .await
        .expect("deleted");
    assert_eq!(deleted.left().expect("a list").items.len(), 3);
    let left = api.list(&ListParams::default()).await.expect("a list");
    assert_eq!(
        left.items
            .iter()
            .map(ResourceExt::name_any)
            .collect::<Vec<_>>(),
        ["c4"]
    );
}

#[tokio::test(start_paused = true)]
async fn entries_create_update_and_detect_conflicts() {
    let (_server, client) = start();
    let api = config_maps(&client);
    let put = async |value: &str| {
        let mut entry = api
            .entry("a")
            .await
            .expect("an entry")
            .or_insert(|| config_map("a", "first"));
        entry
            .get_mut()
            .data
            .get_or_insert_default()
            .insert("value".into(), value.into());
        entry.commit(&PostParams::default()).await
    };
    put("1").await.expect("the entry is created");
    put("2").await.expect("the entry is updated");
    assert_eq!(
        api.get("a").await.expect("the object").data.expect("data")["value"],
        "2"
    );

    let Entry::Occupied(mut stale) = api.entry("a").await.expect("an entry") else {
        panic!("expected an occupied entry")
    };
    put("3").await.expect("the entry is updated");
    stale.get_mut().data = None;
    let conflict = stale
        .commit(&PostParams::default())
        .await
        .expect_err("a conflict");
    assert!(matches!(conflict, CommitError::Save(kube::Error::Api(status)) if status.code == 409));
}

#[tokio::test(start_paused = true)]
async fn raw_watches_yield_events_bookmarks_and_expiry() {
    let (server, client) = start();
    let api = config_maps(&client);
    let old = server.revision().to_string();
    api.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .expect("created");
    let events = api
        .watch(&WatchParams::default().timeout(30), &old)
        .await
        .expect("a watch");
    pin_mut!(events);
    let Some(Ok(WatchEvent::Added(created))) = events.next().await else {
        panic!("expected an ADDED event")
    };
    assert_eq!(created.name_any(), "a");
    let Some(Ok(WatchEvent::Bookmark(mark))) = events.next().await else {
        panic!("expected a bookmark before the end")
    };
    assert_eq!(
        Some(mark.metadata.resource_version),
        created.resource_version()
    );
    assert!(events.next().await.is_none());
    server.compact();
    let events = api
        .watch(&WatchParams::default(), &old)
        .await
        .expect("a watch");
    pin_mut!(events);
    let Some(Ok(WatchEvent::Error(expired))) = events.next().await else {
        panic!("expected an expiry error")
    };
    assert_eq!((expired.code, expired.reason.as_str()), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn names_are_generated_and_secrets_are_encoded() {
    let (_server, client) = start();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let secret = Secret {
        metadata: ObjectMeta {
            generate_name: Some("s-".into()),
            ..ObjectMeta::default()
        },
        string_data: Some([("key".to_owned(), "value".to_owned())].into()),
        ..Secret::default()
    };
    let created = secrets
        .create(&PostParams::default(), &secret)
        .await
        .expect("created");
    assert_eq!(created.name_any().len(), "s-".len() + 5);
    assert_eq!(created.data.expect("data")["key"].0, b"value");
    let all_namespaces: Api<Secret> = Api::all(client.clone());
    assert_eq!(
        all_namespaces
            .list(&ListParams::default())
            .await
            .expect("a list")
            .items
            .len(),
        1
    );
    let missing_namespace: Api<ConfigMap> = Api::namespaced(client.clone(), "nowhere");
    assert_eq!(
        code(
            missing_namespace
                .create(&PostParams::default(), &config_map("a", "1"))
                .await
                .expect_err("a missing namespace")
        ),
        404
    );
    let unknown: Api<Site> = Api::default_namespaced(client);
    assert_eq!(
        code(
            unknown
                .list(&ListParams::default())
                .await
                .expect_err("an unknown resource")
        ),
        404
    );
}
