//! Tests that packed JSON reads as the original.

use super::{NAMES, Names, Packed};
use proptest::{collection::vec, prelude::*};
use serde::{
    Deserialize,
    de::{DeserializeOwned, DeserializeSeed, value::MapDeserializer},
};
use serde_json::{Value, json, value::RawValue};
use std::{collections::BTreeMap, fmt::Debug};

fn pack(names: &Names, json: &str) -> Result<Box<str>, serde_json::Error> {
    let mut packer = names.packer();
    packer
        .field("it")
        .deserialize(&mut serde_json::Deserializer::from_str(json))?;
    Ok(packer.finish())
}

#[derive(Debug, Deserialize, PartialEq)]
struct It<T> {
    it: T,
}

fn read_again<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    let names = Names::default();
    let packed = pack(&names, json)?;
    let known = names.known();
    let mut reader = Packed::new(&packed, &known);
    let It { it } = It::deserialize(&mut reader)?;
    reader.end().expect("all of it was read");
    Ok(it)
}

/// Compares with the result of `serde_json`, including failures.
fn same<T: DeserializeOwned + Debug + PartialEq>(json: &str) {
    assert_eq!(
        read_again::<T>(json).ok(),
        serde_json::from_str(json).ok(),
        "{json} as {}",
        std::any::type_name::<T>()
    );
}

pub(super) fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..70_u8).prop_map(Value::from),
        vec(any::<char>(), 0..80).prop_map(|text| String::from_iter(text).into()),
        "[a-z\"\\\\/]{0,80}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 120, 20, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..20).prop_map(Value::from),
            vec(("[a-e]{1,2}|[a-z\"é]{1,70}", inner), 0..20)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

steersman_testkit::properties! {
    #[test]
    fn any_json_survives_packing(value in values(), pretty in any::<bool>()) {
        let json = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let expected: Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&read_again::<Value>(&json).unwrap(), &expected);
        // The text is the same but for white space.
        let names = Names::default();
        let packed = pack(&names, &json).unwrap();
        let text = Packed::new(&packed, &names.known()).into_json().unwrap();
        prop_assert_eq!(text, serde_json::to_string(&json!({ "it": expected })).unwrap());
    }

    #[test]
    fn invalid_packed_data_does_not_panic(bytes in vec(0..128_u8, 0..40)) {
        let text = String::from_utf8(bytes).unwrap();
        let names = Names::default();
        drop(Value::deserialize(&mut Packed::new(&text, &names.known())));
    }
}

#[test]
fn packed_numbers_deserialize_as_every_numeric_type_like_json() {
    let numbers = [
        "0",
        "15",
        "16",
        "63",
        "64",
        "4095",
        "4096",
        "-1",
        "-64",
        "-65",
        "-0",
        "0.0",
        "1.10",
        "1E5",
        "-2.5e-3",
        "255",
        "256",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1e400",
        "170141183460469231731687303715884105727",
    ];
    for json in numbers {
        same::<u8>(json);
        same::<i8>(json);
        same::<u16>(json);
        same::<i32>(json);
        same::<u64>(json);
        same::<i64>(json);
        same::<f32>(json);
        same::<f64>(json);
        same::<Option<f64>>(json);
        same::<Value>(json);
    }
    // Numbers that fit in 64 bits.
    for json in ["0", "18446744073709551615"] {
        same::<u128>(json);
        same::<i128>(json);
    }
}

#[test]
fn arbitrary_precision_numbers_keep_their_digits() {
    let names = Names::default();
    let number = |text: &'static str| {
        let mut packer = names.packer();
        packer.keeps_digits = true;
        let as_serde_json_gives_it = [("$serde_json::private::Number", text)].into_iter();
        let number: MapDeserializer<'_, _, serde_json::Error> =
            MapDeserializer::new(as_serde_json_gives_it);
        packer.field("it").deserialize(number).expect("packed");
        packer.finish()
    };
    for text in ["1.10", "170141183460469231731687303715884105727", "-0"] {
        let packed = number(text);
        let json = Packed::new(&packed, &names.known())
            .into_json()
            .expect("readable");
        assert_eq!(json, format!(r#"{{"it":{text}}}"#));
    }
    let known = names.known();
    let it = It::<i128>::deserialize(&mut Packed::new(
        &number("170141183460469231731687303715884105727"),
        &known,
    ));
    assert_eq!(it.expect("readable").it, i128::MAX);
    let it = It::<f32>::deserialize(&mut Packed::new(&number("1.10"), &known));
    assert!((it.expect("readable").it - 1.1).abs() < f32::EPSILON);
    for text in ["15", "16", "-5"] {
        assert_eq!(number(text), pack(&names, text).expect("packed"));
    }
}

#[test]
fn packed_data_deserializes_like_json() {
    #[derive(Debug, Deserialize, PartialEq)]
    enum Any {
        Unit,
        New(Vec<i8>),
        Two(u8, Vec<u8>),
        Named { list: Vec<String> },
    }
    #[derive(Debug, Deserialize, PartialEq)]
    struct New(Option<String>);
    #[derive(Debug, Deserialize, PartialEq)]
    struct Flat {
        a: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
    }
    same::<Vec<Any>>(
        r#"["Unit", {"New": [1]}, {"Two": [1, [2]]}, {"Named": {"list": ["a"]}}, {"Unit": null}]"#,
    );
    for json in [
        r#""Other""#,
        r#"{"Unit":1}"#,
        r#"{"New":[1],"Two":[1,[2]]}"#,
        r#"{"Two":[1]}"#,
        "7",
        "null",
        "{}",
    ] {
        same::<Any>(json);
    }
    same::<Vec<New>>(r#"[null, "a"]"#);
    same::<Flat>(r#"{"a":1,"b":[2],"c":{"d":null}}"#);
    same::<Vec<Either>>(r#"[1,"a"]"#);
    same::<BTreeMap<i32, bool>>(r#"{"1":true,"-2":false}"#);
    for json in [
        r#"{"1x":true}"#,
        r#"{" 1":true}"#,
        r#"{"1 ":true}"#,
        r#"{"":true}"#,
    ] {
        same::<BTreeMap<u8, bool>>(json);
    }
    same::<BTreeMap<bool, char>>(r#"{"true":"x"}"#);
    same::<BTreeMap<Option<String>, u8>>(r#"{"a":1}"#);
    for json in ["[1,2]", "[1,2,3]", "[1]", "[]", "{}", "null", r#""ab""#] {
        same::<(u8, u8)>(json);
        same::<Vec<u8>>(json);
        same::<String>(json);
        same::<()>(json);
        same::<Option<Vec<u8>>>(json);
    }
}

#[test]
fn a_field_named_like_the_number_token_of_serde_json_is_a_field() {
    for json in [
        r#"{"$serde_json::private::Number":"7"}"#,
        r#"{"$serde_json::private::Number":7,"a":1}"#,
        r#"{"a":1,"$serde_json::private::Number":"7"}"#,
    ] {
        same::<Value>(json);
        same::<BTreeMap<String, Value>>(json);
    }
}

#[test]
fn an_unread_last_value_is_an_error() {
    #[derive(Debug)]
    struct FirstName;
    impl<'de> Deserialize<'de> for FirstName {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Self)
        }
    }
    impl<'de> serde::de::Visitor<'de> for FirstName {
        type Value = Self;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
            map.next_key::<String>().map(|_| Self)
        }
    }
    assert!(read_again::<FirstName>(r#"{"a":1}"#).is_err());
}

#[test]
fn concurrent_packing_agrees_on_names() {
    let names = Names::default();
    let json = |number: usize| {
        format!(
            r#"{{"a{}":1,"b{}":[{{"c{}":2}}]}}"#,
            number % 150,
            number % 7,
            number % 50
        )
    };
    let work = |from: usize| {
        for number in from..from + 2_000 {
            let packed = pack(&names, &json(number)).expect("packed");
            let read = Packed::new(&packed, &names.known())
                .into_json()
                .expect("readable");
            assert_eq!(read, format!(r#"{{"it":{}}}"#, json(number)));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(0));
        work(31);
    });
}

#[test]
fn a_duplicate_field_is_packed_twice() {
    same::<Value>(r#"{"a":1,"a":2}"#);
    same::<It<u8>>(r#"{"it":1,"it":2}"#);
}

#[test]
fn a_packed_value_is_read_as_raw_json() {
    #[derive(Deserialize)]
    struct Texts {
        one: Box<RawValue>,
        all: BTreeMap<String, Box<RawValue>>,
    }
    let json = r#"{"one": { "a" : [1.50, "\u00e9\"", null, true, -3] }, "all": {"x": 1E5}}"#;
    let texts: Texts = read_again(json).expect("readable");
    assert_eq!(texts.one.get(), r#"{"a":[1.5,"é\"",null,true,-3]}"#);
    assert_eq!(texts.all["x"].get(), "100000.0");
}

#[test]
fn lists_are_allocated_with_exact_capacity() {
    let lists: Vec<Vec<u8>> = read_again("[[1,2,3],[4]]").expect("readable");
    assert_eq!(lists.iter().map(Vec::capacity).collect::<Vec<_>>(), [3, 1]);
}

#[test]
fn many_and_long_names_round_trip() {
    let fields: serde_json::Map<_, _> = (0..2 * NAMES)
        .map(|number| {
            (
                format!("name-{number}{}", "-long".repeat(number % 20)),
                number.into(),
            )
        })
        .collect();
    let value = Value::from(fields);
    assert_eq!(
        read_again::<Value>(&value.to_string()).expect("readable"),
        value
    );
}

#[test]
fn too_deeply_nested_data_is_not_packed() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    same::<Value>(&nested(126));
    let error = pack(&Names::default(), &nested(1_000_000)).expect_err("nested too deeply");
    assert!(error.to_string().contains("recursion limit"), "{error}");
}

#[test]
fn half_a_character_is_an_error() {
    assert!(pack(&Names::default(), r#"{"a":"\ud800"}"#).is_err());
}

#[test]
fn a_pod_takes_less_than_half_of_its_json() {
    let file = include_str!("../../../benches/peers/cache/pod.json");
    let json: String = file.lines().map(str::trim_start).collect();
    let mut pod: serde_json::Map<String, Value> =
        serde_json::from_str(&json.replace("@MANAGED@", "")).expect("a pod");
    for elsewhere in ["apiVersion", "kind", "metadata"] {
        pod.remove(elsewhere);
    }
    let (names, json) = (
        Names::default(),
        serde_json::to_string(&pod).expect("valid JSON"),
    );
    let packed = pack(&names, &json).expect("packed");
    assert!(
        packed.len() * 100 < json.len() * 45,
        "{} of {}",
        packed.len(),
        json.len()
    );
}
