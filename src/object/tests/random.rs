//! Generators of random objects as JSON in several formats.

use proptest::{collection::vec, option, prelude::*};
use serde_json::{Map, Value, json};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z][a-z0-9./-]{0,12}",
        1 => vec(any::<char>(), 0..6).prop_map(String::from_iter),
        1 => vec(prop::sample::select(vec!['"', '\\', '\n', '\0', '/', 'é', '😀', '\u{2028}']), 0..4).prop_map(String::from_iter),
    ]
}

/// Generates a missing, null or present value.
fn maybe<T: std::fmt::Debug + Into<Value>>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(Value::Null)),
        4 => value.prop_map(|value| Some(value.into())),
    ]
}

fn map_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    vec((text(), value), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
}

fn texts() -> impl Strategy<Value = Value> {
    map_of(text().prop_map(Value::from))
}

fn time() -> impl Strategy<Value = String> {
    let fraction =
        option::of(1..999_u32).prop_map(|it| it.map(|it| format!(".{it:03}")).unwrap_or_default());
    (0..60_u32, fraction)
        .prop_map(|(second, fraction)| format!("2026-02-03T04:05:{second:02}{fraction}Z"))
}

fn object(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    let present = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect())
}

fn owner() -> impl Strategy<Value = Value> {
    let flag = || maybe(any::<bool>());
    (maybe(text()), text(), maybe(text()), text(), flag(), flag()).prop_map(
        |(version, kind, name, uid, controls, blocks)| {
            object(vec![
                ("apiVersion", version),
                ("kind", Some(kind.into())),
                ("name", name),
                ("uid", Some(uid.into())),
                ("controller", controls),
                ("blockOwnerDeletion", blocks),
            ])
        },
    )
}

fn metadata() -> impl Strategy<Value = Value> {
    let names = (
        "[a-z]{1,8}",
        maybe("[a-z]{0,8}"),
        maybe(text()),
        maybe("[1-9][0-9]{0,8}"),
        maybe(text()),
        maybe(text()),
    );
    let numbers = (
        maybe(any::<i64>()),
        maybe(0..100_i64),
        maybe(time()),
        maybe(time()),
    );
    let lists = (
        maybe(texts()),
        maybe(texts()),
        maybe(vec(text(), 0..3)),
        maybe(vec(owner(), 0..3)),
    );
    (names, numbers, lists, any::<bool>()).prop_map(|(names, numbers, lists, managed)| {
        let fields =
            json!([{ "manager": "kubectl", "operation": "Update", "fieldsV1": { "f:metadata": { "f:labels": {} } } }]);
        object(vec![
            ("aFieldOfTheFuture", Some(json!({ "managedFields": [1, null] }))),
            ("managedFields", managed.then_some(fields)),
            ("name", Some(names.0.into())),
            ("namespace", names.1),
            ("uid", names.2),
            ("resourceVersion", names.3),
            ("generateName", names.4),
            ("selfLink", names.5),
            ("generation", numbers.0),
            ("deletionGracePeriodSeconds", numbers.1),
            ("creationTimestamp", numbers.2),
            ("deletionTimestamp", numbers.3),
            ("labels", lists.0),
            ("annotations", lists.1),
            ("finalizers", lists.2),
            ("ownerReferences", lists.3),
        ])
    })
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            map_of(inner)
        ]
    })
}

/// Generates a config map with additional unknown fields.
fn config_map() -> impl Strategy<Value = Value> {
    let unknown = vec(
        (text().prop_map(|name| format!("x-{name}")), anything()),
        0..4,
    );
    let known = (maybe(texts()), maybe(any::<bool>()), any::<bool>());
    (metadata(), known, unknown).prop_map(|(metadata, (data, immutable, says_kind), unknown)| {
        let kind = |text: &str| says_kind.then(|| text.into());
        let known = object(vec![
            ("apiVersion", kind("v1")),
            ("kind", kind("ConfigMap")),
            ("metadata", Some(metadata)),
            ("data", data),
            ("immutable", immutable),
        ]);
        let Value::Object(known) = known else {
            unreachable!()
        };
        Value::Object(
            unknown
                .into_iter()
                .collect::<Map<_, _>>()
                .into_iter()
                .chain(known)
                .collect(),
        )
    })
}

/// Generates the JSON of a config map: compact, pretty or escaped to ASCII.
pub(super) fn config_map_json() -> impl Strategy<Value = String> {
    (config_map(), 0..3).prop_map(|(value, spelling)| match spelling {
        0 => value.to_string(),
        1 => serde_json::to_string_pretty(&value).unwrap(),
        _ => escape(&value.to_string()),
    })
}

/// Escapes all characters but ASCII. Outside of strings JSON is ASCII.
fn escape(json: &str) -> String {
    let mut escaped = String::new();
    for character in json.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            let mut units = [0; 2];
            escaped.extend(
                character
                    .encode_utf16(&mut units)
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}")),
            );
        }
    }
    escaped
}
