//! Tests of objects that do not decode, or no longer do.

use super::*;
use crate::object::Undecoded;
use k8s_openapi::NamespaceResourceScope;
use kube_client::api::{Patch, PatchParams};
use kube_core::{ObjectMeta, Resource};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use std::borrow::Cow;

/// Config map whose value is a number.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Strict {
    metadata: ObjectMeta,
    data: Data,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Data {
    #[serde(deserialize_with = "number")]
    k: u32,
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(D::Error::custom)
}

impl Resource for Strict {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Fixture<Strict> {
    async fn set(&self, name: &str, k: &str) {
        let patch = Patch::Merge(json!({"data": {"k": k}}));
        self.maps
            .patch(name, &PatchParams::default(), &patch)
            .await
            .expect("the object exists");
    }

    fn kept(&self, name: &str) -> Option<u32> {
        self.core
            .store
            .get(&ObjectKey::new("default", name))
            .map(|kept| kept.data.k)
    }

    async fn until(&self, holds: impl Fn(&InformerStats) -> bool) {
        let holds = async {
            while !holds(&self.core.stats()) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        // A watch lasts up to ten minutes, and failures are retried with backoff.
        let done = tokio::time::timeout(Duration::from_mins(15), holds).await;
        assert!(done.is_ok(), "{:?}", self.core.stats());
    }

    /// Causes a relist, by a watch that fails with 410.
    async fn relist(&self) {
        let relists = self.core.stats().relists;
        self.server
            .faults()
            .add(Fault::on("watch configmaps").status(410).times(1));
        self.server
            .faults()
            .add(Fault::on("watch configmaps").drop_watch_after(0).times(1));
        self.until(|counts| counts.relists > relists).await;
    }
}

/// Returns the next event as text.
async fn next_event(subscription: &mut Subscription<Strict>) -> String {
    match subscription.next().await {
        Some(Item::Event(Event::Create { object, .. })) => format!("+{}", object.full().data.k),
        Some(Item::Event(Event::Update { old, new, .. })) => {
            format!("{}>{}", old.full().data.k, new.full().data.k)
        }
        Some(Item::Event(Event::Delete {
            object,
            state_unknown,
            ..
        })) => {
            format!(
                "-{}{}",
                object.full().data.k,
                if state_unknown { "?" } else { "" }
            )
        }
        Some(Item::InitialDone) => "done".into(),
        None => "ended".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_update_keeps_the_last_good_state() {
    let fixture = Fixture::<Strict>::new();
    fixture.make("a").await;
    fixture.core.synced().await;
    fixture.until(|counts| counts.events == 1).await;
    let mut subscription = fixture.core.subscribe();
    assert_eq!(next_event(&mut subscription).await, "+0");
    assert_eq!(next_event(&mut subscription).await, "done");

    fixture.set("a", "many").await;
    fixture.until(|counts| counts.decode_errors > 0).await;
    assert_eq!(fixture.kept("a"), Some(0), "sent by a watch");
    fixture.relist().await;
    assert_eq!(fixture.kept("a"), Some(0), "sent by a list");
    assert!(subscription.try_next().is_none(), "no event is delivered");

    fixture.set("a", "7").await;
    assert_eq!(next_event(&mut subscription).await, "0>7");
    fixture.set("a", "many").await;
    fixture
        .maps
        .delete("a", &DeleteParams::default())
        .await
        .expect("the object exists");
    assert_eq!(
        next_event(&mut subscription).await,
        "-7",
        "the last decoded state is delivered"
    );
    assert_eq!(fixture.core.store.len(), 0);
}

#[test]
fn an_undecodable_object_that_is_deleted_is_removed_by_the_next_list() {
    let types = TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let core = Arc::new(Core::<Strict>::new(Decoder::new(types)));
    let part = whole(&core);
    let entry = |name: &str| {
        let json = json!({"metadata": {"name": name, "resourceVersion": "1"}, "data": {"k": "0"}});
        let object = core
            .decoder
            .decode::<Strict>(json.to_string().as_bytes())
            .expect("an object");
        Entry::new(object.key(), Arc::new(object), 7)
    };
    let key = |name: &str| ObjectKey::cluster_scoped(name);
    let unread = |name: &str| Arc::new(Undecoded::named(key(name), None));
    let mut subscription = core.subscribe();
    part.replace(vec![entry("a"), entry("b")], vec![unread("c")], 10);
    assert_eq!(
        (core.store.len(), core.stats().approximate_bytes),
        (2, 14),
        "c never could be read"
    );
    while subscription.try_next().is_some() {}
    part.replace(vec![entry("b")], vec![unread("a"), unread("c")], 20);
    assert_eq!((core.store.len(), core.stats().approximate_bytes), (2, 14));
    assert!(subscription.try_next().is_none(), "no event is delivered");
    part.replace(vec![entry("b")], Vec::new(), 30);
    let gone = subscription.try_next();
    assert!(
        matches!(&gone, Some(Item::Event(Event::Delete { key: gone, state_unknown: true, .. })) if *gone == key("a")),
        "{gone:?}"
    );
    assert_eq!((core.store.len(), core.stats().approximate_bytes), (1, 7));
}

#[test]
fn an_undecodable_object_keeps_its_state_unless_recreated() {
    for (known, reported_uid, stays) in [
        (Some("one"), Some("one"), true),
        (Some("one"), Some("two"), false),
        (Some("one"), None, true),
        (None, Some("two"), true),
    ] {
        let types = TypeMeta {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        };
        let core = Arc::new(Core::<Strict>::new(Decoder::new(types)));
        let part = whole(&core);
        let json = json!({"metadata": {"name": "a", "uid": known, "resourceVersion": "1"}, "data": {"k": "0"}});
        let object = core
            .decoder
            .decode::<Strict>(json.to_string().as_bytes())
            .expect("an object");
        let key = object.key();
        part.replace(
            vec![Entry::new(key.clone(), Arc::new(object), 7)],
            Vec::new(),
            10,
        );
        let mut subscription = core.subscribe();
        while subscription.try_next().is_some() {}
        part.replace(
            Vec::new(),
            vec![Arc::new(Undecoded::named(key.clone(), reported_uid))],
            20,
        );
        assert_eq!(
            core.store.get(&key).is_some(),
            stays,
            "{known:?}, {reported_uid:?}"
        );
        let gone = matches!(
            subscription.try_next(),
            Some(Item::Event(Event::Delete {
                state_unknown: true,
                ..
            }))
        );
        assert_eq!(gone, !stays, "{known:?}, {reported_uid:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_never_decoded_is_only_counted() {
    let fixture = Fixture::<Strict>::new();
    fixture.make("a").await;
    fixture.core.synced().await;
    let map = serde_json::from_value(json!({"metadata": {"name": "b"}, "data": {"k": "many"}}))
        .expect("a map");
    fixture
        .maps
        .create(&PostParams::default(), &map)
        .await
        .expect("the object is created");
    fixture.until(|counts| counts.decode_errors > 0).await;
    fixture.relist().await;
    assert_eq!((fixture.kept("a"), fixture.core.store.len()), (Some(0), 1));
    let error = fixture
        .core
        .stats()
        .last_decode_error
        .expect("a decode error is reported");
    assert!(
        error.contains("default/b") && error.contains("invalid digit"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_bookmark_sweeps_dropped_decoded_objects() {
    let fixture = Fixture::<Compact>::new();
    fixture.make("a").await;
    fixture.converge().await;
    let object = fixture
        .core
        .store
        .get(&ObjectKey::new("default", "a"))
        .expect("the object exists");
    drop(object.decode::<ConfigMap>().expect("a config map"));
    // As for an event that does not decode and has no key.
    NamespaceCore {
        core: fixture.core.clone(),
        namespace: None,
    }
    .advance(fixture.core.store.revision());
    assert_eq!(fixture.core.decoder.remembered(), 1);
    let swept = async {
        while fixture.core.decoder.remembered() > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_mins(5), swept)
            .await
            .is_ok(),
        "bookmarks are sent every minute"
    );
}

/// Events as they come again when a watch is reopened.
#[test]
fn a_repeated_deletion_does_not_remove_a_later_version_that_does_not_decode() {
    let types = TypeMeta::resource::<ConfigMap>();
    let core = Arc::new(Core::<Strict>::new(Decoder::new(types)));
    let part = whole(&core);
    let map = |version: u64, value: &str| {
        let metadata = json!({"name": "a", "resourceVersion": version.to_string()});
        json!({"metadata": metadata, "data": {"k": value}}).to_string()
    };
    let decode = |json: String| core.decoder.decode::<Strict>(json.as_bytes());
    part.replace(Vec::new(), Vec::new(), 4);
    let object = decode(map(5, "1")).expect("decodable");
    let key = Payload::key(&object);
    part.put(Entry::new(key.clone(), Arc::new(object), 0), 5);
    part.delete(&key, None, 6);
    let error = decode(map(7, "x")).expect_err("undecodable");
    part.put_undecoded(error.object.expect("the object has a name"), 7);
    let is_known = || core.undecoded.get(&key).is_some();
    assert!(is_known());
    part.delete(&key, None, 6);
    assert!(is_known(), "the deletion is of the object before");
    part.delete(&key, None, 8);
    assert!(!is_known());
}
