//! The cases of Cluster API's tests, for both formats of conditions.

use super::*;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use steersman::conditions::{Status, new};

fn at(millisecond: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_millis(millisecond)
}

fn current(status: Status, reason: &str, millisecond: i64) -> Condition {
    new("foo", status, reason, "", at(millisecond))
}

fn deprecated(status: Status, reason: &str, millisecond: i64) -> DeprecatedCondition {
    DeprecatedCondition {
        type_: "foo".into(),
        status: status.as_str().into(),
        reason: reason.into(),
        last_transition_time: Some(Time(at(millisecond))),
        ..DeprecatedCondition::default()
    }
}

/// Returns the merged list, or the text of the conflict.
fn merged<E: Entry>(before: &[E], after: &[E], latest: &[E], wins: bool) -> Result<Vec<E>, String> {
    let mut list = latest.to_vec();
    let changes = ConditionChanges::between(before, after);
    let result = changes.apply(&mut list, |type_| wins && type_ == "foo");
    result
        .map(|()| list)
        .map_err(|conflict| conflict.to_string())
}

/// Runs a case with both formats, and with and without owning the condition.
///
/// Conditions are `1` for True, `0` for False, and `2` for False with another reason.
/// `want` is `None` for a conflict. If the condition is owned, `after` is the result.
fn case(before: &str, after: &str, latest: &str, want: Option<&str>) {
    fn run<E: Entry + std::fmt::Debug>(
        make: impl Fn(Status, &str, i64) -> E,
        [before, after, latest]: [&str; 3],
        want: Option<&str>,
    ) {
        let list = |text: &str| -> Vec<E> {
            let kinds = text.chars().map(|kind| match kind {
                '1' => make(Status::True, "Reason", 1_000),
                '0' => make(Status::False, "Reason", 1_000),
                _ => make(Status::False, "Other", 1_000),
            });
            kinds.collect()
        };
        let [before, after_list, latest] = [before, after, latest].map(list);
        let text = format!("{before:?} -> {after_list:?} on {latest:?}");
        let result = merged(&before, &after_list, &latest, false);
        match want {
            Some(want) => assert!(result == Ok(list(want)), "{text}: {result:?}"),
            None => assert!(result.is_err(), "{text}: {result:?}"),
        }
        let owned = merged(&before, &after_list, &latest, true);
        assert!(owned == Ok(list(after)), "owned, {text}: {owned:?}");
    }
    run(current, [before, after, latest], want);
    run(deprecated, [before, after, latest], want);
}

#[test]
fn an_added_condition_conflicts_with_another_state() {
    case("", "1", "", Some("1"));
    case("", "1", "1", Some("1"));
    case("", "1", "0", None);
}

#[test]
fn a_changed_condition_conflicts_with_another_change_and_a_removal() {
    case("1", "0", "1", Some("0"));
    case("0", "1", "1", Some("1"));
    case("0", "2", "1", None);
    case("1", "0", "", None);
}

#[test]
fn a_removed_condition_conflicts_with_a_change() {
    case("1", "", "", Some(""));
    case("1", "", "1", Some(""));
    case("1", "", "0", None);
}

#[test]
fn equal_lists_have_no_changes() {
    let list = [current(Status::True, "Reason", 0)];
    assert!(ConditionChanges::between(&list, &list).is_empty());
    assert!(ConditionChanges::<Condition>::between(&[], &[]).is_empty());
    let later = [current(Status::True, "Reason", 1_000)];
    assert!(!ConditionChanges::between(&list, &later).is_empty());
}

#[test]
fn a_merged_condition_has_whole_seconds() {
    let after = [current(Status::True, "Reason", 1_900)];
    let before = current(Status::False, "Reason", 0);
    let expected = Ok(vec![current(Status::True, "Reason", 1_000)]);
    assert_eq!(merged(&[], &after, &[], false), expected);
    assert_eq!(
        merged(
            std::slice::from_ref(&before),
            &after,
            std::slice::from_ref(&before),
            false
        ),
        expected
    );
    assert_eq!(
        merged(&[], &after, std::slice::from_ref(&before), true),
        expected
    );
}

#[test]
fn a_condition_that_has_the_wanted_state_keeps_its_time() {
    let [early, late] = [1_000, 9_000].map(|time| current(Status::True, "Reason", time));
    assert_eq!(
        merged(&[], &[late], std::slice::from_ref(&early), false),
        Ok(vec![early])
    );
    let [early, late] = [1_000, 9_000].map(|time| deprecated(Status::True, "Reason", time));
    assert_eq!(
        merged(&[], &[late], std::slice::from_ref(&early), false),
        Ok(vec![early])
    );
}

#[test]
fn merged_conditions_are_sorted() {
    let named = |type_: &str| new(type_, Status::True, "Reason", "", at(0));
    let latest = ["Paused", "b"].map(named);
    let list = merged(&[], &[named("Available")], &latest, false).expect("no conflict");
    assert_eq!(list, ["Available", "b", "Paused"].map(named));
}

#[test]
fn a_conflict_names_the_condition_the_change_and_the_difference() {
    let [yes, no] = [Status::True, Status::False].map(|status| current(status, "Reason", 0));
    let other = Condition {
        observed_generation: Some(4),
        ..current(Status::Unknown, "Other", 0)
    };
    let modified = |operation: &str, differences: &str| {
        Err(format!(
            "error patching conditions: The condition \"foo\" was modified by a different process \
             and this caused a merge/{operation}Condition conflict: {differences}"
        ))
    };
    let [yes, no, other] = [[yes], [no], [other]];
    assert_eq!(
        merged(&[], &yes, &no, false),
        modified("Add", "status is \"False\", wanted \"True\"")
    );
    let differences = "status is \"Unknown\", wanted \"True\"; observedGeneration is 4, wanted 0; \
                       reason is \"Other\", wanted \"Reason\"";
    assert_eq!(
        merged(&no, &yes, &other, false),
        modified("Change", differences)
    );
    assert_eq!(
        merged(&yes, &[], &other, false),
        modified("Remove", differences)
    );
    let deleted = "error patching conditions: The condition \"foo\" was deleted by a different \
                   process and this caused a merge/ChangeCondition conflict";
    assert_eq!(merged(&no, &yes, &[], false), Err(deleted.to_owned()));
    let [info, none] = [deprecated::Severity::Info, deprecated::Severity::None].map(|severity| {
        [DeprecatedCondition {
            severity,
            ..self::deprecated(Status::False, "Reason", 0)
        }]
    });
    let conflict = merged(&[], &info, &none, false).expect_err("another severity");
    assert!(
        conflict.ends_with("conflict: severity is None, wanted Info"),
        "{conflict}"
    );
}
