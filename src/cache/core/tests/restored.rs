//! Tests of a server that was restored to an older state and assigns resource versions again.

use super::*;

/// Creates a core without a reflector.
fn informer() -> Arc<Core<Compact>> {
    Arc::new(Core::new(decoder()))
}

fn decoder() -> Decoder {
    Decoder::new(TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    })
}

/// Creates the entry of an object in a namespace.
fn entry(namespace: &str, color: &str, version: u64) -> Entry<Compact> {
    let meta = json!({"name": "o", "namespace": namespace, "uid": "u", "resourceVersion": version.to_string()});
    let json = json!({"metadata": meta, "data": {"door": color}});
    let object = decoder()
        .decode::<Compact>(json.to_string().as_bytes())
        .expect("an object");
    Entry::new(object.key(), Arc::new(object), 0)
}

fn color(core: &Core<Compact>, namespace: &str) -> String {
    let object = core
        .store
        .get(&ObjectKey::new(namespace, "o"))
        .expect("the object exists");
    let map = object.decode::<ConfigMap>().expect("a config map");
    map.data.as_ref().expect("data")["door"].clone()
}

fn count_updates(subscription: &mut Subscription<Compact>) -> usize {
    std::iter::from_fn(|| subscription.try_next())
        .filter(|item| matches!(item, Item::Event(Event::Update { .. })))
        .count()
}

#[test]
fn an_object_with_a_reassigned_resource_version_is_replaced() {
    let core = informer();
    let part = whole(&core);
    part.replace(vec![entry("a", "blue", 5)], Vec::new(), 5);
    let mut subscription = core.subscribe();
    part.put(entry("a", "lost", 6), 6);
    part.advance(8);
    assert_eq!(count_updates(&mut subscription), 1);
    part.replace(vec![entry("a", "other", 6)], Vec::new(), 9);
    assert_eq!(
        (color(&core, "a").as_str(), count_updates(&mut subscription)),
        ("lost", 0),
        "the revision has increased, so the server was not restored"
    );
    part.replace(vec![entry("a", "restored", 6)], Vec::new(), 7);
    assert_eq!(
        (color(&core, "a").as_str(), count_updates(&mut subscription)),
        ("restored", 1)
    );
    part.replace(vec![entry("a", "restored", 6)], Vec::new(), 7);
    assert_eq!(
        count_updates(&mut subscription),
        0,
        "the second list has the same revision"
    );
}

#[test]
fn a_restored_list_affects_only_its_own_namespace() {
    let core = informer();
    let parts = ["a", "b"].map(|name| core.add_namespace(Some(name.to_owned())));
    core.namespaces_complete();
    parts[0].replace(vec![entry("a", "lost", 5)], Vec::new(), 10);
    parts[1].replace(vec![entry("b", "lost", 5)], Vec::new(), 20);
    let mut subscription = core.subscribe();
    // The list is ahead of the other part, and behind its own.
    parts[1].replace(vec![entry("b", "restored", 5)], Vec::new(), 15);
    assert_eq!(
        (color(&core, "a").as_str(), color(&core, "b").as_str()),
        ("lost", "restored")
    );
    assert_eq!(count_updates(&mut subscription), 1);
}

#[test]
fn a_server_restored_while_no_reflector_ran_is_detected() {
    let core = informer();
    core.restart();
    let part = core.add_namespace(None);
    core.namespaces_complete();
    part.replace(vec![entry("a", "lost", 5)], Vec::new(), 10);
    core.restart();
    let part = core.add_namespace(None);
    core.namespaces_complete();
    part.replace(vec![entry("a", "restored", 5)], Vec::new(), 9);
    assert_eq!(color(&core, "a"), "restored");
}

/// The resource versions of some servers are not numbers. Their lists do not count as restored.
#[test]
fn a_list_with_an_opaque_version_does_not_indicate_a_restore() {
    let core = informer();
    let part = whole(&core);
    part.replace(vec![entry("a", "blue", 5)], Vec::new(), 0);
    let mut subscription = core.subscribe();
    part.put(entry("a", "red", 6), 6);
    part.replace(vec![entry("a", "red", 6)], Vec::new(), 0);
    assert_eq!(count_updates(&mut subscription), 1, "the event alone");
}
