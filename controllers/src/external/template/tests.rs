use super::*;
use serde_json::json;

fn template(spec: Value) -> DynamicObject {
    let mut template: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "ThingTemplate", "metadata": {"name": "purpleTemplate"},
    }))
    .expect("a template");
    template.data = json!({ "spec": spec });
    template
}

fn reference() -> ObjectReference {
    ObjectReference {
        api_version: Some("example.com/v1".into()),
        kind: Some("ThingTemplate".into()),
        name: Some("purple".into()),
        ..ObjectReference::default()
    }
}

fn input<'a>(
    template: &'a DynamicObject,
    template_ref: &'a ObjectReference,
) -> GenerateTemplate<'a> {
    GenerateTemplate {
        template,
        template_ref,
        namespace: "shop",
        name: "",
        cluster_name: "web",
        owner_ref: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

fn generate(spec: Value) -> DynamicObject {
    generate_template(&input(&template(spec), &reference())).expect("an object")
}

fn map_of(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    entries.collect()
}

#[test]
fn a_template_without_content_gives_an_object_with_metadata_only() {
    for spec in [
        json!({}),
        json!({"template": null}),
        json!({"template": {}}),
        json!({"template": {"metadata": null}}),
        json!(null),
    ] {
        let object = generate(spec);
        let types = object.types.expect("types");
        assert_eq!(
            (&*types.api_version, &*types.kind),
            ("example.com/v1", "Thing")
        );
        let name = object.metadata.name.expect("a name");
        assert!(
            name.starts_with("purpleTemplate-") && name.len() == 20,
            "{name}"
        );
        assert_eq!(object.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(object.data, json!({}));
    }
}

#[test]
fn content_that_is_not_a_map_is_an_error() {
    let error = |spec| {
        let template = template(spec);
        let error = generate_template(&input(&template, &reference()));
        error.expect_err("invalid content").to_string()
    };
    let start = "failed to retrieve Spec.Template map on example.com/v1, Kind=ThingTemplate \
                 \"purpleTemplate\": ";
    assert_eq!(
        error(json!({"template": "a"})),
        format!(
            "{start}.spec.template accessor error: a is of the type string, expected \
             map[string]interface{{}}"
        )
    );
    assert_eq!(
        error(json!([1])),
        format!(
            "{start}.spec.template accessor error: [1] is of the type []interface {{}}, expected \
             map[string]interface{{}}"
        )
    );
    assert_eq!(
        error(json!({"template": {"metadata": true}})),
        format!(
            "{start}.spec.template.metadata accessor error: true is of the type bool, expected \
             map[string]interface{{}}"
        )
    );
    let labels = error(json!({"template": {"metadata": {"labels": {"a": 1}}}}));
    let expected = format!("{start}failed to unmarshal field at .spec.template.metadata to json: ");
    assert!(labels.starts_with(&expected), "{labels}");
}

#[test]
fn content_is_kept_besides_fields_of_the_template_object() {
    let object = generate(json!({"template": {
        "apiVersion": "other.com/v2",
        "kind": "OtherTemplate",
        "spec": {"size": 3},
        "status": {"ready": true},
        "extra": [1],
        "metadata": {
            "name": "ignored", "namespace": "ignored", "uid": "1", "resourceVersion": "2",
            "selfLink": "/a", "finalizers": ["a/b"], "generateName": "kept-", "generation": 4,
            "creationTimestamp": null,
            "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}],
        },
    }}));
    let types = object.types.expect("types");
    assert_eq!(
        (&*types.api_version, &*types.kind),
        ("other.com/v2", "OtherTemplate")
    );
    let data = json!({"spec": {"size": 3}, "status": {"ready": true}, "extra": [1]});
    assert_eq!(object.data, data);
    let metadata = object.metadata;
    assert_eq!((metadata.uid, metadata.resource_version), (None, None));
    assert_eq!((metadata.self_link, metadata.finalizers), (None, None));
    assert_eq!(metadata.generate_name.as_deref(), Some("kept-"));
    assert_eq!(metadata.generation, Some(4));
    assert_eq!(
        metadata.owner_references.map(|owners| owners.len()),
        Some(1)
    );
    assert_ne!(metadata.name.as_deref(), Some("ignored"));
}

#[test]
fn the_owner_of_the_input_replaces_those_of_the_content() {
    let owner = |name: &str| OwnerReference {
        name: name.into(),
        ..OwnerReference::default()
    };
    let spec = json!({"template": {"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"},
        {"apiVersion": "v1", "kind": "A", "name": "b", "uid": "v"},
    ]}}});
    let (template, reference) = (template(spec), reference());
    let object = generate_template(&GenerateTemplate {
        owner_ref: Some(owner("machine")),
        ..input(&template, &reference)
    })
    .expect("an object");
    assert_eq!(
        object.metadata.owner_references,
        Some(vec![owner("machine")])
    );
}

#[test]
fn reserved_labels_and_annotations_override_those_of_the_input_and_the_content() {
    let spec = json!({"template": {"metadata": {
        "labels": {"a": "content", "b": "content", "cluster.x-k8s.io/cluster-name": "content"},
        "annotations": {"a": "content", "b": "content", "cluster.x-k8s.io/cloned-from-name": "x"},
    }}});
    let (template, reference) = (template(spec), reference());
    let extra = [("b", "input"), ("cluster.x-k8s.io/cluster-name", "input")];
    let object = generate_template(&GenerateTemplate {
        labels: map_of(&extra),
        annotations: map_of(&[
            ("b", "input"),
            ("cluster.x-k8s.io/cloned-from-groupkind", "x"),
        ]),
        ..input(&template, &reference)
    })
    .expect("an object");
    let labels = map_of(&[
        ("a", "content"),
        ("b", "input"),
        ("cluster.x-k8s.io/cluster-name", "web"),
    ]);
    assert_eq!(object.metadata.labels, Some(labels));
    let annotations = map_of(&[
        ("a", "content"),
        ("b", "input"),
        // From the reference, not from the template.
        ("cluster.x-k8s.io/cloned-from-name", "purple"),
        (
            "cluster.x-k8s.io/cloned-from-groupkind",
            "ThingTemplate.example.com",
        ),
    ]);
    assert_eq!(object.metadata.annotations, Some(annotations));
}

#[test]
fn an_empty_cluster_name_and_an_empty_reference_are_recorded_as_empty() {
    let (template, reference) = (template(json!({})), ObjectReference::default());
    let object = generate_template(&GenerateTemplate {
        cluster_name: "",
        ..input(&template, &reference)
    })
    .expect("an object");
    let labels = map_of(&[("cluster.x-k8s.io/cluster-name", "")]);
    assert_eq!(object.metadata.labels, Some(labels));
    let annotations = map_of(&[
        ("cluster.x-k8s.io/cloned-from-name", ""),
        ("cluster.x-k8s.io/cloned-from-groupkind", ""),
    ]);
    assert_eq!(object.metadata.annotations, Some(annotations));
}

#[test]
fn names_have_at_most_63_characters_unless_the_input_names_a_longer_one() {
    let reference = reference();
    for length in [57, 58, 63, 253] {
        let mut template = template(json!({}));
        template.metadata.name = Some("a".repeat(length));
        let object = generate_template(&input(&template, &reference)).expect("an object");
        let name = object.metadata.name.expect("a name");
        assert_eq!(name.len(), (length + 1).min(58) + 5);
        let given = "b".repeat(length);
        let named = GenerateTemplate {
            name: &given,
            ..input(&template, &reference)
        };
        let object = generate_template(&named).expect("an object");
        assert_eq!(object.metadata.name, Some(given));
    }
}

#[test]
fn the_kind_loses_one_suffix() {
    let kinds = [
        ("ThingTemplate", "Thing"),
        ("ThingTemplateTemplate", "ThingTemplate"),
        ("TemplateThing", "TemplateThing"),
        ("Template", ""),
    ];
    for (kind, expected) in kinds {
        let mut template = template(json!({"template": {"kind": 7, "apiVersion": null}}));
        template.types = Some(TypeMeta {
            api_version: "v1".into(),
            kind: kind.into(),
        });
        let object = generate_template(&input(&template, &reference())).expect("an object");
        let types = object.types.expect("types");
        assert_eq!((&*types.api_version, &*types.kind), ("v1", expected));
    }
}
