use crate::{
    schema::{Schema, cel::Violations},
    status::FieldErrors,
};
use serde_json::{Value, json};

fn text(errors: &FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn schema_of(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

/// Compiles a schema whose `spec` is given.
fn compile(spec: Value) -> Result<Schema, Vec<String>> {
    Schema::from_crd(&schema_of(spec), false, "s").map_err(|errors| text(&errors))
}

fn check(schema: &Schema, spec: Value, old: Option<Value>) -> Violations {
    let object = |spec| json!({"apiVersion": "example.com/v1", "kind": "W", "metadata": {"name": "w"}, "spec": spec});
    schema.validate(&object(spec), old.map(object).as_ref())
}

fn errors(schema: &Schema, spec: Value, old: Option<Value>) -> Vec<String> {
    text(&check(schema, spec, old).errors)
}

/// Fields of the specs in these tests.
fn fields() -> Value {
    json!({
        "n": {"type": "integer"},
        "d": {"type": "number"},
        "s": {"type": "string", "maxLength": 20},
        "b": {"type": "boolean"},
        "namespace": {"type": "string", "maxLength": 20},
        "a.b": {"type": "integer"},
        "time": {"type": "string", "format": "date-time"},
        "wait": {"type": "string", "format": "duration"},
        "port": {"x-kubernetes-int-or-string": true, "maxLength": 20},
        "nums": {"type": "array", "maxItems": 10, "items": {"type": "integer"}},
        "set": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 10}},
        "list": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 10}, "v": {"type": "integer"}}}},
        "map": {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "integer"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

fn spec() -> Value {
    json!({"n": 3, "d": 1.5, "s": "hello", "b": true, "namespace": "x", "a.b": 4, "time": "2024-05-06T07:08:09Z",
        "wait": "90s", "port": "80%", "nums": [1, 2, 3], "set": ["a", "b"],
        "list": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "map": {"x": 1, "y": 2}, "free": {"any": 1}})
}

fn with_rule(rule: &str) -> Result<Schema, Vec<String>> {
    let rules = json!([{"rule": rule, "message": "is false"}]);
    compile(json!({"type": "object", "properties": fields(), "x-kubernetes-validations": rules}))
}

#[test]
fn expressions_have_the_values_of_the_real_server() {
    for rule in [
        "self.n == 3 && self.n != 4 && !(self.n > 3) && self.n <= 3",
        "self.n + 1 == 4 && self.n * 2 == 6 && self.n / 2 == 1 && self.n % 2 == 1 && -self.n == -3",
        "self.d > 1 && self.d < 2u && double(self.n) == 3.0",
        "self.__namespace__ == 'x' && self.namespace == 'x' && self.a__dot__b == 4",
        "self.s.size() == 5 && size('é') == 1 && self.s.contains('ell') && self.s.startsWith('h')",
        "self.s.matches('^[a-z]+$') && self.s.find('l+') == 'll' && 'abcabc'.findAll('b').size() == 2",
        "self.s.upperAscii() == 'HELLO' && self.s.charAt(0) == 'h' && self.s.indexOf('l') == 2",
        "self.s.replace('l', 'L') == 'heLLo' && 'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b'",
        "self.s.substring(1, 3) == 'el' && ' x '.trim() == 'x' && '%s is %s'.format(['a', 'b']) == 'a is b'",
        "self.nums.all(x, x > 0) && self.nums.exists(x, x == 2) && self.nums.exists_one(x, x == 1)",
        "self.nums.map(x, x * 2) == [2, 4, 6] && self.nums.filter(x, x > 1) == [2, 3]",
        "self.nums.map(x, x > 1, x + 1) == [3, 4] && self.nums.sum() == 6 && self.nums.max() == 3",
        "self.nums.all(i, v, v == i + 1) && self.nums.transformList(i, v, i + v) == [1, 3, 5]",
        "self.nums[0] == 1 && 2 in self.nums && !(5 in self.nums) && self.nums.isSorted()",
        "self.set == ['b', 'a'] || self.set == ['a', 'b']",
        "self.set + ['b', 'c'] == ['a', 'b', 'c']",
        "self.list.all(x, x.v > 0) && self.list.exists(x, x.k == 'b' && x.v == 2)",
        "self.list.sortBy(x, -x.v).map(x, x.k) == ['b', 'a']",
        "self.map.all(k, self.map[k] > 0) && 'x' in self.map && self.map.x == 1 && self.map.size() == 2",
        "self.map.transformMap(k, v, v + 1) == {'x': 2, 'y': 3}",
        "has(self.n) && has(self.map.x) && !has(self.map.z)",
        "self.?n.orValue(0) == 3 && self.map[?'z'].orValue(9) == 9 && !self.map.?z.hasValue()",
        "self.?s.optMap(x, x + '!').orValue('') == 'hello!' && optional.none().orValue(1) == 1",
        "type(self.port) == string && self.port == '80%' && (type(self.port) == int ? self.port < 5 : true)",
        "self.time > timestamp('2024-01-01T00:00:00Z') && self.time.getFullYear() == 2024 && self.time.getMonth() == 4",
        "self.wait == duration('1m30s') && self.wait.getSeconds() == 90 && self.time + self.wait > self.time",
        "int('5') == 5 && string(5) == '5' && bool('true') && double('1.5') == 1.5 && string(true) == 'true'",
        "quantity('1Gi').isGreaterThan(quantity('500M')) && isQuantity('5m') && !isQuantity('x')",
        "quantity('50k').add(20).compareTo(quantity('50020')) == 0 && quantity('2').asInteger() == 2 && sign(quantity('-1')) == -1",
        "ip('10.0.0.1').family() == 4 && isIP('::1') && cidr('10.0.0.0/8').containsIP('10.1.1.1')",
        "cidr('10.0.0.0/8').prefixLength() == 8 && string(ip('10.0.0.1')) == '10.0.0.1' && ip('::1') == ip('::1')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('1.0.0') && semver('2.1.0').major() == 2",
        "!format.dns1123Label().validate('abc').hasValue() && format.dns1123Label().validate('A').hasValue()",
        "sets.contains([1, 2], [2]) && sets.intersects(self.nums, [3]) && [1, 1].distinct() == [1]",
        "[[1], [2]].flatten() == [1, 2] && lists.range(3) == [0, 1, 2] && [3, 1].sort() == [1, 3]",
        "self.nums.first().value() == 1 && self.nums.slice(0, 2) == [1, 2] && [1, 2].reverse() == [2, 1]",
        "(1 / 0 > 0 || true) && !(1 / 0 > 0 && false) && [1, 2].exists(x, x == 2 || 1 / 0 == 0)",
        "self.free == self.free && dyn(self.n) == 3 && b'abc'.size() == 3",
    ] {
        let schema = with_rule(rule).unwrap_or_else(|errors| panic!("{rule}: {errors:?}"));
        assert_eq!(errors(&schema, spec(), None), [""; 0], "{rule}");
    }
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_an_error_of_the_crd() {
    for (rule, expected) in [
        ("self.nope == 1", "undefined field 'nope'"),
        ("self.free.any == 1", "undefined field 'any'"),
        ("has(self.nope)", "undefined field 'nope'"),
        ("other == 1", "undeclared reference to 'other'"),
        ("self.s.nope()", "undeclared reference to 'nope'"),
        (
            "url('http://a').getHost() == 'a'",
            "undeclared reference to 'getHost'",
        ),
        (
            "self.n == 'x'",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (
            "self.n + self.s == 3",
            "found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (
            "self.s.startsWith(1)",
            "found no matching overload for 'startsWith' applied to '(string, int)'",
        ),
        (
            "self.n.all(x, x > 1)",
            "expression of type 'int' cannot be range of a comprehension",
        ),
        ("self.n > ", "Syntax error"),
        ("self.n", "cel expression must evaluate to a bool"),
        ("self.s.matches('(')", "invalid matches argument"),
        (
            "[1, 'a'].size() == 2",
            "expected type 'int' but found 'string'",
        ),
        ("self.n.x", "type 'int' does not support field selection"),
        ("Foo{a: 1} == 1", "undeclared reference to 'Foo'"),
    ] {
        let found = with_rule(rule).expect_err(rule);
        assert_eq!(found.len(), 1, "{rule}: {found:?}");
        assert!(
            found[0]
                .contains("s.properties[spec].x-kubernetes-validations[0].rule: Invalid value: "),
            "{found:?}"
        );
        assert!(found[0].contains(expected), "{rule}: {found:?}");
    }
}

#[test]
fn errors_have_the_field_the_reason_and_the_message_of_the_rule() {
    let schema = compile(json!({"type": "object", "properties": fields(), "x-kubernetes-validations": [
        {"rule": "self.n < 3"},
        {"rule": "self.n < 2", "message": " too large "},
        {"rule": "self.n < 1", "messageExpression": "string(self.n)", "fieldPath": ".n"},
        {"rule": "self.n < 0", "messageExpression": "''", "message": "fallback", "reason": "FieldValueForbidden"},
        {"rule": "false", "message": "m", "reason": "FieldValueRequired", "fieldPath": ".list"},
        {"rule": "false", "message": "m", "reason": "FieldValueDuplicate"},
        {"rule": "self.nums[9] == 1"},
        {"rule": "self.map['z'] == 1", "message": "m"},
        {"rule": "self.port > 1"},
    ]}))
    .expect("valid rules");
    assert_eq!(
        errors(&schema, spec(), None),
        [
            "spec: Invalid value: failed rule: self.n < 3",
            "spec: Invalid value: too large",
            "spec.n: Invalid value: 3",
            "spec: Forbidden: fallback",
            "spec.list: Required value: m",
            "spec: Duplicate value",
            "spec: Invalid value: \"object\": index out of bounds: 9 evaluating rule: self.nums[9] == 1",
            "spec: Invalid value: \"object\": no such key: z evaluating rule: m",
            "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, \
             function or macro signature for rule: self.port > 1",
        ]
    );
}

#[test]
fn rules_of_items_and_values_name_their_place_and_show_their_value() {
    let rules = json!([{"rule": "self != 2", "message": "no"}]);
    let mut properties = fields();
    properties["nums"]["items"]["x-kubernetes-validations"] = rules.clone();
    properties["map"]["additionalProperties"]["x-kubernetes-validations"] = rules;
    properties["s"]["x-kubernetes-validations"] = json!([{"rule": "self != 'hello'"}]);
    let schema = compile(json!({"type": "object", "properties": properties})).expect("valid rules");
    let mut found = errors(&schema, spec(), None);
    found.sort();
    assert_eq!(
        found,
        [
            "spec.map[y]: Invalid value: 2: no",
            "spec.nums[1]: Invalid value: 2: no",
            "spec.s: Invalid value: \"hello\": failed rule: self != 'hello'",
        ]
    );
    assert_eq!(
        errors(&schema, json!({}), None),
        [""; 0],
        "rules of missing values are not evaluated"
    );
}

#[test]
fn transition_rules_match_items_by_their_keys() {
    let mut properties = fields();
    let immutable = json!([{"rule": "self == oldSelf", "message": "immutable"}]);
    properties["list"]["items"]["properties"]["v"]["x-kubernetes-validations"] = immutable.clone();
    properties["n"]["x-kubernetes-validations"] = immutable;
    let schema = compile(json!({"type": "object", "properties": properties})).expect("valid rules");
    assert_eq!(errors(&schema, spec(), None), [""; 0]);
    let mut changed = spec();
    changed["list"] = json!([{"k": "c", "v": 9}, {"k": "b", "v": 2}, {"k": "a", "v": 5}]);
    changed["n"] = json!(4);
    assert_eq!(
        errors(&schema, changed.clone(), Some(spec())),
        [
            "spec.list[2].v: Invalid value: 5: immutable",
            "spec.n: Invalid value: 4: immutable"
        ]
    );
    changed["list"] = json!([]);
    changed.as_object_mut().expect("an object").remove("n");
    assert_eq!(
        errors(&schema, changed, Some(spec())),
        [""; 0],
        "a removed value has no rule"
    );
    let mut atomic = fields();
    atomic["nums"]["items"]["x-kubernetes-validations"] = json!([{"rule": "self >= oldSelf"}]);
    let found = compile(json!({"type": "object", "properties": atomic})).expect_err("uncorrelated");
    assert!(
        found[0].ends_with(
            "oldSelf cannot be used on the uncorrelatable portion of the schema within \
        s.properties[spec].properties[nums]"
        ),
        "{found:?}"
    );
}

#[test]
fn an_optional_old_value_is_absent_on_create() {
    let mut properties = fields();
    properties["n"]["x-kubernetes-validations"] = json!([
        {"rule": "oldSelf.hasValue() || self == 3", "optionalOldSelf": true, "message": "starts at 3"},
        {"rule": "!oldSelf.hasValue() || self > oldSelf.value()", "optionalOldSelf": true, "message": "grows"},
    ]);
    let schema = compile(json!({"type": "object", "properties": properties})).expect("valid rules");
    assert_eq!(
        errors(&schema, json!({"n": 4}), None),
        ["spec.n: Invalid value: 4: starts at 3"]
    );
    assert_eq!(errors(&schema, json!({"n": 3}), None), [""; 0]);
    assert_eq!(
        errors(&schema, json!({"n": 3}), Some(json!({"n": 3}))),
        ["spec.n: Invalid value: 3: grows"]
    );
    let found = compile(
        json!({"type": "object", "properties": {"n": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self > 1", "optionalOldSelf": true}]}}}),
    );
    let found = found.expect_err("without oldSelf");
    assert!(found[0].ends_with(
        "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
    ));
}

#[test]
fn errors_of_unchanged_values_are_warnings() {
    let mut properties = fields();
    properties["n"]["x-kubernetes-validations"] =
        json!([{"rule": "self < 3", "message": "too large"}]);
    properties["list"]["items"]["x-kubernetes-validations"] =
        json!([{"rule": "self.v < 2", "message": "too large"}]);
    properties["set"]["items"]["x-kubernetes-validations"] =
        json!([{"rule": "self != 'a'", "message": "a"}]);
    let schema = compile(json!({"type": "object", "properties": properties})).expect("valid rules");
    let mut changed = spec();
    changed["s"] = json!("other");
    let found = check(&schema, changed.clone(), Some(spec()));
    assert_eq!(text(&found.errors), [""; 0]);
    assert_eq!(
        *found.warnings,
        [
            "spec.list[1]: Invalid value: too large",
            "spec.n: Invalid value: 3: too large",
            "spec.set[0]: Invalid value: \"a\": a",
        ]
    );
    changed["n"] = json!(4);
    changed["list"] = json!([{"k": "b", "v": 2}, {"k": "a", "v": 2}]);
    changed["set"] = json!(["a"]);
    assert_eq!(
        errors(&schema, changed, Some(spec())),
        [
            "spec.list[1]: Invalid value: too large",
            "spec.n: Invalid value: 4: too large",
            "spec.set[0]: Invalid value: \"a\": a",
        ],
        "the moved item is unchanged, the item of a changed set is not"
    );
}

#[test]
fn rules_at_the_root_see_the_name() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}, "x-kubernetes-validations": [
        {"rule": "self.metadata.name.startsWith('a')", "message": "name"},
        {"rule": "self.kind == 'W' && self.apiVersion == 'example.com/v1' && !has(self.metadata.generateName)"},
        {"rule": "false", "message": "path", "fieldPath": ".spec"},
    ]});
    let schema = Schema::from_crd(&schema, false, "s").expect("valid rules");
    assert_eq!(
        errors(&schema, json!({}), None),
        ["<nil>: Invalid value: name", "spec: Invalid value: path"]
    );
}

#[test]
fn rules_are_not_evaluated_on_objects_of_wrong_types() {
    let schema = with_rule("self.n > 5").expect("a valid rule");
    let found = errors(&schema, json!({"n": "x"}), None);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[1].contains("some validation rules were not checked"),
        "{found:?}"
    );
}

#[test]
fn fields_of_rules_are_checked() {
    for (rule, expected) in [
        (
            json!({"rule": ""}),
            "rule: Required value: rule is not specified",
        ),
        (
            json!({"rule": "true", "message": " "}),
            "message: Invalid value: \" \": must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "message": "a\nb"}),
            "message: Invalid value: \"a\\nb\": must not contain line breaks",
        ),
        (
            json!({"rule": "true\n&& true"}),
            "message: Required value: message must be specified if rule contains line breaks",
        ),
        (
            json!({"rule": "true", "reason": "Nope"}),
            "reason: Unsupported value: \"Nope\": supported values: \"FieldValueDuplicate\", \
            \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
        (
            json!({"rule": "true", "fieldPath": ".x"}),
            "fieldPath: Invalid value: \".x\": must be a valid path",
        ),
        (
            json!({"rule": "true", "fieldPath": "n"}),
            "fieldPath: Invalid value: \"n\": must be a valid path",
        ),
        (
            json!({"rule": "true", "messageExpression": " "}),
            "messageExpression: Required value: messageExpression must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "messageExpression": "1"}),
            "messageExpression must evaluate to a string",
        ),
    ] {
        let spec =
            json!({"type": "object", "properties": fields(), "x-kubernetes-validations": [rule]});
        let found = compile(spec).expect_err(expected);
        assert!(
            found.len() == 1 && found[0].ends_with(expected),
            "{expected}: {found:?}"
        );
    }
}

#[test]
fn a_crd_with_expensive_rules_is_rejected() {
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let rule = json!([{"rule": "self.all(x, self.all(y, x == y))"}]);
    let mut unbounded = json!({"type": "object", "properties": {"list": strings}});
    unbounded["properties"]["list"]["x-kubernetes-validations"] = rule;
    let found = compile(unbounded.clone()).expect_err("too expensive");
    assert!(
        found[0]
            .contains("Forbidden: estimated rule cost exceeds budget by factor of more than 100x"),
        "{found:?}"
    );
    let list = &mut unbounded["properties"]["list"];
    list["maxItems"] = json!(20);
    list["items"]["maxLength"] = json!(20);
    assert!(compile(unbounded).is_ok());
}

#[test]
fn an_evaluation_is_bounded() {
    let rule = "self.nums.all(a, self.nums.all(b, self.nums.all(c, self.nums.all(d, self.nums.all(e, a + b + c + d + e >= 0)))))";
    let schema = with_rule(rule).expect("an estimate below the limit");
    let mut large = spec();
    large["nums"] = json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let found = errors(&schema, large, None);
    assert!(found[0].contains("actual cost limit exceeded"), "{found:?}");
    for rule in [
        "lists.range(1000000).map(x, lists.range(1000)).size() > 0",
        "'aaaaaaaaaa'.replace('a', 'aaaaaaaaaaaaaaaaaaaa').replace('a', 'aaaaaaaaaaaaaaaaaaaa').replace('a', 'aaaaaaaaaaaaaaaaaaaa').replace('a', 'aaaaaaaaaaaaaaaaaaaa').replace('a', 'aaaaaaaaaaaaaaaaaaaa').size() > 0",
    ] {
        if let Ok(schema) = with_rule(rule) {
            assert_ne!(errors(&schema, spec(), None), [""; 0], "{rule}");
        }
    }
}

#[test]
fn defaults_satisfy_the_rules() {
    let with_default = |default: i64| {
        compile(
            json!({"type": "object", "properties": {"n": {"type": "integer", "default": default,
            "x-kubernetes-validations": [{"rule": "self < 3", "message": "too large"}]}}}),
        )
    };
    assert!(with_default(1).is_ok());
    let found = with_default(5).expect_err("a violated rule");
    assert_eq!(
        found,
        ["s.properties[spec].properties[n].default: Invalid value: 5: too large"]
    );
}

#[test]
fn deeply_nested_rules_are_rejected() {
    for rule in [
        format!("{}true", "!".repeat(5_000)),
        format!("{}true{}", "(".repeat(500), ")".repeat(500)),
        format!("self.n{} > 0", "+1".repeat(1_900)),
        format!("self{} == 1", ".n".repeat(1_900)),
        format!("{}1 == 1", "true ? true : ".repeat(900)),
        format!("[{}] == []", "[".repeat(300)),
    ] {
        let found = with_rule(&rule).expect_err("too deep");
        assert_eq!(found.len(), 1, "{}", &rule[..20]);
    }
    let flat = vec!["self.n > 0"; 300].join(" && ");
    assert!(with_rule(&flat).is_ok());
}
