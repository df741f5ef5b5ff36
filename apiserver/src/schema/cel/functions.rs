//! Signatures of functions, with which calls are checked when a CRD is created.

use super::types::{Params, Type};
use std::{collections::HashMap, sync::LazyLock};

/// Signatures of the functions of CEL and of Kubernetes' libraries. `A` and `B` are any types.
const SIGNATURES: &str = "\
size(string) int
size(bytes) int
size(list<A>) int
size(map<A, B>) int
(string).size() int
(bytes).size() int
(list<A>).size() int
(map<A, B>).size() int
(string).contains(string) bool
(string).startsWith(string) bool
(string).endsWith(string) bool
(string).matches(string) bool
matches(string, string) bool
(string).find(string) string
(string).findAll(string) list<string>
(string).findAll(string, int) list<string>
(string).charAt(int) string
(string).indexOf(string) int
(string).indexOf(string, int) int
(string).lastIndexOf(string) int
(string).lastIndexOf(string, int) int
(string).lowerAscii() string
(string).upperAscii() string
(string).replace(string, string) string
(string).replace(string, string, int) string
(string).split(string) list<string>
(string).split(string, int) list<string>
(string).substring(int) string
(string).substring(int, int) string
(string).trim() string
(string).format(list<dyn>) string
(list<string>).join() string
(list<string>).join(string) string
strings.quote(string) string
(list<A>).isSorted() bool
(list<A>).sum() A
(list<A>).min() A
(list<A>).max() A
(list<A>).indexOf(A) int
(list<A>).lastIndexOf(A) int
(list<A>).slice(int, int) list<A>
(list<A>).sort() list<A>
(list<A>).distinct() list<A>
(list<A>).reverse() list<A>
(list<A>).flatten() list<dyn>
(list<A>).flatten(int) list<dyn>
(list<A>).first() optional<A>
(list<A>).last() optional<A>
lists.range(int) list<int>
sets.contains(list<A>, list<A>) bool
sets.equivalent(list<A>, list<A>) bool
sets.intersects(list<A>, list<A>) bool
ip(string) IP
isIP(string) bool
ip.isCanonical(string) bool
(IP).family() int
(IP).isUnspecified() bool
(IP).isLoopback() bool
(IP).isLinkLocalMulticast() bool
(IP).isLinkLocalUnicast() bool
(IP).isGlobalUnicast() bool
cidr(string) CIDR
isCIDR(string) bool
(CIDR).containsIP(string) bool
(CIDR).containsIP(IP) bool
(CIDR).containsCIDR(string) bool
(CIDR).containsCIDR(CIDR) bool
(CIDR).ip() IP
(CIDR).prefixLength() int
(CIDR).masked() CIDR
quantity(string) Quantity
isQuantity(string) bool
sign(Quantity) int
(Quantity).isGreaterThan(Quantity) bool
(Quantity).isLessThan(Quantity) bool
(Quantity).compareTo(Quantity) int
(Quantity).isInteger() bool
(Quantity).asInteger() int
(Quantity).asApproximateFloat() double
(Quantity).add(Quantity) Quantity
(Quantity).add(int) Quantity
(Quantity).sub(Quantity) Quantity
(Quantity).sub(int) Quantity
semver(string) Semver
semver(string, bool) Semver
isSemver(string) bool
isSemver(string, bool) bool
(Semver).isGreaterThan(Semver) bool
(Semver).isLessThan(Semver) bool
(Semver).compareTo(Semver) int
(Semver).major() int
(Semver).minor() int
(Semver).patch() int
format.dns1123Label() Format
format.dns1123Subdomain() Format
format.dns1035Label() Format
format.dns1035LabelPrefix() Format
format.dns1123LabelPrefix() Format
format.dns1123SubdomainPrefix() Format
format.qualifiedName() Format
format.labelValue() Format
format.uri() Format
format.uuid() Format
format.byte() Format
format.date() Format
format.datetime() Format
format.named(string) optional<Format>
(Format).validate(string) optional<list<string>>
bool(bool) bool
bool(string) bool
bytes(bytes) bytes
bytes(string) bytes
double(double) double
double(int) double
double(uint) double
double(string) double
duration(duration) duration
duration(string) duration
int(int) int
int(uint) int
int(double) int
int(string) int
int(timestamp) int
string(string) string
string(bool) string
string(int) string
string(uint) string
string(double) string
string(bytes) string
string(timestamp) string
string(duration) string
string(IP) string
string(CIDR) string
timestamp(timestamp) timestamp
timestamp(string) timestamp
timestamp(int) timestamp
uint(uint) uint
uint(int) uint
uint(double) uint
uint(string) uint
dyn(A) dyn
type(A) type
optional.none() optional<A>
optional.of(A) optional<A>
optional.ofNonZeroValue(A) optional<A>
(optional<A>).hasValue() bool
(optional<A>).value() A
(optional<A>).or(optional<A>) optional<A>
(optional<A>).orValue(A) A
(timestamp).getFullYear() int
(timestamp).getMonth() int
(timestamp).getDayOfYear() int
(timestamp).getDayOfMonth() int
(timestamp).getDate() int
(timestamp).getDayOfWeek() int
(timestamp).getHours() int
(timestamp).getMinutes() int
(timestamp).getSeconds() int
(timestamp).getMilliseconds() int
(duration).getHours() int
(duration).getMinutes() int
(duration).getSeconds() int
(duration).getMilliseconds() int
";

/// Signature of a function. A method has the type of its target as first argument.
struct Signature {
    is_method: bool,
    arguments: Vec<Type>,
    result: Type,
}

static FUNCTIONS: LazyLock<HashMap<&str, Vec<Signature>>> = LazyLock::new(|| {
    let mut functions: HashMap<&str, Vec<Signature>> = HashMap::new();
    for line in SIGNATURES.lines() {
        let (name, signature) = parse(line);
        functions.entry(name).or_default().push(signature);
    }
    functions
});

fn parse(line: &'static str) -> (&'static str, Signature) {
    let (target, rest) = match line
        .strip_prefix('(')
        .and_then(|line| line.split_once(")."))
    {
        Some((target, rest)) => (Some(target), rest),
        None => (None, line),
    };
    let (name, rest) = rest.split_once('(').unwrap_or((rest, ""));
    let (arguments, result) = rest.rsplit_once(") ").unwrap_or_default();
    let mut types: Vec<_> = target.map(parse_type).into_iter().collect();
    let mut rest = arguments;
    while !rest.is_empty() {
        // Only maps have a comma in their type, and no map is an argument beside others.
        let (argument, others) = match rest.split_once(", ") {
            Some(split) if !rest.starts_with("map") => split,
            _ => (rest, ""),
        };
        types.push(parse_type(argument));
        rest = others;
    }
    let signature = Signature {
        is_method: target.is_some(),
        arguments: types,
        result: parse_type(result),
    };
    (name, signature)
}

fn parse_type(text: &'static str) -> Type {
    let inner = |prefix: &str| {
        text.strip_prefix(prefix)
            .and_then(|text| text.strip_suffix('>'))
    };
    if let Some(items) = inner("list<") {
        return Type::list(parse_type(items));
    }
    if let Some(value) = inner("optional<") {
        return Type::optional(parse_type(value));
    }
    match text {
        "map<A, B>" => Type::Map(Type::Param(0).into(), Type::Param(1).into()),
        "A" => Type::Param(0),
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "duration" => Type::Duration,
        "dyn" => Type::Dyn,
        "int" => Type::Int,
        "string" => Type::String,
        "timestamp" => Type::Timestamp,
        "type" => Type::Meta,
        "uint" => Type::Uint,
        opaque => Type::Opaque(opaque),
    }
}

/// Reports whether there is a function with this name, which may have a namespace: `sets.contains`.
pub(super) fn exists(name: &str) -> bool {
    FUNCTIONS.contains_key(name)
}

/// Returns the name and the type of the result of a call. The first argument of a method is its
/// target. `None` if no signature matches.
pub(super) fn resolve(
    name: &str,
    is_method: bool,
    arguments: &[Type],
) -> Option<(&'static str, Type)> {
    let (name, signatures) = FUNCTIONS.get_key_value(name)?;
    let matching = |signature: &Signature| {
        if signature.is_method != is_method || signature.arguments.len() != arguments.len() {
            return None;
        }
        let mut params = Params::default();
        let mut pairs = signature.arguments.iter().zip(arguments);
        let matches = pairs.all(|(expected, found)| expected.accepts(found, &mut params));
        matches.then(|| signature.result.resolve(&params))
    };
    let mut results = signatures.iter().filter_map(matching);
    let result = results.next()?;
    // With arguments whose type is known only later, several signatures match.
    let same = |other: &Type| std::mem::discriminant(other) == std::mem::discriminant(&result);
    if results.all(|other| same(&other)) {
        Some((name, result))
    } else {
        Some((name, Type::Dyn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, is_method: bool, arguments: &[Type]) -> String {
        resolve(name, is_method, arguments).map_or("-".into(), |(_, result)| result.to_string())
    }

    #[test]
    fn a_call_matches_one_signature_of_its_name() {
        let strings = Type::list(Type::String);
        assert_eq!(
            result("split", true, &[Type::String, Type::String]),
            "list(string)"
        );
        assert_eq!(result("min", true, &[Type::list(Type::Int)]), "int");
        assert_eq!(
            result("first", true, std::slice::from_ref(&strings)),
            "optional_type(string)"
        );
        assert_eq!(
            result("sets.contains", false, &[strings.clone(), strings.clone()]),
            "bool"
        );
        assert_eq!(
            result("sets.contains", false, &[strings, Type::list(Type::Int)]),
            "-"
        );
        assert_eq!(result("size", false, &[Type::Int]), "-");
        assert_eq!(
            result(
                "size",
                true,
                &[Type::Map(Type::String.into(), Type::Dyn.into())]
            ),
            "int"
        );
    }
}
