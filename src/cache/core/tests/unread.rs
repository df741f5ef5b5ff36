//! Objects that do not fit their type, or no longer.

use super::*;
use crate::cache::reflect::Unread;
use k8s_openapi::NamespaceResourceScope;
use kube_client::api::{Patch, PatchParams};
use kube_core::{ObjectMeta, Resource};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use std::borrow::Cow;

/// A config map whose value is a number.
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
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
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

impl Scene<Strict> {
    async fn set(&self, name: &str, k: &str) {
        let patch = Patch::Merge(json!({"data": {"k": k}}));
        self.maps.patch(name, &PatchParams::default(), &patch).await.expect("it is there");
    }

    fn kept(&self, name: &str) -> Option<u32> {
        self.core.store.get(&ObjectKey::new("default", name)).map(|kept| kept.data.k)
    }

    async fn until(&self, holds: impl Fn(&InformerStats) -> bool) {
        let holds = async {
            while !holds(&self.core.stats()) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        // A watch lasts for up to ten minutes, and what fails then is tried again later and later.
        let done = tokio::time::timeout(Duration::from_mins(15), holds).await;
        assert!(done.is_ok(), "{:?}", self.core.stats());
    }

    /// A gap that only a list closes.
    async fn relist(&self) {
        let relists = self.core.stats().relists;
        self.server.faults().add(Fault::on("watch configmaps").status(410).times(1));
        self.server.faults().add(Fault::on("watch configmaps").drop_watch_after(0).times(1));
        self.until(|counts| counts.relists > relists).await;
    }
}

/// What a handler is told next.
async fn told(cursor: &mut Cursor<Strict>) -> String {
    match cursor.next().await {
        Some(Item::Event(Event::Create { object, .. })) => format!("+{}", object.full().data.k),
        Some(Item::Event(Event::Update { old, new, .. })) => format!("{}>{}", old.full().data.k, new.full().data.k),
        Some(Item::Event(Event::Delete { object, state_unknown, .. })) => {
            format!("-{}{}", object.full().data.k, if state_unknown { "?" } else { "" })
        }
        Some(Item::InitialDone) => "done".into(),
        None => "ended".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_no_longer_be_read_stays_as_it_was_until_it_can_be_again() {
    let scene = Scene::<Strict>::new();
    scene.make("a").await;
    scene.core.synced().await;
    scene.until(|counts| counts.events == 1).await;
    let mut cursor = scene.core.subscribe();
    assert_eq!(told(&mut cursor).await, "+0");
    assert_eq!(told(&mut cursor).await, "done");

    scene.set("a", "many").await;
    scene.until(|counts| counts.decode_errors > 0).await;
    assert_eq!(scene.kept("a"), Some(0), "told by a watch");
    scene.relist().await;
    assert_eq!(scene.kept("a"), Some(0), "told by a list");
    assert!(cursor.try_next().is_none(), "nothing is known to have happened");

    scene.set("a", "7").await;
    assert_eq!(told(&mut cursor).await, "0>7");
    scene.set("a", "many").await;
    scene.maps.delete("a", &DeleteParams::default()).await.expect("it is there");
    assert_eq!(told(&mut cursor).await, "-7", "as it was when it could be read");
    assert_eq!(scene.core.store.len(), 0);
}

#[test]
fn what_goes_while_it_cannot_be_read_is_gone_after_the_next_list() {
    let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let core = Arc::new(Core::<Strict>::new(Decoder::new(types)));
    let part = whole(&core);
    let entry = |name: &str| {
        let json = json!({"metadata": {"name": name, "resourceVersion": "1"}, "data": {"k": "0"}});
        let object = core.decoder.decode::<Strict>(json.to_string().as_bytes()).expect("an object");
        Entry::new(object.key(), Arc::new(object), 7)
    };
    let key = |name: &str| ObjectKey::cluster_scoped(name);
    let unread = |name: &str| Unread { key: key(name), uid: None };
    let mut cursor = core.subscribe();
    part.all(vec![entry("a"), entry("b")], vec![unread("c")], 10);
    assert_eq!((core.store.len(), core.stats().approximate_bytes), (2, 14), "c never could be read");
    while cursor.try_next().is_some() {}
    part.all(vec![entry("b")], vec![unread("a"), unread("c")], 20);
    assert_eq!((core.store.len(), core.stats().approximate_bytes), (2, 14));
    assert!(cursor.try_next().is_none(), "nothing is known to have happened");
    part.all(vec![entry("b")], Vec::new(), 30);
    let gone = cursor.try_next();
    assert!(
        matches!(&gone, Some(Item::Event(Event::Delete { key: gone, state_unknown: true, .. })) if *gone == key("a")),
        "{gone:?}"
    );
    assert_eq!((core.store.len(), core.stats().approximate_bytes), (1, 7));
}

#[test]
fn what_cannot_be_read_stays_as_it_was_unless_it_is_known_to_be_another_one() {
    for (known, said, stays) in [
        (Some("one"), Some("one"), true),
        (Some("one"), Some("two"), false),
        (Some("one"), None, true),
        (None, Some("two"), true),
    ] {
        let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
        let core = Arc::new(Core::<Strict>::new(Decoder::new(types)));
        let part = whole(&core);
        let json = json!({"metadata": {"name": "a", "uid": known, "resourceVersion": "1"}, "data": {"k": "0"}});
        let object = core.decoder.decode::<Strict>(json.to_string().as_bytes()).expect("an object");
        let key = object.key();
        part.all(vec![Entry::new(key.clone(), Arc::new(object), 7)], Vec::new(), 10);
        let mut cursor = core.subscribe();
        while cursor.try_next().is_some() {}
        part.all(Vec::new(), vec![Unread { key: key.clone(), uid: said.map(Into::into) }], 20);
        assert_eq!(core.store.get(&key).is_some(), stays, "{known:?}, {said:?}");
        let gone = matches!(cursor.try_next(), Some(Item::Event(Event::Delete { state_unknown: true, .. })));
        assert_eq!(gone, !stays, "{known:?}, {said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_never_be_read_is_only_counted() {
    let scene = Scene::<Strict>::new();
    scene.make("a").await;
    scene.core.synced().await;
    let map = serde_json::from_value(json!({"metadata": {"name": "b"}, "data": {"k": "many"}})).expect("a map");
    scene.maps.create(&PostParams::default(), &map).await.expect("it is new");
    scene.until(|counts| counts.decode_errors > 0).await;
    scene.relist().await;
    assert_eq!((scene.kept("a"), scene.core.store.len()), (Some(0), 1));
    let error = scene.core.stats().last_decode_error.expect("it is told");
    assert!(error.contains("default/b") && error.contains("invalid digit"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn only_a_bookmark_looks_for_what_was_decoded_and_dropped() {
    let scene = Scene::<Compact>::new();
    scene.make("a").await;
    scene.converge().await;
    let object = scene.core.store.get(&ObjectKey::new("default", "a")).expect("it is there");
    drop(object.decode::<ConfigMap>().expect("it is one"));
    // As of an event that cannot be read.
    Part { core: scene.core.clone(), namespace: None }.nothing_up_to(scene.core.store.revision());
    assert_eq!(scene.core.decoder.remembered(), 1);
    let swept = async {
        while scene.core.decoder.remembered() > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_mins(5), swept).await.is_ok(), "bookmarks come each minute");
}
