use super::*;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

fn pod(metadata: &Value) -> Pod {
    serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
}

/// One of each kind, about the same object.
fn each() -> [Event<Pod>; 4] {
    let one = || pod(&json!({"name": "a"}));
    [Event::create(one()), Event::update(one(), one()), Event::delete(one()), Event::generic(one())]
}

// Catalogue 47
#[test]
fn predicates_of_changes_compare_what_they_are_named_after() {
    let update = |old: &Value, new: &Value| Event::<Pod>::update(pod(old), pod(new));
    let cases = [
        // generation, resourceVersion, labels, annotations
        (json!({}), json!({}), [false, false, false, false]),
        (json!({"generation": 1}), json!({"generation": 1}), [false, false, false, false]),
        (json!({"generation": 1}), json!({"generation": 2}), [true, false, false, false]),
        (json!({}), json!({"generation": 1}), [true, false, false, false]),
        (json!({"resourceVersion": "7"}), json!({"resourceVersion": "8"}), [false, true, false, false]),
        (json!({"labels": {"a": "1"}}), json!({"labels": {"a": "1"}}), [false, false, false, false]),
        (json!({"labels": {"a": "1"}}), json!({"labels": {"a": "2"}}), [false, false, true, false]),
        (json!({"labels": {"a": "1"}}), json!({"labels": {"a": "1", "b": "1"}}), [false, false, true, false]),
        (json!({"labels": {"a": "1", "b": "1"}}), json!({"labels": {"a": "1"}}), [false, false, true, false]),
        (json!({"labels": {"a": "1"}}), json!({}), [false, false, true, false]),
        (json!({"labels": {}}), json!({}), [false, false, false, false]),
        (json!({"annotations": {"a": "1"}}), json!({"annotations": {"a": "2"}}), [false, false, false, true]),
        (json!({"annotations": {"a": "1"}}), json!({"annotations": {"b": "1"}}), [false, false, false, true]),
        (json!({"annotations": {}}), json!({}), [false, false, false, false]),
    ];
    let predicates: [&dyn Predicate<Pod>; 4] =
        [&GenerationChanged, &ResourceVersionChanged, &LabelsChanged, &AnnotationsChanged];
    for (old, new, wanted) in cases {
        let got = predicates.map(|predicate| predicate.accepts(&update(&old, &new)));
        assert_eq!(got, wanted, "{old} to {new}");
    }
}

#[test]
fn predicates_of_changes_say_nothing_of_other_events() {
    let predicates: [&dyn Predicate<Pod>; 4] =
        [&GenerationChanged, &ResourceVersionChanged, &LabelsChanged, &AnnotationsChanged];
    for predicate in predicates {
        assert_eq!(each().map(|event| predicate.accepts(&event)), [true, false, true, true]);
    }
}

// Catalogue 48
#[test]
fn and_or_and_not_are_that_for_every_kind_of_event() {
    let says = |answer: bool| from_fn(move |_: &Event<Pod>| answer);
    for event in each() {
        for a in [false, true] {
            assert_eq!(Not(says(a)).accepts(&event), !a);
            for b in [false, true] {
                assert_eq!(And(says(a), says(b)).accepts(&event), a && b);
                assert_eq!(Or(says(a), says(b)).accepts(&event), a || b);
            }
        }
    }
}

/// Upstream: a function that is missing accepts.
#[test]
fn a_closure_decides_its_kind_of_event_and_no_other() {
    let decided = |funcs: &Funcs<Pod>| each().map(|event| funcs.accepts(&event));
    assert_eq!(decided(&Funcs::new()), [true; 4]);
    assert_eq!(decided(&Funcs::new().create(|_| false)), [false, true, true, true]);
    assert_eq!(decided(&Funcs::new().update(|_, _| false)), [true, false, true, true]);
    assert_eq!(decided(&Funcs::new().delete(|_| false)), [true, true, false, true]);
    assert_eq!(decided(&Funcs::new().generic(|_| false)), [true, true, true, false]);
    let update = Event::update(pod(&json!({"name": "old"})), pod(&json!({"name": "new"})));
    assert!(Funcs::<Pod>::new().update(|old, new| (old.name(), new.name()) == ("old", "new")).accepts(&update));
}

#[test]
fn who_need_not_be_asked_is_not_asked() {
    let never = || from_fn(|_: &Event<Pod>| unreachable!("it is decided"));
    let event = Event::create(Pod::default());
    assert!(!And(from_fn(|_: &Event<Pod>| false), never()).accepts(&event));
    assert!(Or(from_fn(|_: &Event<Pod>| true), never()).accepts(&event));
}

#[test]
fn of_an_update_the_new_object_decides() {
    let event = Event::<Pod>::update(pod(&json!({"name": "old"})), pod(&json!({"name": "new"})));
    assert!(object(|object| object.name() == "new").accepts(&event));
    let event = Event::<Pod>::update(pod(&json!({"labels": {"app": "web"}})), pod(&json!({"labels": {"app": "shop"}})));
    assert!(labels("app=shop").expect("a selector").accepts(&event));
    assert!(!labels("app in (web, db)").expect("a selector").accepts(&event));
}

#[test]
fn a_selector_that_is_none_is_refused() {
    let error = labels("app = = web").expect_err("it is none").to_string();
    assert!(error.contains("kubectl -l"), "{error}");
}

#[test]
fn a_predicate_can_be_shared_and_kept_without_its_type() {
    let shared: Arc<dyn Predicate<Pod>> = Arc::new(GenerationChanged);
    let boxed: Box<dyn Predicate<Pod>> = Box::new(shared.clone());
    for event in each() {
        assert_eq!(shared.accepts(&event), boxed.accepts(&event));
    }
}

#[test]
fn an_update_with_two_uids_passes_every_predicate_that_compares() {
    let metadata = |uid| json!({"uid": uid, "generation": 1, "resourceVersion": "1", "labels": {"app": "web"}});
    let recreated = Event::<Pod>::update(pod(&metadata("1")), pod(&metadata("2")));
    assert!(GenerationChanged.accepts(&recreated) && ResourceVersionChanged.accepts(&recreated));
    assert!(LabelsChanged.accepts(&recreated) && AnnotationsChanged.accepts(&recreated));
}
