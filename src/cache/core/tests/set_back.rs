//! A server that was set back gives out versions a second time.

use super::*;

/// An informer by itself.
fn informer() -> Arc<Core<Compact>> {
    Arc::new(Core::new(decoder()))
}

fn decoder() -> Decoder {
    Decoder::new(TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() })
}

/// An object in a namespace.
fn entry(namespace: &str, color: &str, version: u64) -> Entry<Compact> {
    let meta = json!({"name": "o", "namespace": namespace, "uid": "u", "resourceVersion": version.to_string()});
    let json = json!({"metadata": meta, "data": {"door": color}});
    let object = decoder().decode::<Compact>(json.to_string().as_bytes()).expect("an object");
    Entry::new(object.key(), Arc::new(object), 0)
}

fn color(core: &Core<Compact>, namespace: &str) -> String {
    let object = core.store.get(&ObjectKey::new(namespace, "o")).expect("it is there");
    let map = object.decode::<ConfigMap>().expect("it is one");
    map.data.as_ref().expect("it has some")["door"].clone()
}

fn told(cursor: &mut Cursor<Compact>) -> usize {
    std::iter::from_fn(|| cursor.try_next()).filter(|item| matches!(item, Item::Event(Event::Update { .. }))).count()
}

#[test]
fn an_object_whose_version_was_given_out_again_is_the_new_one() {
    let core = informer();
    let part = whole(&core);
    part.all(vec![entry("a", "blue", 5)], Vec::new(), 5);
    let mut cursor = core.subscribe();
    part.put(entry("a", "lost", 6), 6);
    part.nothing_up_to(8);
    assert_eq!(told(&mut cursor), 1);
    part.all(vec![entry("a", "other", 6)], Vec::new(), 9);
    assert_eq!((color(&core, "a").as_str(), told(&mut cursor)), ("lost", 0), "a server that goes on says the same");
    part.all(vec![entry("a", "restored", 6)], Vec::new(), 7);
    assert_eq!((color(&core, "a").as_str(), told(&mut cursor)), ("restored", 1));
    part.all(vec![entry("a", "restored", 6)], Vec::new(), 7);
    assert_eq!(told(&mut cursor), 0, "now it goes on from there");
}

#[test]
fn only_the_part_that_was_listed_is_set_back() {
    let core = informer();
    let parts = ["a", "b"].map(|name| core.join(Some(name.to_owned())));
    core.all_joined();
    parts[0].all(vec![entry("a", "lost", 5)], Vec::new(), 10);
    parts[1].all(vec![entry("b", "lost", 5)], Vec::new(), 20);
    let mut cursor = core.subscribe();
    // It is ahead of the other one, and behind itself.
    parts[1].all(vec![entry("b", "restored", 5)], Vec::new(), 15);
    assert_eq!((color(&core, "a").as_str(), color(&core, "b").as_str()), ("lost", "restored"));
    assert_eq!(told(&mut cursor), 1);
}

#[test]
fn a_server_that_was_set_back_while_the_loops_were_not_running_is_noticed_too() {
    let core = informer();
    core.begin();
    let part = core.join(None);
    core.all_joined();
    part.all(vec![entry("a", "lost", 5)], Vec::new(), 10);
    core.begin();
    let part = core.join(None);
    core.all_joined();
    part.all(vec![entry("a", "restored", 5)], Vec::new(), 9);
    assert_eq!(color(&core, "a"), "restored");
}

/// Not every server counts: one that does not is not set back with each list.
#[test]
fn a_list_whose_version_is_no_number_says_nothing_of_that() {
    let core = informer();
    let part = whole(&core);
    part.all(vec![entry("a", "blue", 5)], Vec::new(), 0);
    let mut cursor = core.subscribe();
    part.put(entry("a", "red", 6), 6);
    part.all(vec![entry("a", "red", 6)], Vec::new(), 0);
    assert_eq!(told(&mut cursor), 1, "the event alone");
}
