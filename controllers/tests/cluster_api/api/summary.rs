//! Summaries of conditions.

use crate::support::at;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman::conditions::{Status, new};
use steersman_controllers::cluster_api::conditions::{SummaryOptions, SummaryReasons, summary};

const OPTIONS: SummaryOptions<'static> = SummaryOptions {
    types: &["A", "B", "!C"],
    negative: &["!C"],
    optional: &[],
    reasons: SummaryReasons {
        issue: "NotReady",
        unknown: "ReadyUnknown",
        info: "Ready",
    },
};

fn condition(type_: &str, status: Status, message: &str) -> Condition {
    new(type_, status, &*format!("Reason-{type_}"), message, at(0))
}

/// Returns status, reason and message of the summary.
fn summarized(conditions: &[Condition], options: &SummaryOptions<'_>) -> Option<[String; 3]> {
    let summary = summary(conditions, "Ready", options, at(9))?;
    assert_eq!(summary.type_, "Ready");
    Some([summary.status, summary.reason, summary.message])
}

fn texts(texts: [&str; 3]) -> [String; 3] {
    texts.map(Into::into)
}

#[test]
fn a_summary_lists_issues_and_unknown_conditions_in_the_order_of_the_types() {
    let conditions = [
        condition("!C", Status::True, "Message-C"),
        condition("B", Status::False, ""),
        condition("A", Status::Unknown, "Message-A"),
        condition("X", Status::False, "not covered"),
    ];
    let message = "* A: Message-A\n* B: Reason-B\n* !C: Message-C";
    assert_eq!(
        summarized(&conditions, &OPTIONS),
        Some(texts(["False", "NotReady", message]))
    );
    let unknown = [
        condition("A", Status::Unknown, "Message-A"),
        condition("B", Status::True, "Message-B"),
        condition("!C", Status::False, "Message-C"),
    ];
    let message = "* A: Message-A";
    assert_eq!(
        summarized(&unknown, &OPTIONS),
        Some(texts(["Unknown", "ReadyUnknown", message]))
    );
}

#[test]
fn a_summary_without_issues_lists_messages_only() {
    let conditions = [
        condition("A", Status::True, ""),
        condition("B", Status::True, "Message-B"),
        condition("!C", Status::False, "Message-C"),
    ];
    let message = "* B: Message-B\n* !C: Message-C";
    assert_eq!(
        summarized(&conditions, &OPTIONS),
        Some(texts(["True", "Ready", message]))
    );
    let default = SummaryOptions {
        types: &["A"],
        ..SummaryOptions::default()
    };
    assert_eq!(
        summarized(&conditions, &default),
        Some(texts(["True", "InfoReported", ""]))
    );
}

#[test]
fn a_missing_condition_is_unknown_unless_it_is_optional() {
    let conditions = [
        condition("A", Status::True, ""),
        condition("B", Status::True, ""),
    ];
    let message = "* !C: Condition not yet reported";
    assert_eq!(
        summarized(&conditions, &OPTIONS),
        Some(texts(["Unknown", "ReadyUnknown", message]))
    );
    let optional = SummaryOptions {
        optional: &["!C"],
        ..OPTIONS
    };
    assert_eq!(
        summarized(&conditions, &optional),
        Some(texts(["True", "Ready", ""]))
    );
}

#[test]
fn a_summary_of_nothing_or_of_itself_is_none() {
    let conditions = [condition("Ready", Status::True, "")];
    assert_eq!(summarized(&conditions, &SummaryOptions::default()), None);
    let itself = SummaryOptions {
        types: &["Ready", "A"],
        optional: &["A"],
        ..OPTIONS
    };
    assert_eq!(summarized(&conditions, &itself), None);
}

#[test]
fn messages_of_several_lines_are_indented() {
    let message = |text: &str| {
        let conditions = [condition("A", Status::False, text)];
        let options = SummaryOptions {
            types: &["A"],
            ..OPTIONS
        };
        summarized(&conditions, &options).map(|[_, _, message]| message)
    };
    let cases = [
        ("one", "* A: one"),
        ("one\ntwo", "* A:\n  * one\n  * two"),
        ("* one", "* A:\n  * one"),
        ("* one\n* two", "* A:\n  * one\n  * two"),
        ("one\n* two", "* A:\n  * one\n    * two"),
        ("2*3", "* A: 2*3"),
    ];
    for (text, expected) in cases {
        assert_eq!(message(text).as_deref(), Some(expected), "{text:?}");
    }
}
