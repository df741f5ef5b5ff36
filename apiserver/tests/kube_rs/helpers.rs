//! kube-rs helpers: finalizers, `await_condition`, event recorder.

use super::{Site, config_map, config_maps, site, sites, start, start_with_sites};
use k8s_openapi::{
    api::{
        core::v1::{Event as CoreEvent, Namespace},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResourceExt, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    runtime::{
        conditions,
        controller::Action,
        events::{Event as RecordedEvent, EventType, Recorder, Reporter},
        finalizer::{self, finalizer},
        wait::{await_condition, delete::delete_and_finalize},
    },
};
use std::{cell::RefCell, io, sync::Arc};

#[tokio::test(start_paused = true)]
async fn the_finalizer_helper_adds_its_finalizer_and_removes_it_after_cleanup() {
    const NAME: &str = "steersman.dev/cleanup";
    let (_server, client) = start_with_sites().await;
    let api = sites(&client);
    api.create(&PostParams::default(), &site("a", "red"))
        .await
        .expect("created");
    let seen = RefCell::new(Vec::new());
    let run = async |fails: bool| {
        let object = Arc::new(api.get("a").await.expect("the object"));
        let done = finalizer(&api, NAME, object, async |event| {
            seen.borrow_mut().push(match event {
                finalizer::Event::Apply(_) => "apply",
                finalizer::Event::Cleanup(_) => "cleanup",
            });
            if fails {
                Err(io::Error::other("cleanup failed"))
            } else {
                Ok(Action::await_change())
            }
        });
        done.await
    };
    run(false).await.expect("the finalizer is added");
    assert_eq!(api.get("a").await.expect("the object").finalizers(), [NAME]);
    assert!(seen.borrow().is_empty());
    run(false).await.expect("applied");
    let deleted = api
        .delete("a", &DeleteParams::default())
        .await
        .expect("deleted");
    assert!(
        deleted
            .left()
            .expect("the object")
            .metadata
            .deletion_timestamp
            .is_some()
    );
    run(true).await.expect_err("the cleanup fails");
    assert_eq!(api.get("a").await.expect("the object").finalizers(), [NAME]);
    run(false).await.expect("cleaned up");
    assert_eq!(*seen.borrow(), ["apply", "cleanup", "cleanup"]);
    assert!(api.get_opt("a").await.expect("no error").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_helper_rejects_a_stale_object() {
    let (_server, client) = start_with_sites().await;
    let api = sites(&client);
    let mut object = site("a", "red");
    object.finalizers_mut().push("other.dev/first".into());
    let object = api
        .create(&PostParams::default(), &object)
        .await
        .expect("created");
    let mut changed = object.clone();
    changed
        .finalizers_mut()
        .insert(0, "other.dev/second".into());
    api.replace("a", &PostParams::default(), &changed)
        .await
        .expect("replaced");
    let stale = finalizer(&api, "steersman.dev/x", Arc::new(object), async |_| {
        Ok::<_, io::Error>(Action::await_change())
    });
    let finalizer::Error::AddFinalizer(kube::Error::Api(rejected)) =
        stale.await.expect_err("a stale object")
    else {
        panic!("expected a rejected patch");
    };
    assert_eq!((rejected.code, rejected.reason.as_str()), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_crd_is_served_once_it_is_established_and_deleted_with_its_objects() {
    let (_server, client) = start();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let awaiting = tokio::spawn(await_condition(
        crds.clone(),
        Site::crd_name(),
        conditions::is_crd_established(),
    ));
    crds.create(&PostParams::default(), &Site::crd())
        .await
        .expect("the CRD of kube-derive");
    awaiting.await.expect("no panic").expect("established");
    let created = sites(&client)
        .create(&PostParams::default(), &site("a", "red"))
        .await
        .expect("the kind is served");
    assert_eq!(created.metadata.generation, Some(1));

    delete_and_finalize(crds, Site::crd_name(), &DeleteParams::default())
        .await
        .expect("deleted");
    let not_found = sites(&client)
        .get("a")
        .await
        .expect_err("the objects are deleted too");
    assert!(matches!(not_found, kube::Error::Api(status) if status.code == 404));
}

#[tokio::test(start_paused = true)]
async fn await_condition_sees_a_deletion_followed_by_a_new_object_of_the_same_name() {
    let (_server, client) = start();
    let api = config_maps(&client);
    let uid = api
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .expect("created")
        .uid()
        .expect("a uid");
    let awaiting = {
        let api = api.clone();
        let uid = uid.clone();
        tokio::spawn(async move {
            await_condition(api, "a", conditions::is_deleted(&uid))
                .await
                .map(|_| ())
        })
    };
    tokio::task::yield_now().await;
    api.delete("a", &DeleteParams::default())
        .await
        .expect("deleted");
    api.create(&PostParams::default(), &config_map("a", "2"))
        .await
        .expect("a new object of the same name");
    awaiting
        .await
        .expect("no panic")
        .expect("the first object is deleted");
}

#[tokio::test(start_paused = true)]
async fn deleting_a_namespace_deletes_its_objects() {
    let (_server, client) = start();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: kube::api::ObjectMeta {
            name: Some("n".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .expect("created");
    let inside = Api::namespaced(client.clone(), "n");
    inside
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .expect("created in the namespace");
    delete_and_finalize(namespaces, "n", &DeleteParams::default())
        .await
        .expect("deleted");
    assert!(inside.get_opt("a").await.expect("no error").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_event_recorder_counts_repeated_events_in_a_series() {
    let (_server, client) = start_with_sites().await;
    let object = sites(&client)
        .create(&PostParams::default(), &site("a", "red"))
        .await
        .expect("created");
    let recorder = Recorder::new(
        client.clone(),
        Reporter {
            controller: "painter".into(),
            instance: Some("painter-0".into()),
        },
    );
    let recorded = RecordedEvent {
        type_: EventType::Normal,
        reason: "Painted".into(),
        note: Some("it is red".into()),
        action: "Paint".into(),
        secondary: None,
    };
    for _ in 0..3 {
        recorder
            .publish(&recorded, &object.object_ref(&()))
            .await
            .expect("recorded");
    }
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let found = events
        .list(&ListParams::default().fields("regarding.name=a,reason=Painted"))
        .await
        .expect("a list")
        .items;
    let [event] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(event.series.as_ref().map(|series| series.count), Some(3));
    assert_eq!(
        (event.note.as_deref(), event.reporting_controller.as_deref()),
        (Some("it is red"), Some("painter"))
    );

    let core_events: Api<CoreEvent> = Api::default_namespaced(client);
    let found = core_events
        .list(&ListParams::default().fields("involvedObject.name=a"))
        .await
        .expect("a list")
        .items;
    let [event] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (event.message.as_deref(), event.involved_object.uid.clone()),
        (Some("it is red"), object.uid())
    );
}
