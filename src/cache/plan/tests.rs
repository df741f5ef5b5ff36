mod by_namespace;

use super::*;
use crate::cache::NamespaceScope;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_core::DynamicObject;
use proptest::prelude::*;

type Parts = Vec<(
    Option<&'static str>,
    Option<&'static str>,
    Option<&'static str>,
)>;

fn these(these: impl IntoIterator<Item = impl Into<NamespaceScope>>) -> Namespaces {
    Namespaces::List(these.into_iter().map(Into::into).collect())
}

fn in_a() -> NamespaceScope {
    "a".into()
}

fn pod() -> Select<Pod> {
    Select::new()
}

fn plan<K>(select: &Select<K>, options: &CacheOptions) -> Plan {
    Plan::new(select.declaration(), options).expect("a plan")
}

fn parts(plan: &Plan) -> Vec<(Option<&str>, Option<&str>, Option<&str>)> {
    plan.scope
        .parts
        .iter()
        .map(|(name, selectors)| {
            (
                name.as_deref(),
                selectors.labels.as_deref(),
                selectors.fields.as_deref(),
            )
        })
        .collect()
}

/// Returns options with these default namespaces and labels.
fn defaults(namespaces: Namespaces, labels: Option<&str>) -> CacheOptions {
    CacheOptions {
        namespaces,
        labels: labels.map(Into::into),
        ..CacheOptions::default()
    }
}

fn with_kind(kind: Select<Pod>, options: CacheOptions) -> CacheOptions {
    CacheOptions {
        kinds: vec![
            Select::<Node>::new().labels("other=kind").into(),
            kind.into(),
        ],
        ..options
    }
}

/// Test cases: description, options, declaration and resolved parts.
type Table = Vec<(&'static str, CacheOptions, Select<Pod>, Parts)>;

fn check(table: Table) {
    for (what, options, select, expected) in table {
        assert_eq!(parts(&plan(&select, &options)), expected, "{what}");
    }
}

fn all() -> Namespaces {
    Namespaces::All
}

#[test]
fn the_first_layer_with_namespaces_sets_them() {
    check(vec![
        (
            "nothing is declared",
            defaults(all(), None),
            pod(),
            vec![(None, None, None)],
        ),
        (
            "namespaces: default",
            defaults(these(["a"]), None),
            pod(),
            vec![(Some("a"), None, None)],
        ),
        (
            "namespaces: kind before default",
            with_kind(pod().namespaces(these(["b"])), defaults(these(["a"]), None)),
            pod(),
            vec![(Some("b"), None, None)],
        ),
        (
            "namespaces: declared before kind and default",
            with_kind(pod().namespaces(these(["b"])), defaults(these(["a"]), None)),
            pod().namespaces(these(["c"])),
            vec![(Some("c"), None, None)],
        ),
        (
            "namespaces: `All` overrides the options",
            with_kind(
                pod().namespaces(all()),
                defaults(these([in_a().labels("l=1")]), None),
            ),
            pod(),
            vec![(None, None, None)],
        ),
    ]);
}

#[test]
fn the_narrowest_selector_wins() {
    check(vec![
        (
            "labels: default",
            defaults(all(), Some("l=4")),
            pod(),
            vec![(None, Some("l=4"), None)],
        ),
        (
            "labels: default in a namespace",
            defaults(these([in_a().labels("l=3")]), None),
            pod(),
            vec![(Some("a"), Some("l=3"), None)],
        ),
        (
            "labels: default in a namespace before default",
            defaults(these([in_a().labels("l=3"), "b".into()]), Some("l=4")),
            pod(),
            vec![
                (Some("a"), Some("l=3"), None),
                (Some("b"), Some("l=4"), None),
            ],
        ),
        (
            "labels: kind before default in a namespace",
            with_kind(
                pod().labels("l=2"),
                defaults(these([in_a().labels("l=3")]), Some("l=4")),
            ),
            pod(),
            vec![(Some("a"), Some("l=2"), None)],
        ),
        (
            "labels: kind before default",
            with_kind(pod().labels("l=2"), defaults(all(), Some("l=4"))),
            pod(),
            vec![(None, Some("l=2"), None)],
        ),
        (
            "labels: kind in a namespace before kind",
            with_kind(
                pod()
                    .namespaces(these([in_a().labels("l=1"), "b".into()]))
                    .labels("l=2"),
                defaults(all(), Some("l=4")),
            ),
            pod(),
            vec![
                (Some("a"), Some("l=1"), None),
                (Some("b"), Some("l=2"), None),
            ],
        ),
        (
            "labels: kind's namespace has them of the default's",
            with_kind(
                pod().namespaces(these(["a", "b"])),
                defaults(these([in_a().labels("l=3")]), Some("l=4")),
            ),
            pod(),
            vec![
                (Some("a"), Some("l=3"), None),
                (Some("b"), Some("l=4"), None),
            ],
        ),
        (
            "labels: declared before kind in a namespace",
            with_kind(
                pod().namespaces(these([in_a().labels("l=1")])),
                defaults(all(), None),
            ),
            pod().labels("l=0"),
            vec![(Some("a"), Some("l=0"), None)],
        ),
        (
            "labels: declared in a namespace before declared",
            with_kind(pod().labels("l=2"), defaults(all(), None)),
            pod()
                .labels("l=0")
                .namespaces(these([in_a().labels("l=00")])),
            vec![(Some("a"), Some("l=00"), None)],
        ),
        (
            "labels: the empty selector overrides the options",
            with_kind(pod().labels(""), defaults(all(), Some("l=4"))),
            pod(),
            vec![(None, None, None)],
        ),
    ]);
}

#[test]
fn fields_others_and_sets_by_label_follow_the_same_order() {
    check(vec![
        (
            "fields: as labels, and by themselves",
            with_kind(
                pod()
                    .namespaces(these([in_a().fields("f=1"), "b".into()]))
                    .labels("l=2"),
                CacheOptions {
                    fields: Some("f=4".into()),
                    ..defaults(these([in_a().labels("l=3")]), None)
                },
            ),
            pod(),
            vec![
                (Some("a"), Some("l=2"), Some("f=1")),
                (Some("b"), Some("l=2"), Some("f=4")),
            ],
        ),
        (
            "fields: kind before default",
            with_kind(
                pod().fields("f=2"),
                CacheOptions {
                    fields: Some("f=4".into()),
                    ..defaults(all(), Some("l=4"))
                },
            ),
            pod(),
            vec![(None, Some("l=4"), Some("f=2"))],
        ),
        (
            "others are without those that are named",
            defaults(
                these([NamespaceScope::others(), "b".into(), in_a()]),
                Some("l=4"),
            ),
            pod(),
            vec![
                (
                    None,
                    Some("l=4"),
                    Some("metadata.namespace!=a,metadata.namespace!=b"),
                ),
                (Some("a"), Some("l=4"), None),
                (Some("b"), Some("l=4"), None),
            ],
        ),
        (
            "others have their own selectors beside that",
            with_kind(
                pod().fields("z=2"),
                defaults(
                    these([NamespaceScope::others().labels("l=3"), in_a()]),
                    None,
                ),
            ),
            pod(),
            vec![
                (None, Some("l=3"), Some("metadata.namespace!=a,z=2")),
                (Some("a"), None, Some("z=2")),
            ],
        ),
        (
            "others alone are all",
            defaults(these([NamespaceScope::others().labels("l=3")]), None),
            pod(),
            vec![(None, Some("l=3"), None)],
        ),
        (
            "namespaces by label, with settings of some by name",
            with_kind(
                pod().namespaces(Namespaces::Labelled("t".into())),
                defaults(these([in_a().labels("l=3"), "b".into()]), Some("l=4")),
            ),
            pod(),
            vec![(None, Some("l=4"), None), (Some("a"), Some("l=3"), None)],
        ),
    ]);
}

#[test]
fn page_size_transform_and_representation_come_from_the_declaration_the_kind_or_the_default() {
    let options = CacheOptions {
        page_size: 4,
        ..CacheOptions::default()
    };
    assert_eq!(
        plan(&pod(), &CacheOptions::default()).page_size(None, true),
        500
    );
    assert_eq!(plan(&pod(), &options).page_size(None, true), 4);
    let of_kind = pod()
        .page_size(2)
        .transform(|_| {})
        .compact()
        .managed_fields();
    let options = with_kind(of_kind.clone(), options);
    let inherited = plan(&pod(), &options);
    assert_eq!(
        (
            inherited.page_size(None, true),
            inherited.representation,
            inherited.managed_fields
        ),
        (2, Representation::Compact, true)
    );
    let transform = |plan: &Plan| plan.settings.cluster_scoped.transform.clone();
    assert!(
        transform(&inherited).is_some()
            && transform(&inherited) == of_kind.declaration().settings.transform
    );
    let own = pod().page_size(0).transform(|_| {});
    let declared = plan(&own, &options);
    assert_eq!(declared.page_size(None, true), 0);
    assert!(
        transform(&declared).is_some()
            && transform(&declared) == own.declaration().settings.transform
    );
    // A kind that is named at run time uses the entry of its type.
    let dynamic = plan(&Select::dynamic(pod().declaration().gvk.clone()), &options);
    assert_eq!(dynamic.page_size(None, true), 2);
    assert!(
        dynamic.resource.is_some(),
        "the resource of the type needs no discovery"
    );
}

#[test]
fn a_representation_serves_a_declaration_or_returns_an_error() {
    let options = with_kind(pod(), CacheOptions::default());
    let serves = |options: &CacheOptions, declaration: &Declaration| {
        Plan::new(declaration, options).and_then(|plan| plan.check_serves(declaration, &plan))
    };
    assert_eq!(
        plan(&Select::<Metadata<Pod>>::new(), &options).representation,
        Representation::Typed
    );
    assert!(serves(&options, Select::<Metadata<Pod>>::new().declaration()).is_ok());
    assert!(serves(&options, pod().compact().declaration()).is_ok());
    let metadata = CacheOptions {
        kinds: vec![Select::<Metadata<Pod>>::new().into()],
        ..CacheOptions::default()
    };
    assert!(matches!(
        serves(&metadata, pod().declaration()),
        Err(CacheError::RepresentationMismatch { .. })
    ));
    let other = Select::<Metadata<Pod>>::new().transform(|_| {});
    assert!(matches!(
        serves(&options, other.declaration()),
        Err(CacheError::TransformTypeMismatch { .. })
    ));
    assert!(serves(&metadata, other.declaration()).is_ok());
    let dynamic =
        Select::<DynamicObject>::dynamic(pod().declaration().gvk.clone()).transform(|_| {});
    assert!(serves(&options, dynamic.declaration()).is_ok());
}

#[test]
fn an_informer_has_one_transform() {
    let options = CacheOptions::default();
    let serves = |kept: &Select<Pod>, select: &Select<Pod>| {
        plan(kept, &options).check_serves(select.declaration(), &plan(select, &options))
    };
    let one = pod().transform(|_| {});
    assert!(serves(&one, &one.clone()).is_ok(), "a clone is the same");
    assert!(
        serves(&one, &pod()).is_ok(),
        "a declaration without a transform accepts the existing one"
    );
    let other = |result| matches!(result, Err(CacheError::TransformMismatch { .. }));
    assert!(other(serves(&one, &pod().transform(|_| {}))) && other(serves(&pod(), &one)));
    // The same rules apply to a transform of a namespace.
    let here = pod().namespaces(these([in_a().transform(|_: &mut Pod| {}), "b".into()]));
    let nowhere = pod().namespaces(these(["a", "b"]));
    assert!(serves(&here, &here.clone()).is_ok() && serves(&here, &nowhere).is_ok());
    assert!(
        other(serves(&nowhere, &here)) && other(serves(&here, &nowhere.clone().transform(|_| {})))
    );
    assert!(other(serves(&here.clone().transform(|_| {}), &here)));
}

#[test]
fn a_kind_without_namespaces_is_kept_whole_and_cannot_be_selected_by_namespace() {
    let options = defaults(these([in_a().labels("l=3")]), Some("l=4"));
    let node = Select::<Node>::new;
    assert_eq!(parts(&plan(&node(), &options)), [(None, Some("l=4"), None)]);
    assert_eq!(
        parts(&plan(&node().namespaces(Namespaces::All), &options)),
        [(None, Some("l=4"), None)]
    );
    for some in [these(["a"]), Namespaces::Labelled("t".into())] {
        let rejected = Plan::new(node().namespaces(some.clone()).declaration(), &options);
        assert!(
            matches!(rejected, Err(CacheError::NotNamespaced { .. })),
            "{rejected:?}"
        );
        let of_kind = CacheOptions {
            kinds: vec![node().namespaces(some).into()],
            ..CacheOptions::default()
        };
        assert!(matches!(
            Plan::new(node().declaration(), &of_kind),
            Err(CacheError::NotNamespaced { .. })
        ));
    }
}

#[test]
fn equivalent_scopes_are_equal() {
    let options = defaults(these(["b", "a", "b"]), None);
    let one = plan(
        &pod().labels("b=1, a in (y,x)").fields("z=1,y==2"),
        &options,
    )
    .scope;
    let other = pod()
        .namespaces(these([in_a().fields("y=2,z=1"), "b".into()]))
        .fields("y=2,z=1,z==1");
    assert_eq!(
        one,
        plan(&other.labels("a in (x,y),b==1"), &CacheOptions::default()).scope
    );
    assert_ne!(one, plan(&pod(), &options).scope);
    assert_eq!(
        plan(&pod().fields(" ").labels(" "), &options).scope,
        plan(&pod(), &options).scope
    );
    let labelled = |text: &str| {
        plan(
            &pod().namespaces(Namespaces::Labelled(text.into())),
            &options,
        )
        .scope
    };
    assert_eq!(labelled("b,a"), labelled("a, b"));
    assert_eq!(
        plan(&pod().fields(r"f==a\,b\=c,a=1"), &CacheOptions::default())
            .cluster_selectors
            .fields
            .as_deref(),
        Some(r"a=1,f=a\,b\=c")
    );
}

#[test]
fn a_scope_is_displayed_as_text() {
    let words = |select: &Select<Pod>| plan(select, &CacheOptions::default()).scope.to_string();
    assert_eq!(words(&pod()), "");
    assert_eq!(words(&pod().labels("app")), "labelled app");
    assert_eq!(words(&pod().namespaces(these(["b", "a"]))), "in a, b");
    let some = pod()
        .namespaces(these(["a"]))
        .labels("app=web")
        .fields("spec.x==1");
    assert_eq!(words(&some), "in a, labelled app=web, with spec.x=1");
    let most = pod().namespaces(these([
        "a".into(),
        "b".into(),
        NamespaceScope::others().labels("ours"),
    ]));
    assert_eq!(
        words(&most),
        "in others, labelled ours, with metadata.namespace!=a,metadata.namespace!=b; in a, b"
    );
    assert_eq!(
        words(&pod().namespaces(Namespaces::Labelled("tenant".into()))),
        "in namespaces labelled tenant"
    );
}

#[test]
fn invalid_and_empty_selections_are_rejected() {
    let options = CacheOptions::default();
    for none in [these([""]), Namespaces::List(Vec::new())] {
        let rejected = Plan::new(pod().namespaces(none).declaration(), &options);
        assert!(
            matches!(rejected, Err(CacheError::NoNamespace { .. })),
            "{rejected:?}"
        );
    }
    let in_namespace = these([in_a().labels("a b")]);
    for select in [
        pod().labels("a b"),
        pod().namespaces(in_namespace),
        pod().namespaces(Namespaces::Labelled("a b".into())),
    ] {
        assert!(matches!(
            Plan::new(select.declaration(), &options),
            Err(CacheError::InvalidLabelSelector(_))
        ));
    }
}

/// Random layer: namespaces with their selectors, and the selectors of all objects.
type Random = (Option<Option<Vec<(u8, bool, bool)>>>, bool, bool);

fn random() -> impl Strategy<Value = Random> {
    let these = proptest::sample::subsequence(vec![0u8, 1, 2], 1..=3).prop_flat_map(|names| {
        names
            .into_iter()
            .map(|name| (Just(name), any::<bool>(), any::<bool>()))
            .collect::<Vec<_>>()
    });
    (
        proptest::option::of(proptest::option::of(these)),
        any::<bool>(),
        any::<bool>(),
    )
}

const NAMES: [Option<&str>; 3] = [None, Some("a"), Some("b")];

steersman_testkit::properties! {
    /// Compares the scope with a ranked list of all selectors. The first that applies to the
    /// namespace counts.
    #[test]
    fn resolved_selectors_agree_with_a_simple_model(declaration in proptest::array::uniform3(random())) {
        let text = |rank: usize, of: char, yes: bool| yes.then(|| format!("{of}=r{rank}"));
        let selectors = |rank, (labels, fields)| Selectors { labels: text(rank, 'l', labels), fields: text(rank, 'f', fields) };
        let namespaces = |layer: usize| declaration[layer].0.clone().map(|these| match these {
            None => Namespaces::All,
            Some(these) => Namespaces::List(these.into_iter().map(|(name, labels, fields)| NamespaceScope {
                name: NAMES[usize::from(name)].map(Into::into),
                selectors: selectors(2 * layer, (labels, fields)),
                settings: Settings::default(),
            }).collect()),
        });
        let select = |layer: usize| {
            let mut select = pod();
            if let Some(namespaces) = namespaces(layer) {
                select = select.namespaces(namespaces);
            }
            let Selectors { labels, fields } = selectors(2 * layer + 1, (declaration[layer].1, declaration[layer].2));
            select = labels.iter().fold(select, crate::cache::select::Select::labels);
            fields.iter().fold(select, |select, fields| select.fields(fields))
        };
        let Selectors { labels, fields } = selectors(5, (declaration[2].1, declaration[2].2));
        let options = CacheOptions {
            namespaces: namespaces(2).unwrap_or_default(),
            labels,
            fields,
            kinds: vec![select(1).into()],
            ..CacheOptions::default()
        };
        let scope = plan(&select(0), &options).scope;

        let chosen = declaration.iter().find_map(|(namespaces, ..)| namespaces.clone()).flatten();
        let expected: Vec<_> = chosen.as_ref().map_or(vec![0], |these| these.iter().map(|(name, ..)| *name).collect());
        prop_assert_eq!(scope.parts.len(), expected.len());
        for name in expected {
            // (rank, namespace, labels, fields)
            let mut all = Vec::new();
            for (layer, (namespaces, labels, fields)) in declaration.iter().enumerate() {
                for (about, labels, fields) in namespaces.iter().flatten().flatten() {
                    all.push((2 * layer, Some(*about), *labels, *fields));
                }
                all.push((2 * layer + 1, None, *labels, *fields));
            }
            // With `Namespaces::All`, selectors of single namespaces do not apply.
            all.retain(|(_, about, ..)| about.is_none_or(|about| about == name && chosen.is_some()));
            let labels = all.iter().find(|(.., labels, _)| *labels).map(|(rank, ..)| format!("l=r{rank}"));
            let fields = all.iter().find(|(.., fields)| *fields).map(|(rank, ..)| format!("f=r{rank}"));
            let part = &scope.parts[&NAMES[usize::from(name)].map(Into::into)];
            prop_assert_eq!(&part.labels, &labels);
            let excluded = scope.parts.keys().flatten().filter(|_| name == 0);
            let excluded = excluded.map(|name| format!("metadata.namespace!={name}"));
            let fields: Vec<_> = fields.into_iter().chain(excluded).collect();
            prop_assert_eq!(part.fields.clone().unwrap_or_default(), fields.join(","));
        }
    }
}
