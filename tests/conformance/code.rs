//! Cases as code: what kube-rs and its runtime make of the server, and what happens when many write at once. Each notes what it saw; the notes
//! are its transcript.

use crate::run::{Entry, Names, Transcript};
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, future::join_all, stream};
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
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// A case, by its id.
pub(crate) type Case = (&'static str, fn(Client, Names) -> BoxFuture<'static, Transcript>);

pub(crate) const CASES: &[Case] = &[
    ("many-puts-with-one-version", |client, names| many_puts(client, names).boxed()),
    ("many-merges-at-once", |client, names| many_merges(client, names).boxed()),
    ("writers-that-retry-lose-nothing", |client, names| writers_that_retry(client, names).boxed()),
    ("watchers-of-racing-writes-agree", |client, names| watchers_agree(client, names).boxed()),
    ("finalizer-helper", |client, names| finalizer_helper(client, names).boxed()),
    ("watcher-and-metadata-watcher", |client, names| watchers_of_metadata(client, names).boxed()),
    ("definition-established", |client, names| established(client, names).boxed()),
    ("event-recorder", |client, names| event_recorder(client, names).boxed()),
    ("controller-with-owned-objects", |client, names| controller(client, names).boxed()),
    ("pages-of-a-list", |client, names| pages(client, names).boxed()),
    ("scale-of-a-custom-resource", |client, names| scale(client, names).boxed()),
    ("preconditions-of-deletion", |client, names| preconditions(client, names).boxed()),
    ("discovery-of-a-group", |client, names| discovery_of_a_group(client, names).boxed()),
];

/// What a case saw.
#[derive(Default)]
struct Notes(Vec<Entry>);

impl Notes {
    fn add(&mut self, what: &str, seen: impl Serialize) {
        let answer = serde_json::to_value(seen).expect("notes are JSON");
        self.0.push(Entry { line: what.into(), answer });
    }

    fn end(self) -> Transcript {
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

/// The answer, or the refusal.
fn told<T: Serialize>(answer: Result<T, kube::Error>) -> Value {
    match answer {
        Ok(answer) => serde_json::to_value(answer).expect("an answer is JSON"),
        Err(kube::Error::Api(status)) => serde_json::to_value(status).expect("a status is JSON"),
        Err(error) => error.to_string().into(),
    }
}

fn code<T>(answer: &Result<T, kube::Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

fn is_conflict<T>(answer: &Result<T, kube::Error>) -> bool {
    code(answer) == 409
}

async fn many_puts(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (config_maps(&client, &names), Notes::default());
    let first = api.create(&PostParams::default(), &config_map("a")).await.expect("it is new");
    let puts = (0..20).map(|number| {
        let mut changed = first.clone();
        changed.data = Some([("k".into(), number.to_string())].into());
        let api = api.clone();
        async move { code(&api.replace("a", &PostParams::default(), &changed).await) }
    });
    let mut codes = join_all(puts).await;
    codes.sort_unstable();
    notes.add("twenty puts that know the same version", codes);
    notes.end()
}

async fn many_merges(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (widgets(&client, &names), Notes::default());
    api.create(&PostParams::default(), &widget("w")).await.expect("it is new");
    let merges = (0..60).map(|number| {
        let api = api.clone();
        async move {
            let patch = json!({"metadata": {"annotations": {format!("k{number:02}"): "1"}}});
            code(&api.patch("w", &PatchParams::default(), &Patch::Merge(patch)).await)
        }
    });
    let codes = join_all(merges).await;
    notes.add("sixty merges", codes);
    notes.add("the object", told(api.get("w").await)["metadata"]["annotations"].clone());
    notes.end()
}

async fn writers_that_retry(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (config_maps(&client, &names), Notes::default());
    api.create(&PostParams::default(), &config_map("counter")).await.expect("it is new");
    let writers = (0..4).map(|_| {
        let api = api.clone();
        async move {
            for _ in 0..10 {
                loop {
                    let mut read = api.get("counter").await.expect("it is there");
                    let data = read.data.get_or_insert_default();
                    let count: u32 = data.get("n").map_or(0, |count| count.parse().expect("a number"));
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
    notes.add("four writers, ten increments each", api.get("counter").await.expect("it is there").data);
    notes.end()
}

async fn watchers_agree(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (config_maps(&client, &names), Notes::default());
    let from = api.list(&ListParams::default()).await.expect("a list").metadata.resource_version.expect("a version");
    let watch = async || {
        let events = api.watch(&kube::api::WatchParams::default(), &from).await.expect("a watch");
        let events = events.map_ok(|event| match event {
            kube::api::WatchEvent::Added(object) => ("added", object),
            kube::api::WatchEvent::Modified(object) => ("modified", object),
            kube::api::WatchEvent::Deleted(object) => ("deleted", object),
            other => panic!("{other:?}"),
        });
        let events = events.map_ok(|(kind, object)| (kind, object.name_any(), object.resource_version()));
        events.take(300).try_collect::<Vec<_>>().await.expect("events")
    };
    let write = async |writer: usize| {
        for number in 0..25 {
            let name = format!("o{writer}-{number}");
            api.create(&PostParams::default(), &config_map(&name)).await.expect("it is new");
            let patch = Patch::Merge(json!({"data": {"k": "v"}}));
            api.patch(&name, &PatchParams::default(), &patch).await.expect("it is there");
            api.delete(&name, &DeleteParams::default()).await.expect("it is there");
        }
    };
    let (seen, ..) =
        tokio::join!(async { tokio::join!(watch(), watch(), watch()) }, write(0), write(1), write(2), write(3));
    notes.add("all three saw the same", seen.0 == seen.1 && seen.1 == seen.2);
    let versions: Vec<u64> = seen.0.iter().filter_map(|(_, _, version)| version.as_ref()?.parse().ok()).collect();
    notes.add("versions only grow", versions.len() == 300 && versions.is_sorted_by(|a, b| a < b));
    let mut lives = BTreeMap::<_, Vec<_>>::new();
    for (kind, name, _) in seen.0 {
        lives.entry(name).or_default().push(kind);
    }
    notes.add("the life of each", lives);
    notes.end()
}

async fn finalizer_helper(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (widgets(&client, &names), Notes::default());
    api.create(&PostParams::default(), &widget("w")).await.expect("it is new");
    let step = async |notes: &mut Notes| {
        let Some(object) = api.get_opt("w").await.expect("an answer") else { return notes.add("gone", true) };
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
        notes.add("then the object is", told(api.get("w").await));
    };
    step(&mut notes).await;
    step(&mut notes).await;
    api.delete("w", &DeleteParams::default()).await.expect("it is there");
    step(&mut notes).await;
    step(&mut notes).await;
    notes.end()
}

async fn watchers_of_metadata(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (config_maps(&client, &names), Notes::default());
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &config_map(name)).await.expect("it is new");
    }
    let watch = watcher::Config::default();
    let listed = watcher(api.clone(), watch.clone().page_size(1));
    let streamed = watcher(api.clone(), watch.clone().streaming_lists());
    let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client, &names.namespaces[0]);
    let metadata = watcher(metadata, watch);
    let mut seen = Vec::new();
    let (mut listed, mut streamed, mut metadata) = (
        listed.applied_objects().map_ok(|object| object.name_any()).boxed(),
        streamed.applied_objects().map_ok(|object| object.name_any()).boxed(),
        metadata.applied_objects().map_ok(|object| format!("{} {:?}", object.name_any(), object.types)).boxed(),
    );
    let next = async |stream: &mut stream::BoxStream<'_, Result<String, watcher::Error>>| {
        stream.try_next().await.expect("no error").expect("an event")
    };
    for name in ["", "", "c"] {
        if !name.is_empty() {
            api.create(&PostParams::default(), &config_map(name)).await.expect("it is new");
        }
        seen.push([next(&mut listed).await, next(&mut streamed).await, next(&mut metadata).await]);
    }
    notes.add("paged, streamed and metadata watchers see", seen);
    notes.end()
}

/// A kind of a group that is known only at run time.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "placeholder.example.com", version = "v1", kind = "Gadget", namespaced)]
struct GadgetSpec {
    size: Option<u32>,
}

async fn established(client: Client, names: Names) -> Transcript {
    let mut notes = Notes::default();
    let definition = serde_json::to_string(&Gadget::crd()).expect("a definition is JSON");
    let definition: CustomResourceDefinition =
        serde_json::from_str(&definition.replace("placeholder.example.com", &names.group)).expect("a definition");
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name_any();
    api.create(&PostParams::default(), &definition).await.expect("it is new");
    await_condition(api.clone(), &name, conditions::is_crd_established()).await.expect("it is established");

    let mut resource = ApiResource::erase::<Gadget>(&());
    resource.group.clone_from(&names.group);
    resource.api_version = format!("{}/v1", names.group);
    let gadgets: Api<DynamicObject> = Api::namespaced_with(client, &names.namespaces[0], &resource);
    let gadget = DynamicObject::new("g", &resource).data(json!({"spec": {"size": 3, "other": 1}}));
    // The path may be served a moment after the definition says so.
    let made = loop {
        match gadgets.create(&PostParams::default(), &gadget).await {
            Err(kube::Error::Api(status)) if status.code == 404 => tokio::time::sleep(Duration::from_millis(20)).await,
            made => break made,
        }
    };
    notes.add("a custom resource", told(made));
    let negative = DynamicObject::new("n", &resource).data(json!({"spec": {"size": -1}}));
    notes.add("one that does not fit", told(gadgets.create(&PostParams::default(), &negative).await));
    let uid = api.get(&name).await.expect("it is there").uid().expect("a uid");
    api.delete(&name, &DeleteParams::default()).await.expect("it is there");
    await_condition(api.clone(), &name, conditions::is_deleted(&uid)).await.expect("it goes");
    notes.add("the definition", told(api.get(&name).await));
    notes.end()
}

async fn event_recorder(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (config_maps(&client, &names), Notes::default());
    let subject = api.create(&PostParams::default(), &config_map("a")).await.expect("it is new");
    let subject = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("ConfigMap".into()),
        name: subject.metadata.name,
        namespace: subject.metadata.namespace,
        uid: subject.metadata.uid,
        ..ObjectReference::default()
    };
    let reporter = Reporter { controller: "conformance".into(), instance: Some("one".into()) };
    let recorder = Recorder::new(client.clone(), reporter);
    let event = Event {
        type_: EventType::Normal,
        reason: "Seen".into(),
        note: Some("as it is".into()),
        action: "Looking".into(),
        secondary: None,
    };
    for _ in 0..2 {
        recorder.publish(&event, &subject).await.expect("it is recorded");
    }
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client, &names.namespaces[0]);
    let mut listed = told(events.list(&ListParams::default()).await);
    // Its name is made of the time.
    for item in listed["items"].as_array_mut().into_iter().flatten() {
        item["metadata"]["name"] = "of the time".into();
    }
    notes.add("the events", listed);
    notes.end()
}

async fn controller(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (widgets(&client, &names), Notes::default());
    let owned = config_maps(&client, &names);
    for number in 0..10 {
        api.create(&PostParams::default(), &widget(&format!("w{number}"))).await.expect("it is new");
    }
    let resource = widget_resource();
    let reconcile = {
        let owned = owned.clone();
        move |widget: Arc<DynamicObject>, _: Arc<()>| {
            let owned = owned.clone();
            async move {
                let mut child = config_map(&widget.name_any());
                let owner = kube::Resource::controller_owner_ref(&*widget, &widget_resource()).expect("it has a uid");
                child.metadata.owner_references = Some(vec![owner]);
                match owned.create(&PostParams::default(), &child).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(Action::await_change()),
                    made => made.map(|_| Action::await_change()),
                }
            }
        }
    };
    let running = Controller::new_with(api.clone(), watcher::Config::default(), resource)
        .owns(owned.clone(), watcher::Config::default())
        .run(reconcile, |_, error: &kube::Error, _| panic!("{error}"), Arc::new(()));
    let running = tokio::spawn(running.for_each(|_| async {}));
    let list = async || owned.list(&ListParams::default()).await.expect("a list").items;
    let all = async || {
        while list().await.len() < 10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    all().await;
    // What is taken away comes again.
    owned.delete("w3", &DeleteParams::default()).await.expect("it is there");
    all().await;
    running.abort();
    let owners: Vec<_> =
        list().await.into_iter().map(|map| (map.name_any(), map.owner_references()[0].name.clone())).collect();
    notes.add("each has its own", owners);
    notes.end()
}

async fn pages(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (config_maps(&client, &names), Notes::default());
    for number in 0..5 {
        api.create(&PostParams::default(), &config_map(&format!("a{number}"))).await.expect("it is new");
    }
    let mut page = ListParams::default().limit(2);
    loop {
        let list = api.list(&page).await.expect("a page");
        let names: Vec<_> = list.items.iter().map(ResourceExt::name_any).collect();
        notes.add("a page", json!({"names": names, "remaining": list.metadata.remaining_item_count}));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return notes.end(),
        }
    }
}

async fn scale(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (widgets(&client, &names), Notes::default());
    api.create(&PostParams::default(), &widget("w")).await.expect("it is new");
    notes.add("as made", told(api.get_scale("w").await));
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    notes.add("scaled", told(api.patch_scale("w", &PatchParams::default(), &patch).await));
    let patch = Patch::Merge(json!({"spec": {"replicas": 50}}));
    notes.add("too far", told(api.patch_scale("w", &PatchParams::default(), &patch).await));
    notes.add("the object", told(api.get("w").await));
    notes.end()
}

async fn preconditions(client: Client, names: Names) -> Transcript {
    let (api, mut notes) = (config_maps(&client, &names), Notes::default());
    let made = api.create(&PostParams::default(), &config_map("a")).await.expect("it is new");
    let on = |uid: Option<String>, resource_version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version }),
        ..DeleteParams::default()
    };
    let other_uid = Some("00000000-0000-4000-8000-000000000000".into());
    let deletion = async |params: DeleteParams| match api.delete("a", &params).await {
        Ok(either) => either.either(|object| told(Ok(object)), |status| told(Ok(status))),
        Err(error) => told::<()>(Err(error)),
    };
    notes.add("another uid", deletion(on(other_uid, None)).await);
    notes.add("another version", deletion(on(None, Some("1".into()))).await);
    notes.add("its own", deletion(on(made.uid(), made.resource_version())).await);
    notes.end()
}

async fn discovery_of_a_group(client: Client, _: Names) -> Transcript {
    let mut notes = Notes::default();
    let group = discovery::group(&client, "conformance.example.com").await.expect("the group");
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
    notes.end()
}
