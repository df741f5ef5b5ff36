//! kube-rs's helpers: finalizers, waiting for conditions, recording events.

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
        events::{Event as Told, EventType, Recorder, Reporter},
        finalizer::{self, finalizer},
        wait::{await_condition, delete::delete_and_finalize},
    },
};
use std::{cell::RefCell, io, sync::Arc};

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_added_holds_the_object_and_is_removed() {
    const NAME: &str = "steersman.dev/cleanup";
    let (_server, client) = start_with_sites().await;
    let api = sites(&client);
    api.create(&PostParams::default(), &site("a", "red")).await.expect("made");
    let seen = RefCell::new(Vec::new());
    let run = async |fails: bool| {
        let object = Arc::new(api.get("a").await.expect("it is there"));
        let done = finalizer(&api, NAME, object, async |event| {
            seen.borrow_mut().push(match event {
                finalizer::Event::Apply(_) => "apply",
                finalizer::Event::Cleanup(_) => "cleanup",
            });
            if fails { Err(io::Error::other("not now")) } else { Ok(Action::await_change()) }
        });
        done.await
    };
    run(false).await.expect("it is added");
    assert_eq!(api.get("a").await.expect("it is there").finalizers(), [NAME]);
    assert!(seen.borrow().is_empty());
    run(false).await.expect("applied");
    let deleted = api.delete("a", &DeleteParams::default()).await.expect("deletable");
    assert!(deleted.left().expect("the object, since it stays").metadata.deletion_timestamp.is_some());
    run(true).await.expect_err("the cleanup fails");
    assert_eq!(api.get("a").await.expect("it is held").finalizers(), [NAME]);
    run(false).await.expect("cleaned up");
    assert_eq!(*seen.borrow(), ["apply", "cleanup", "cleanup"]);
    assert!(api.get_opt("a").await.expect("no error").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_not_added_to_what_changed_meanwhile() {
    let (_server, client) = start_with_sites().await;
    let api = sites(&client);
    let mut object = site("a", "red");
    object.finalizers_mut().push("other.dev/first".into());
    let object = api.create(&PostParams::default(), &object).await.expect("made");
    let mut changed = object.clone();
    changed.finalizers_mut().insert(0, "other.dev/second".into());
    api.replace("a", &PostParams::default(), &changed).await.expect("replaced");
    let stale =
        finalizer(&api, "steersman.dev/x", Arc::new(object), async |_| Ok::<_, io::Error>(Action::await_change()));
    let finalizer::Error::AddFinalizer(kube::Error::Api(refused)) = stale.await.expect_err("it is stale") else {
        panic!("another error");
    };
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_awaited_and_its_resource_is_there() {
    let (_server, client) = start();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let awaiting =
        tokio::spawn(await_condition(definitions.clone(), Site::crd_name(), conditions::is_crd_established()));
    definitions.create(&PostParams::default(), &Site::crd()).await.expect("a definition by kube-derive");
    awaiting.await.expect("no panic").expect("established");
    let made = sites(&client).create(&PostParams::default(), &site("a", "red")).await.expect("its resource is served");
    assert_eq!(made.metadata.generation, Some(1));

    delete_and_finalize(definitions, Site::crd_name(), &DeleteParams::default()).await.expect("it goes");
    let gone = sites(&client).get("a").await.expect_err("with everything that was of it");
    assert!(matches!(gone, kube::Error::Api(status) if status.code == 404));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_awaited_by_uid() {
    let (_server, client) = start();
    let api = config_maps(&client);
    let uid = api.create(&PostParams::default(), &config_map("a", "1")).await.expect("made").uid().expect("a uid");
    let awaiting = {
        let (api, uid) = (api.clone(), uid.clone());
        tokio::spawn(async move { await_condition(api, "a", conditions::is_deleted(&uid)).await.map(|_| ()) })
    };
    tokio::task::yield_now().await;
    api.delete("a", &DeleteParams::default()).await.expect("deleted");
    api.create(&PostParams::default(), &config_map("a", "2")).await.expect("another of that name");
    awaiting.await.expect("no panic").expect("the first one is gone");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_everything_in_it() {
    let (_server, client) = start();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: kube::api::ObjectMeta { name: Some("n".into()), ..Default::default() },
        ..Default::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await.expect("made");
    let inside = Api::namespaced(client.clone(), "n");
    inside.create(&PostParams::default(), &config_map("a", "1")).await.expect("made inside");
    delete_and_finalize(namespaces, "n", &DeleteParams::default()).await.expect("it goes");
    assert!(inside.get_opt("a").await.expect("no error").is_none());
}

#[tokio::test(start_paused = true)]
async fn what_happens_often_is_recorded_as_one_event_that_counts() {
    let (_server, client) = start_with_sites().await;
    let object = sites(&client).create(&PostParams::default(), &site("a", "red")).await.expect("made");
    let recorder =
        Recorder::new(client.clone(), Reporter { controller: "painter".into(), instance: Some("painter-0".into()) });
    let told = Told {
        type_: EventType::Normal,
        reason: "Painted".into(),
        note: Some("it is red".into()),
        action: "Paint".into(),
        secondary: None,
    };
    for _ in 0..3 {
        recorder.publish(&told, &object.object_ref(&())).await.expect("recorded");
    }
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let found =
        events.list(&ListParams::default().fields("regarding.name=a,reason=Painted")).await.expect("a list").items;
    let [event] = &found[..] else { panic!("{found:?}") };
    assert_eq!(event.series.as_ref().map(|series| series.count), Some(3));
    assert_eq!((event.note.as_deref(), event.reporting_controller.as_deref()), (Some("it is red"), Some("painter")));

    let old: Api<CoreEvent> = Api::default_namespaced(client);
    let found = old.list(&ListParams::default().fields("involvedObject.name=a")).await.expect("a list").items;
    let [event] = &found[..] else { panic!("{found:?}") };
    assert_eq!((event.message.as_deref(), event.involved_object.uid.clone()), (Some("it is red"), object.uid()));
}
