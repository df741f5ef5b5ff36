//! Cases written as code on kube-rs: its runtime and concurrent writers.
//!
//! Each case notes what it observes. The notes are its transcript, and golden files contain them,
//! so their texts must not change.

mod races;

use crate::runner::{Entry, Names, Transcript};
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use k8s_openapi::{
    api::core::v1::{ConfigMap, ObjectReference},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResource, CustomResourceExt, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::PartialObjectMeta,
    discovery::{self, ApiResource},
    runtime::{
        WatchStreamExt,
        controller::{Action, Controller},
        events::{Event, EventType, Recorder, Reporter},
        finalizer::{self, finalizer},
        wait::{await_condition, conditions},
        watcher,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Id and function of a case.
pub(crate) type Case = (
    &'static str,
    fn(Client, Names) -> BoxFuture<'static, Transcript>,
);

pub(crate) const CASES: &[Case] = &[
    ("many-puts-with-one-resource-version", |client, names| {
        races::many_puts(client, names).boxed()
    }),
    ("many-concurrent-merges", |client, names| {
        races::many_merges(client, names).boxed()
    }),
    ("writers-that-retry-lose-nothing", |client, names| {
        races::writers_that_retry(client, names).boxed()
    }),
    ("watchers-of-racing-writes-agree", |client, names| {
        races::watchers_agree(client, names).boxed()
    }),
    ("finalizer-helper", |client, names| {
        finalizer_helper(client, names).boxed()
    }),
    ("watcher-and-metadata-watcher", |client, names| {
        watchers_and_metadata_watchers(client, names).boxed()
    }),
    ("crd-established", |client, names| {
        crd_established(client, names).boxed()
    }),
    ("event-recorder", |client, names| {
        event_recorder(client, names).boxed()
    }),
    ("controller-with-owned-objects", |client, names| {
        controller_with_owned_objects(client, names).boxed()
    }),
    ("pages-of-a-list", |client, names| {
        list_pages(client, names).boxed()
    }),
    ("scale-of-a-custom-resource", |client, names| {
        scale(client, names).boxed()
    }),
    ("preconditions-of-deletion", |client, names| {
        preconditions(client, names).boxed()
    }),
    ("discovery-of-a-group", |client, names| {
        discovery_of_a_group(client, names).boxed()
    }),
];

/// Observations of a case, which become its transcript.
#[derive(Default)]
struct Notes(Vec<Entry>);

impl Notes {
    fn add(&mut self, label: &str, seen: impl Serialize) {
        let response = serde_json::to_value(seen).expect("notes are JSON");
        self.0.push(Entry {
            line: label.into(),
            response,
        });
    }

    fn finish(self) -> Transcript {
        Transcript(self.0)
    }
}

fn config_maps(client: &Client, names: &Names) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), &names.namespaces[0])
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).expect("a config map")
}

fn widget_resource() -> ApiResource {
    ApiResource {
        group: "conformance.example.com".into(),
        version: "v1".into(),
        api_version: "conformance.example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    }
}

fn widgets(client: &Client, names: &Names) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &names.namespaces[0], &widget_resource())
}

fn widget(name: &str) -> DynamicObject {
    DynamicObject::new(name, &widget_resource()).data(json!({"spec": {"color": "red"}}))
}

/// Returns the response or the error status as JSON.
fn to_json<T: Serialize>(result: Result<T, kube::Error>) -> Value {
    match result {
        Ok(result) => serde_json::to_value(result).expect("a JSON response"),
        Err(kube::Error::Api(status)) => serde_json::to_value(status).expect("a status is JSON"),
        Err(error) => error.to_string().into(),
    }
}

fn code<T>(result: &Result<T, kube::Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

fn is_conflict<T>(result: &Result<T, kube::Error>) -> bool {
    code(result) == 409
}

async fn finalizer_helper(client: Client, names: Names) -> Transcript {
    let api = widgets(&client, &names);
    let mut notes = Notes::default();
    api.create(&PostParams::default(), &widget("w"))
        .await
        .expect("created");
    let step = async |notes: &mut Notes| {
        let Some(object) = api.get_opt("w").await.expect("a response") else {
            return notes.add("gone", true);
        };
        let called = Mutex::new("not called");
        let run = finalizer(&api, "example.com/tidy", Arc::new(object), async |event| {
            *called.lock().expect("a lock") = match event {
                finalizer::Event::Apply(_) => "apply",
                finalizer::Event::Cleanup(_) => "cleanup",
            };
            Ok::<_, std::io::Error>(Action::await_change())
        });
        run.await.expect("the helper succeeds");
        notes.add("the helper called", called.into_inner().expect("a lock"));
        notes.add("then the object is", to_json(api.get("w").await));
    };
    step(&mut notes).await;
    step(&mut notes).await;
    api.delete("w", &DeleteParams::default())
        .await
        .expect("the object");
    step(&mut notes).await;
    step(&mut notes).await;
    notes.finish()
}

async fn watchers_and_metadata_watchers(client: Client, names: Names) -> Transcript {
    let api = config_maps(&client, &names);
    let mut notes = Notes::default();
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &config_map(name))
            .await
            .expect("created");
    }
    let watch = watcher::Config::default();
    let listed = watcher(api.clone(), watch.clone().page_size(1));
    let streamed = watcher(api.clone(), watch.clone().streaming_lists());
    let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client, &names.namespaces[0]);
    let metadata = watcher(metadata, watch);
    let mut seen = Vec::new();
    let mut listed = listed
        .applied_objects()
        .map_ok(|object| object.name_any())
        .boxed();
    let mut streamed = streamed
        .applied_objects()
        .map_ok(|object| object.name_any())
        .boxed();
    let mut metadata = metadata
        .applied_objects()
        .map_ok(|object| format!("{} {:?}", object.name_any(), object.types))
        .boxed();
    let next = async |stream: &mut stream::BoxStream<'_, Result<String, watcher::Error>>| {
        stream
            .try_next()
            .await
            .expect("no error")
            .expect("an event")
    };
    for name in ["", "", "c"] {
        if !name.is_empty() {
            api.create(&PostParams::default(), &config_map(name))
                .await
                .expect("created");
        }
        seen.push([
            next(&mut listed).await,
            next(&mut streamed).await,
            next(&mut metadata).await,
        ]);
    }
    notes.add("paged, streamed and metadata watchers see", seen);
    notes.finish()
}

/// Kind whose group is replaced by that of the case.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "placeholder.example.com",
    version = "v1",
    kind = "Gadget",
    namespaced
)]
struct GadgetSpec {
    size: Option<u32>,
}

async fn crd_established(client: Client, names: Names) -> Transcript {
    let mut notes = Notes::default();
    let crd = serde_json::to_string(&Gadget::crd()).expect("a CRD is JSON");
    let crd: CustomResourceDefinition =
        serde_json::from_str(&crd.replace("placeholder.example.com", &names.group)).expect("a CRD");
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    api.create(&PostParams::default(), &crd)
        .await
        .expect("created");
    await_condition(api.clone(), &name, conditions::is_crd_established())
        .await
        .expect("established");

    let mut resource = ApiResource::erase::<Gadget>(&());
    resource.group.clone_from(&names.group);
    resource.api_version = format!("{}/v1", names.group);
    let gadgets: Api<DynamicObject> = Api::namespaced_with(client, &names.namespaces[0], &resource);
    let gadget = DynamicObject::new("g", &resource).data(json!({"spec": {"size": 3, "other": 1}}));
    // The kind may be served a moment after the CRD is established.
    let created = loop {
        match gadgets.create(&PostParams::default(), &gadget).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            created => break created,
        }
    };
    notes.add("a custom resource", to_json(created));
    let negative = DynamicObject::new("n", &resource).data(json!({"spec": {"size": -1}}));
    notes.add(
        "one that does not fit",
        to_json(gadgets.create(&PostParams::default(), &negative).await),
    );
    let uid = api
        .get(&name)
        .await
        .expect("the object")
        .uid()
        .expect("a uid");
    api.delete(&name, &DeleteParams::default())
        .await
        .expect("the object");
    await_condition(api.clone(), &name, conditions::is_deleted(&uid))
        .await
        .expect("deleted");
    notes.add("the definition", to_json(api.get(&name).await));
    notes.finish()
}

async fn event_recorder(client: Client, names: Names) -> Transcript {
    let api = config_maps(&client, &names);
    let mut notes = Notes::default();
    let subject = api
        .create(&PostParams::default(), &config_map("a"))
        .await
        .expect("created");
    let subject = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("ConfigMap".into()),
        name: subject.metadata.name,
        namespace: subject.metadata.namespace,
        uid: subject.metadata.uid,
        ..ObjectReference::default()
    };
    let reporter = Reporter {
        controller: "conformance".into(),
        instance: Some("one".into()),
    };
    let recorder = Recorder::new(client.clone(), reporter);
    let event = Event {
        type_: EventType::Normal,
        reason: "Seen".into(),
        note: Some("as it is".into()),
        action: "Looking".into(),
        secondary: None,
    };
    for _ in 0..2 {
        recorder.publish(&event, &subject).await.expect("recorded");
    }
    let events: Api<k8s_openapi::api::core::v1::Event> =
        Api::namespaced(client, &names.namespaces[0]);
    let mut listed = to_json(events.list(&ListParams::default()).await);
    // The name contains the time.
    for item in listed["items"].as_array_mut().into_iter().flatten() {
        item["metadata"]["name"] = "of the time".into();
    }
    notes.add("the events", listed);
    notes.finish()
}

async fn controller_with_owned_objects(client: Client, names: Names) -> Transcript {
    let api = widgets(&client, &names);
    let mut notes = Notes::default();
    let owned = config_maps(&client, &names);
    for number in 0..10 {
        api.create(&PostParams::default(), &widget(&format!("w{number}")))
            .await
            .expect("created");
    }
    let resource = widget_resource();
    let reconcile = {
        let owned = owned.clone();
        move |widget: Arc<DynamicObject>, _: Arc<()>| {
            let owned = owned.clone();
            async move {
                let mut child = config_map(&widget.name_any());
                let owner = kube::Resource::controller_owner_ref(&*widget, &widget_resource())
                    .expect("an owner reference");
                child.metadata.owner_references = Some(vec![owner]);
                match owned.create(&PostParams::default(), &child).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        Ok(Action::await_change())
                    }
                    created => created.map(|_| Action::await_change()),
                }
            }
        }
    };
    let running = Controller::new_with(api.clone(), watcher::Config::default(), resource)
        .owns(owned.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, error: &kube::Error, _| panic!("{error}"),
            Arc::new(()),
        );
    let running = tokio::spawn(running.for_each(|_| async {}));
    let list = async || {
        owned
            .list(&ListParams::default())
            .await
            .expect("a list")
            .items
    };
    let wait_for_all = async || {
        while list().await.len() < 10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    wait_for_all().await;
    // The controller creates a deleted child again.
    owned
        .delete("w3", &DeleteParams::default())
        .await
        .expect("the object");
    wait_for_all().await;
    running.abort();
    let owners: Vec<_> = list()
        .await
        .into_iter()
        .map(|map| (map.name_any(), map.owner_references()[0].name.clone()))
        .collect();
    notes.add("each has its own", owners);
    notes.finish()
}

async fn list_pages(client: Client, names: Names) -> Transcript {
    let api = config_maps(&client, &names);
    let mut notes = Notes::default();
    for number in 0..5 {
        api.create(&PostParams::default(), &config_map(&format!("a{number}")))
            .await
            .expect("created");
    }
    let mut page = ListParams::default().limit(2);
    loop {
        let list = api.list(&page).await.expect("a page");
        let names: Vec<_> = list.items.iter().map(ResourceExt::name_any).collect();
        notes.add(
            "a page",
            json!({"names": names, "remaining": list.metadata.remaining_item_count}),
        );
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return notes.finish(),
        }
    }
}

async fn scale(client: Client, names: Names) -> Transcript {
    let api = widgets(&client, &names);
    let mut notes = Notes::default();
    api.create(&PostParams::default(), &widget("w"))
        .await
        .expect("created");
    notes.add("as made", to_json(api.get_scale("w").await));
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    notes.add(
        "scaled",
        to_json(api.patch_scale("w", &PatchParams::default(), &patch).await),
    );
    let patch = Patch::Merge(json!({"spec": {"replicas": 50}}));
    notes.add(
        "too far",
        to_json(api.patch_scale("w", &PatchParams::default(), &patch).await),
    );
    notes.add("the object", to_json(api.get("w").await));
    notes.finish()
}

async fn preconditions(client: Client, names: Names) -> Transcript {
    let api = config_maps(&client, &names);
    let mut notes = Notes::default();
    let created = api
        .create(&PostParams::default(), &config_map("a"))
        .await
        .expect("created");
    let on = |uid: Option<String>, resource_version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version,
        }),
        ..DeleteParams::default()
    };
    let other_uid = Some("00000000-0000-4000-8000-000000000000".into());
    let deletion = async |params: DeleteParams| match api.delete("a", &params).await {
        Ok(either) => either.either(|object| to_json(Ok(object)), |status| to_json(Ok(status))),
        Err(error) => to_json::<()>(Err(error)),
    };
    notes.add("another uid", deletion(on(other_uid, None)).await);
    notes.add(
        "another version",
        deletion(on(None, Some("1".into()))).await,
    );
    notes.add(
        "its own",
        deletion(on(created.uid(), created.resource_version())).await,
    );
    notes.finish()
}

async fn discovery_of_a_group(client: Client, _: Names) -> Transcript {
    let mut notes = Notes::default();
    let group = discovery::group(&client, "conformance.example.com")
        .await
        .expect("the group");
    let mut kinds: Vec<_> = group
        .recommended_resources()
        .into_iter()
        .map(|(resource, capabilities)| {
            let mut subresources: Vec<_> = capabilities.subresources.iter().map(|(sub, _)| sub.plural.clone()).collect();
            let mut operations = capabilities.operations.clone();
            subresources.sort();
            operations.sort();
            let scope = format!("{:?}", capabilities.scope);
            json!({"kind": resource.kind, "plural": resource.plural, "scope": scope, "subresources": subresources, "verbs": operations})
        })
        .collect();
    kinds.sort_by_key(|kind| kind["kind"].to_string());
    notes.add("kinds", kinds);
    let missing = discovery::group(&client, "no.such.group").await;
    notes.add("a group that is not there", missing.is_err());
    notes.finish()
}
