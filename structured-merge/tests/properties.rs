//! Properties of apply, of field sets and of their wire format.

use proptest::{collection::vec, prelude::*, sample::subsequence};
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};
use structured_merge::{
    ConvertError, Duplicates, FieldManager, GroupVersionKind, ManagedFields, ManagerKey, Path,
    PathElement, Set, Time, TypedValue, Versions, extract,
    schema::{CrdVersion, Schema, Type},
};

const API_VERSION: &str = "example.com/v1";
const NOW: Time = Time::from_seconds(1_700_000_000);
const LATER: Time = Time::from_seconds(1_700_000_060);

static TYPE: LazyLock<Type> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let item = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": text,
            "port": {"type": "integer", "default": 80},
            "x": text,
            "y": text,
        },
    });
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": text,
        "b": {"type": "integer"},
        "object": {"type": "object", "properties": {"x": text, "y": text, "z": text}},
        "map": {"type": "object", "additionalProperties": text},
        "atomicMap": {
            "type": "object",
            "additionalProperties": text,
            "x-kubernetes-map-type": "atomic",
        },
        "list": {"type": "array", "items": text},
        "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "items": {
            "type": "array",
            "items": item,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "port"],
        },
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}});
    let version = CrdVersion {
        name: "v1",
        schema: Some(&schema),
    };
    let schema = Arc::new(Schema::from_crd([version], false).expect("the schema is valid"));
    schema.find("v1").expect("the version exists")
});

struct Widgets;

impl Versions for Widgets {
    fn type_of(&self, api_version: &str, _: &str) -> Option<Type> {
        (api_version == API_VERSION).then(|| TYPE.clone())
    }

    fn convert(&self, _: &Value, api_version: &str) -> Result<Value, ConvertError> {
        Err(ConvertError::MissingVersion(api_version.to_owned()))
    }
}

fn manager() -> FieldManager<Widgets> {
    FieldManager::new(
        Widgets,
        GroupVersionKind::new("example.com", "v1", "Widget"),
        "",
    )
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![Just(json!("x")), Just(json!("y"))]
}

/// Returns maps with at least one entry.
///
/// A container that becomes empty is replaced by null, as in the Go implementation. Empty
/// containers would therefore break the properties below.
fn texts(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    subsequence(names, 1..=names.len())
        .prop_flat_map(|names| (Just(names.clone()), vec(text(), names.len())))
        .prop_map(|(names, values)| {
            let entries = names.into_iter().map(str::to_owned).zip(values);
            Value::Object(entries.collect())
        })
}

fn members(values: &'static [&'static str]) -> impl Strategy<Value = Value> {
    subsequence(values, 1..=values.len())
        .prop_shuffle()
        .prop_map(|values| json!(values))
}

/// Items with distinct keys. One of them has the port of the default.
fn items(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    subsequence(names, 1..=names.len())
        .prop_shuffle()
        .prop_flat_map(|names| (Just(names.clone()), vec(texts(&["x", "y"]), names.len())))
        .prop_map(|(names, items)| {
            let items = names.into_iter().zip(items).map(|(name, mut item)| {
                let (name, port) = name.split_once(':').unwrap_or((name, ""));
                item["name"] = json!(name);
                if let Ok(port) = port.parse::<i64>() {
                    item["port"] = json!(port);
                }
                item
            });
            items.collect()
        })
}

fn optional(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop::option::of(value)
}

/// Returns configurations that can use every field.
fn config() -> impl Strategy<Value = Value> {
    (
        optional(text()),
        optional((0..3).prop_map(|b| json!(b))),
        optional(texts(&["x", "y", "z"])),
        optional(texts(&["k1", "k2", "k3"])),
        optional(texts(&["k1", "k2"])),
        optional(members(&["x", "y", "z"])),
        optional(members(&["x", "y", "z"])),
        optional(items(&["a", "a:81", "b", "c"])),
        optional(texts(&["p", "q"])),
    )
        .prop_map(|(a, b, object, map, atomic_map, list, set, items, any)| {
            let fields = [
                ("a", a),
                ("b", b),
                ("object", object),
                ("map", map),
                ("atomicMap", atomic_map),
                ("list", list),
                ("set", set),
                ("items", items),
                ("any", any),
            ];
            widget(fields)
        })
}

/// Returns two configurations without a common field.
fn disjoint_configs() -> impl Strategy<Value = (Value, Value)> {
    let first = (
        optional(text()),
        optional(texts(&["k1", "k2"])),
        optional(members(&["x", "y"])),
        optional(items(&["a", "b"])),
        optional(texts(&["x"])),
    );
    let second = (
        optional((0..3).prop_map(|b| json!(b))),
        optional(texts(&["k3"])),
        optional(members(&["z"])),
        optional(items(&["a:81", "c"])),
        optional(texts(&["y", "z"])),
    );
    let first = first.prop_map(|(a, map, set, items, object)| {
        widget([
            ("a", a),
            ("map", map),
            ("set", set),
            ("items", items),
            ("object", object),
        ])
    });
    let second = second.prop_map(|(b, map, set, items, object)| {
        widget([
            ("b", b),
            ("map", map),
            ("set", set),
            ("items", items),
            ("object", object),
        ])
    });
    (first, second)
}

fn widget<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let spec: Map<String, Value> = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    let mut widget = without_spec();
    if !spec.is_empty() {
        widget["spec"] = Value::Object(spec);
    }
    widget
}

fn without_spec() -> Value {
    json!({"apiVersion": API_VERSION, "kind": "Widget", "metadata": {"name": "w"}})
}

fn apply(live: &Value, config: &Value, name: &str) -> Value {
    manager()
        .apply(live, config, name, true, NOW)
        .expect("a forced apply of a valid configuration succeeds")
}

/// Returns the object with sorted lists, because their order depends on the order of applies.
fn sorted(object: &Value) -> Value {
    match object {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (key.clone(), sorted(value)))
            .collect(),
        other => other.clone(),
    }
}

fn managed(object: &Value) -> ManagedFields {
    ManagedFields::decode(&object["metadata"]["managedFields"]).expect("the fields are valid")
}

fn owned(object: &Value, name: &str) -> Set {
    managed(object)
        .managers
        .get(&ManagerKey::apply(name, ""))
        .map(|owned| owned.set.clone())
        .unwrap_or_default()
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        prop_oneof![Just("a"), Just("b"), Just("")].prop_map(PathElement::field),
        (0..3).prop_map(|value| PathElement::key([("name", json!(value)), ("b", json!("\"<"))])),
        prop_oneof![
            Just(json!(1)),
            Just(json!(1.5)),
            Just(json!("x")),
            Just(json!([null]))
        ]
        .prop_map(PathElement::Value),
        (-1_i64..2).prop_map(PathElement::Index),
    ]
}

fn paths() -> impl Strategy<Value = BTreeSet<Path>> {
    let path = vec(element(), 1..4).prop_map(Path);
    vec(path, 0..12).prop_map(|paths| paths.into_iter().collect())
}

/// Returns JSON of any shape, with names that this crate treats specially.
fn json_value() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("metadata"),
        Just("managedFields"),
        Just("spec"),
        Just("items"),
        Just("set"),
        Just("name"),
        Just("port"),
        Just("annotations"),
        Just("kubectl.kubernetes.io/last-applied-configuration"),
        Just("f:spec"),
        Just("k:{\"a\":1}"),
        Just("i:1"),
        Just("."),
        Just("fieldsV1"),
        Just("time"),
    ];
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!("Apply")),
        Just(json!("FieldsV1")),
        Just(json!(API_VERSION)),
        ".{0,6}".prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((name.clone(), inner), 0..5).prop_map(|entries| {
                let entries = entries.into_iter();
                Value::Object(
                    entries
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

steersman_testkit::properties! {
    #[test]
    fn a_repeated_apply_changes_nothing(
        other in config(), first in config(), config in config(),
    ) {
        let live = apply(&manager().empty_object(), &other, "other");
        let live = apply(&live, &first, "m");
        let once = apply(&live, &config, "m");
        let twice = manager().apply(&once, &config, "m", false, LATER);
        prop_assert_eq!(twice.unwrap(), once);
    }

    #[test]
    fn applies_of_disjoint_configurations_commute((first, second) in disjoint_configs()) {
        let empty = manager().empty_object();
        let one = apply(&apply(&empty, &first, "m1"), &second, "m2");
        let two = apply(&apply(&empty, &second, "m2"), &first, "m1");
        prop_assert_eq!(sorted(&one), sorted(&two));
    }

    #[test]
    fn applies_of_disjoint_configurations_do_not_conflict((first, second) in disjoint_configs()) {
        let live = apply(&manager().empty_object(), &first, "m1");
        let both = manager().apply(&live, &second, "m2", false, NOW).unwrap();
        prop_assert_eq!(owned(&both, "m1"), owned(&live, "m1"));
    }

    #[test]
    fn a_manager_that_leaves_removes_its_fields_and_restores_nothing(
        first in config(), second in config(),
    ) {
        let empty = manager().empty_object();
        let both = apply(&apply(&empty, &first, "m1"), &second, "m2");
        let left = apply(&both, &without_spec(), "m1");
        prop_assert!(owned(&left, "m1").is_empty());
        prop_assert_eq!(owned(&left, "m2"), owned(&both, "m2"));
        prop_assert_eq!(
            extract(&left, &TYPE, "m2", "").unwrap(),
            extract(&both, &TYPE, "m2", "").unwrap(),
        );
        // The rest equals an object that only `m2` has applied.
        let alone = apply(&empty, &second, "m2");
        prop_assert_eq!(sorted(&left["spec"]), sorted(&alone["spec"]));
    }

    #[test]
    fn an_update_owns_what_it_changes_and_others_own_the_rest(first in config(), second in config()) {
        // An object without managers is not tracked.
        prop_assume!(first.get("spec").is_some());
        let mut live = manager().update(&manager().empty_object(), first, "u1", NOW).unwrap();
        live["metadata"]["uid"] = json!("1");
        let mut new = second;
        new["metadata"] = live["metadata"].clone();
        let typed = |value| TypedValue::new(Cow::Borrowed(value), &TYPE, Duplicates::Allowed).unwrap();
        let comparison = typed(&live).compare(&typed(&new)).unwrap();
        let changed = comparison.modified.union(&comparison.added);
        let updated = manager().update(&live, new.clone(), "u2", LATER).unwrap();
        let key = |name| ManagerKey::update(name, API_VERSION, "");
        let set = |object, name| {
            let managed = managed(object);
            managed.managers.get(&key(name)).map(|owned| owned.set.clone()).unwrap_or_default()
        };
        prop_assert_eq!(set(&updated, "u2"), changed.clone());
        let rest = set(&live, "u1").difference(&changed).difference(&comparison.removed);
        prop_assert_eq!(set(&updated, "u1"), rest);
        let time = managed(&updated).times.get(&key("u2")).copied();
        prop_assert_eq!(time, (!changed.is_empty()).then_some(LATER));
    }

    #[test]
    fn set_operations_equal_those_of_plain_sets(left in paths(), right in paths()) {
        let (a, b): (Set, Set) = (left.iter().collect(), right.iter().collect());
        let set = |paths: Vec<&Path>| paths.into_iter().collect::<Set>();
        prop_assert_eq!(a.len(), left.len());
        prop_assert_eq!(a.paths().into_iter().collect::<BTreeSet<_>>(), left.clone());
        prop_assert!(left.iter().all(|path| a.contains(&path.0)));
        prop_assert!(right.iter().all(|path| a.contains(&path.0) == left.contains(path)));
        prop_assert_eq!(a.union(&b), set(left.union(&right).collect()));
        prop_assert_eq!(a.intersection(&b), set(left.intersection(&right).collect()));
        prop_assert_eq!(a.difference(&b), set(left.difference(&right).collect()));
        let outside = left.iter().filter(|path| {
            (1..=path.0.len()).all(|end| !right.contains(&Path(path.0[..end].to_vec())))
        });
        prop_assert_eq!(a.recursive_difference(&b), set(outside.collect()));
        let is_leaf = |path: &&Path| {
            !left.iter().any(|other| other.0.len() > path.0.len() && other.0.starts_with(&path.0))
        };
        prop_assert_eq!(a.leaves(), set(left.iter().filter(is_leaf).collect()));
    }

    #[test]
    fn a_field_set_survives_its_wire_format(paths in paths()) {
        let set: Set = paths.iter().collect();
        let wire = serde_json::to_string(&set).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Set>(&wire).unwrap(), &set);
        let value = set.to_value();
        prop_assert_eq!(&serde_json::to_value(&set).unwrap(), &value);
        prop_assert_eq!(&serde_json::from_value::<Set>(value).unwrap(), &set);
    }

    #[test]
    fn managed_fields_survive_their_wire_format(sets in vec(paths(), 0..5)) {
        let mut managed = ManagedFields::default();
        for (index, paths) in sets.iter().enumerate() {
            let key = match index % 2 {
                0 => ManagerKey::apply(format!("m{index}"), "status"),
                _ => ManagerKey::update(format!("m{index}"), API_VERSION, ""),
            };
            let set = paths.iter().collect();
            let api_version = API_VERSION.to_owned();
            managed.managers.insert(key.clone(), structured_merge::VersionedSet { set, api_version });
            if index != 1 {
                managed.times.insert(key, Time::from_seconds(i64::try_from(index).unwrap()));
            }
        }
        let encoded = managed.encode().unwrap_or_default();
        if !managed.managers.is_empty() {
            prop_assert_eq!(&encoded, &serde_json::to_value(managed.to_entries()).unwrap());
        }
        prop_assert_eq!(ManagedFields::decode(&encoded).unwrap(), managed);
    }

    #[test]
    fn arbitrary_json_causes_no_panic(live in json_value(), new in json_value(), schema in json_value()) {
        let manager = manager();
        let object = |value: &Value| {
            let mut object = without_spec();
            object["metadata"]["managedFields"] = value["managedFields"].clone();
            object["metadata"]["annotations"] = value["annotations"].clone();
            object["spec"] = value.clone();
            object
        };
        for (live, new) in [(live.clone(), new.clone()), (object(&live), object(&new))] {
            let _ = manager.update(&live, new.clone(), "m", NOW);
            let _ = manager.apply(&live, &new, "kubectl", false, NOW);
            let _ = manager.apply(&live, &new, "m", true, NOW);
            let _ = extract(&live, &TYPE, "m", "");
        }
        let _ = ManagedFields::decode(&live);
        let _ = serde_json::from_value::<Set>(live.clone());
        let _ = Schema::from_table(&schema);
        let version = CrdVersion { name: "v1", schema: Some(&schema) };
        let _ = Schema::from_crd([version], false);
        let definitions = BTreeMap::from([("x".to_owned(), schema)]);
        let _ = Schema::from_openapi(&definitions, true);
    }
}
