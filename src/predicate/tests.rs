use super::*;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

fn pod(metadata: &Value) -> Pod {
    serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
}

/// Returns one event of each type, for the same object.
fn each() -> [Event<Pod>; 4] {
    let one = || pod(&json!({"name": "a"}));
    [
        Event::create(one()),
        Event::update(one(), one()),
        Event::delete(one()),
        Event::generic(one()),
    ]
}

#[test]
fn change_predicates_compare_the_named_field() {
    let update = |old: &Value, new: &Value| Event::<Pod>::update(pod(old), pod(new));
    let cases = [
        // generation, resourceVersion, labels, annotations
        (json!({}), json!({}), [false, false, false, false]),
        (
            json!({"generation": 1}),
            json!({"generation": 1}),
            [false, false, false, false],
        ),
        (
            json!({"generation": 1}),
            json!({"generation": 2}),
            [true, false, false, false],
        ),
        (
            json!({}),
            json!({"generation": 1}),
            [true, false, false, false],
        ),
        (
            json!({"resourceVersion": "7"}),
            json!({"resourceVersion": "8"}),
            [false, true, false, false],
        ),
        (
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"a": "1"}}),
            [false, false, false, false],
        ),
        (
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"a": "2"}}),
            [false, false, true, false],
        ),
        (
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"a": "1", "b": "1"}}),
            [false, false, true, false],
        ),
        (
            json!({"labels": {"a": "1", "b": "1"}}),
            json!({"labels": {"a": "1"}}),
            [false, false, true, false],
        ),
        (
            json!({"labels": {"a": "1"}}),
            json!({}),
            [false, false, true, false],
        ),
        (
            json!({"labels": {}}),
            json!({}),
            [false, false, false, false],
        ),
        (
            json!({"annotations": {"a": "1"}}),
            json!({"annotations": {"a": "2"}}),
            [false, false, false, true],
        ),
        (
            json!({"annotations": {"a": "1"}}),
            json!({"annotations": {"b": "1"}}),
            [false, false, false, true],
        ),
        (
            json!({"annotations": {}}),
            json!({}),
            [false, false, false, false],
        ),
    ];
    let predicates: [&dyn Predicate<Pod>; 4] = [
        &GenerationChanged,
        &ResourceVersionChanged,
        &LabelsChanged,
        &AnnotationsChanged,
    ];
    for (old, new, wanted) in cases {
        let got = predicates.map(|predicate| predicate.accepts(&update(&old, &new)));
        assert_eq!(got, wanted, "{old} to {new}");
    }
}

#[test]
fn change_predicates_drop_only_unchanged_updates() {
    let predicates: [&dyn Predicate<Pod>; 4] = [
        &GenerationChanged,
        &ResourceVersionChanged,
        &LabelsChanged,
        &AnnotationsChanged,
    ];
    for predicate in predicates {
        assert_eq!(
            each().map(|event| predicate.accepts(&event)),
            [true, false, true, true]
        );
    }
}

#[test]
fn and_or_and_not_combine_predicates_for_every_kind_of_event() {
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

/// A missing function accepts, like in controller-runtime.
#[test]
fn a_closure_decides_its_kind_of_event_and_no_other() {
    let decided = |funcs: &Funcs<Pod>| each().map(|event| funcs.accepts(&event));
    assert_eq!(decided(&Funcs::new()), [true; 4]);
    assert_eq!(
        decided(&Funcs::new().create(|_| false)),
        [false, true, true, true]
    );
    assert_eq!(
        decided(&Funcs::new().update(|_, _| false)),
        [true, false, true, true]
    );
    assert_eq!(
        decided(&Funcs::new().delete(|_| false)),
        [true, true, false, true]
    );
    assert_eq!(
        decided(&Funcs::new().generic(|_| false)),
        [true, true, true, false]
    );
    let update = Event::update(pod(&json!({"name": "old"})), pod(&json!({"name": "new"})));
    assert!(
        Funcs::<Pod>::new()
            .update(|old, new| (old.name(), new.name()) == ("old", "new"))
            .accepts(&update)
    );
}

#[test]
fn later_predicates_are_not_called_after_a_decision() {
    let never = || from_fn(|_: &Event<Pod>| unreachable!("it is decided"));
    let event = Event::create(Pod::default());
    assert!(!And(from_fn(|_: &Event<Pod>| false), never()).accepts(&event));
    assert!(Or(from_fn(|_: &Event<Pod>| true), never()).accepts(&event));
}

#[test]
fn update_predicates_check_the_new_object() {
    let event = Event::<Pod>::update(pod(&json!({"name": "old"})), pod(&json!({"name": "new"})));
    assert!(object(|object| object.name() == "new").accepts(&event));
    let event = Event::<Pod>::update(
        pod(&json!({"labels": {"app": "web"}})),
        pod(&json!({"labels": {"app": "shop"}})),
    );
    assert!(labels("app=shop").expect("a selector").accepts(&event));
    assert!(
        !labels("app in (web, db)")
            .expect("a selector")
            .accepts(&event)
    );
}

#[test]
fn an_invalid_selector_is_rejected() {
    let error = labels("app = = web")
        .expect_err("an invalid selector")
        .to_string();
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

#[test]
fn all_and_any_evaluate_in_order_until_one_decides() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = |accepts: bool| {
        let calls = calls.clone();
        from_fn(move |_: &Event<Pod>| {
            calls.fetch_add(1, Relaxed);
            accepts
        })
    };
    let event = Event::<Pod>::create(Pod::default());
    let decide = |predicate: &dyn Predicate<Pod>, accepts: bool, expected_calls: usize| {
        calls.store(0, Relaxed);
        assert_eq!(predicate.accepts(&event), accepts);
        assert_eq!(calls.load(Relaxed), expected_calls);
    };
    let [yes, no] = [true, false];
    decide(&all((counted(yes), counted(no), counted(yes))), false, 2);
    decide(&all([counted(yes), counted(yes)]), true, 2);
    decide(&any((counted(no), counted(yes), counted(no))), true, 2);
    decide(&any(vec![counted(no), counted(no)]), false, 2);
    decide(&all(Vec::<Labels>::new()), true, 0);
    decide(&all(()), true, 0);
    decide(&any(Vec::<Labels>::new()), false, 0);
}
