//! Tests of settings that differ between namespaces.

use super::*;
use crate::cache::MetadataTransform;
use std::time::Duration;

#[test]
fn settings_of_a_namespace_override_those_of_all_namespaces() {
    let seconds = Duration::from_secs;
    let options = CacheOptions {
        page_size: 4,
        resync: Some(seconds(4)),
        ..defaults(
            these([
                in_a().page_size(3).resync(seconds(3)),
                "b".into(),
                NamespaceScope::others().page_size(33),
            ]),
            None,
        )
    };
    let settings_of = |plan: &Plan, namespace| {
        (
            plan.page_size(namespace, true),
            plan.resync_periods()
                .of(namespace.or(Some("else")))
                .as_secs(),
        )
    };
    let all = |select: &Select<Pod>, options: &CacheOptions| {
        let plan = plan(select, options);
        [Some("a"), Some("b"), None].map(|namespace| settings_of(&plan, namespace))
    };
    assert_eq!(
        all(&pod(), &options),
        [(3, 3), (4, 4), (33, 4)],
        "defaults in a namespace before defaults"
    );
    let of_kind = with_kind(pod().page_size(2), options.clone());
    assert_eq!(
        all(&pod(), &of_kind),
        [(2, 3), (2, 4), (2, 4)],
        "settings of the kind precede namespace defaults"
    );
    let in_kind = these([in_a().page_size(1), "b".into()]);
    let of_kind = with_kind(pod().page_size(2).namespaces(in_kind), options.clone());
    assert_eq!(
        all(&pod(), &of_kind)[..2],
        [(1, 3), (2, 4)],
        "the kind in a namespace before the kind"
    );
    assert_eq!(
        all(&pod().page_size(0).resync(seconds(0)), &of_kind)[..2],
        [(0, 0), (0, 0)],
        "declared before all"
    );
    let declared = pod()
        .page_size(0)
        .namespaces(these([in_a().page_size(9), "c".into()]));
    assert_eq!(
        all(&declared, &of_kind)[..2],
        [(9, 3), (0, 4)],
        "namespace settings of the declaration come first"
    );
    let everywhere = plan(&pod().namespaces(Namespaces::All), &options);
    assert_eq!(
        settings_of(&everywhere, Some("a")),
        (4, 4),
        "a namespace that is not named is as all"
    );
    let labelled = plan(
        &pod().namespaces(Namespaces::Labelled("t".into())),
        &options,
    );
    assert_eq!(
        [Some("a"), Some("b"), None].map(|name| settings_of(&labelled, name)),
        [(3, 3), (4, 4), (4, 4)]
    );
    // A cluster-scoped kind has the settings of all objects.
    let nodes = plan(&Select::<Node>::new(), &options);
    assert_eq!(
        (
            nodes.page_size(None, false),
            nodes.resync_periods().of(None).as_secs()
        ),
        (4, 4)
    );
}

#[test]
fn the_transform_of_all_kinds_is_the_default() {
    let [of_all, another] = [(), ()].map(|()| MetadataTransform::new(|_| {}));
    let in_b = NamespaceScope::from("b").transform(|_: &mut Metadata| {});
    let b = in_b.settings.transform.clone();
    let options = CacheOptions {
        transform: Some(of_all.clone()),
        ..defaults(these([in_a(), in_b]), None)
    };
    let all = |select: &Select<Pod>, options: &CacheOptions| {
        let transforms = plan(select, options).transforms();
        ["a", "b"].map(|namespace| transforms.of(Some(namespace)).clone())
    };
    assert_eq!(
        all(&pod(), &options),
        [Some(of_all.0.clone()), b],
        "defaults in a namespace before defaults"
    );
    let select = pod().transform(|_| {});
    let of_kind = select.declaration().settings.transform.clone();
    assert_eq!(
        all(&pod(), &with_kind(select, options.clone())),
        [of_kind.clone(), of_kind],
        "the kind before both"
    );
    assert_eq!(
        *plan(&Select::<Node>::new(), &options).transforms().of(None),
        Some(of_all.0.clone())
    );
    assert_ne!(of_all, another, "a transform equals only its clones");

    let (declared, declaration) = (pod().transform(|_| {}), plan(&pod(), &options));
    assert!(
        declaration
            .check_serves(pod().declaration(), &plan(&pod(), &options))
            .is_ok()
    );
    let rejected = declaration.check_serves(declared.declaration(), &plan(&declared, &options));
    assert!(
        matches!(rejected, Err(CacheError::TransformMismatch { .. })),
        "{rejected:?}"
    );
}

#[test]
fn a_transform_of_a_namespace_is_for_the_type_that_is_selected() {
    let wrong = || these([in_a().transform(|_: &mut Node| {})]);
    let rejected = Plan::new(
        pod().namespaces(wrong()).declaration(),
        &CacheOptions::default(),
    );
    assert!(
        matches!(&rejected, Err(CacheError::TransformTypeMismatch { kind, .. }) if kind == "Pod"),
        "{rejected:?}"
    );
    let rejected = Plan::new(
        pod().compact().namespaces(wrong()).declaration(),
        &CacheOptions::default(),
    );
    assert!(
        matches!(rejected, Err(CacheError::TransformTypeMismatch { .. })),
        "a compact informer rejects the transform as well"
    );
    let of_kind = with_kind(pod().namespaces(wrong()), CacheOptions::default());
    assert!(matches!(
        Plan::check(&of_kind),
        Err(CacheError::TransformTypeMismatch { .. })
    ));
    let of_all = defaults(these([in_a().transform(|_: &mut Pod| {})]), None);
    assert!(
        matches!(
            Plan::check(&of_all),
            Err(CacheError::TransformNotForAllKinds)
        ),
        "a type is no kind's"
    );
    let of_all = defaults(these([in_a().transform(|_: &mut Metadata| {})]), None);
    assert!(Plan::check(&of_all).is_ok(), "every kind has metadata");
    assert!(
        Plan::new(
            pod().namespaces(of_all.namespaces).declaration(),
            &CacheOptions::default()
        )
        .is_ok()
    );
}

#[test]
fn declarations_with_the_same_transforms_share_an_informer() {
    let hour = Duration::from_hours(1);
    let serves = |first: &Select<Pod>, second: &Select<Pod>| {
        let options = CacheOptions::default();
        plan(first, &options).check_serves(second.declaration(), &plan(second, &options))
    };
    let select = pod().transform(|_: &mut Pod| {});
    let plain = select.clone().namespaces(these(["a", "b"]));
    let resynced = select
        .clone()
        .namespaces(these([in_a().resync(hour), "b".into()]));
    assert!(
        serves(&plain, &resynced).is_ok(),
        "{:?}",
        serves(&plain, &resynced)
    );
    assert!(serves(&resynced, &plain).is_ok());
    let other = select
        .clone()
        .namespaces(these([in_a().transform(|_: &mut Pod| {}), "b".into()]));
    assert!(
        matches!(
            serves(&plain, &other),
            Err(CacheError::TransformMismatch { .. })
        ),
        "another one of a namespace"
    );

    let others = these([NamespaceScope::others().transform(|_: &mut Pod| {})]);
    let (declaration, unsaid) = (select.namespaces(others.clone()), pod().namespaces(others));
    assert!(
        serves(&declaration, &unsaid).is_ok(),
        "pods are always in a namespace"
    );
}
