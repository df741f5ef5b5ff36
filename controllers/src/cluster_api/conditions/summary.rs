//! A condition that summarizes other conditions of the same object.

use super::NOT_YET_REPORTED;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use steersman::conditions::{self, Status};

/// Options of [`summary`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SummaryOptions<'a> {
    /// Types to summarize, the most relevant first.
    pub types: &'a [&'a str],
    /// Types whose status True reports a problem.
    pub negative: &'a [&'a str],
    /// Types that are left out if the object does not have them. Default: a missing type counts as
    /// `Unknown`.
    pub optional: &'a [&'a str],
    /// Reasons of the summary.
    pub reasons: SummaryReasons<'a>,
}

/// Reasons of a condition that [`summary`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryReasons<'a> {
    /// Reason if a condition reports a problem. Default: `IssuesReported`.
    pub issue: &'a str,
    /// Reason if a condition is unknown and none reports a problem. Default: `UnknownReported`.
    pub unknown: &'a str,
    /// Reason if no condition reports a problem or is unknown. Default: `InfoReported`.
    pub info: &'a str,
}

impl Default for SummaryReasons<'_> {
    fn default() -> Self {
        Self {
            issue: "IssuesReported",
            unknown: "UnknownReported",
            info: "InfoReported",
        }
    }
}

/// Priority of a condition in the summary. The lowest value determines the status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Issue,
    Unknown,
    Info,
}

/// Returns a condition of type `target` that summarizes others; `None` if there are none.
///
/// The status is False if one of them reports a problem, else Unknown if one of them is unknown,
/// else True. The message has an entry for each condition with a problem or an unknown status. If
/// there are none, it has an entry for each condition with a message. The entries have the order
/// of the types.
///
/// ```
/// use steersman::{conditions::{new, Status}, reconcile::Context};
/// use steersman_controllers::cluster_api::conditions::{READY, SummaryOptions, summary};
///
/// # let cx = Context::default();
/// let conditions = [
///     new("NetworkReady", Status::False, "Creating", "2 of 3 subnets exist", cx.now()),
///     new("Deleting", Status::False, "NotDeleting", "", cx.now()),
/// ];
/// let options = SummaryOptions {
///     types: &["Deleting", "NetworkReady", "BastionReady"],
///     negative: &["Deleting"],
///     ..SummaryOptions::default()
/// };
/// let ready = summary(&conditions, READY, &options, cx.now()).unwrap();
/// assert_eq!((&*ready.status, &*ready.reason), ("False", "IssuesReported"));
/// let message = "* NetworkReady: 2 of 3 subnets exist\n* BastionReady: Condition not yet reported";
/// assert_eq!(ready.message, message);
/// ```
pub fn summary(
    conditions: &[Condition],
    target: &str,
    options: &SummaryOptions<'_>,
    now: Timestamp,
) -> Option<Condition> {
    let types = options.types.iter().filter(|type_| **type_ != target);
    let covered: Vec<Condition> = types
        .filter_map(|type_| covered(conditions, type_, options, now))
        .collect();
    let priority = |condition: &Condition| priority(condition, options.negative);
    let reasons = options.reasons;
    let top = covered.iter().map(priority).min()?;
    let (status, reason) = match top {
        Priority::Issue => (Status::False, reasons.issue),
        Priority::Unknown => (Status::Unknown, reasons.unknown),
        Priority::Info => (Status::True, reasons.info),
    };
    let is_shown = |condition: &&Condition| match priority(condition) {
        Priority::Info => top == Priority::Info && !condition.message.is_empty(),
        Priority::Issue | Priority::Unknown => true,
    };
    let entries: Vec<_> = covered.iter().filter(is_shown).map(entry).collect();
    let message = entries.join("\n");
    Some(conditions::new(target, status, reason, message, now))
}

/// Returns the condition of a type. If it is missing, returns an unknown one or `None`.
fn covered(
    conditions: &[Condition],
    type_: &str,
    options: &SummaryOptions<'_>,
    now: Timestamp,
) -> Option<Condition> {
    let found = conditions::find(conditions, type_).cloned();
    let missing = || {
        let message = "Condition not yet reported";
        conditions::new(type_, Status::Unknown, NOT_YET_REPORTED, message, now)
    };
    found.or_else(|| (!options.optional.contains(&type_)).then(missing))
}

fn priority(condition: &Condition, negative: &[&str]) -> Priority {
    let is_negative = negative.contains(&condition.type_.as_str());
    match (condition.status.as_str(), is_negative) {
        ("True", false) | ("False", true) => Priority::Info,
        ("True", true) | ("False", false) => Priority::Issue,
        _ => Priority::Unknown,
    }
}

/// Returns the entry of a condition in the message: its message, or else its reason.
fn entry(condition: &Condition) -> String {
    let Condition {
        type_,
        message,
        reason,
        ..
    } = condition;
    if message.is_empty() {
        format!("* {type_}: {reason}")
    } else if message.contains('\n') || has_bullet(message) {
        format!("* {type_}:\n{}", indented(message))
    } else {
        format!("* {type_}: {message}")
    }
}

/// Indents the lines of a message. Lines without a bullet get one.
fn indented(message: &str) -> String {
    let all_have_bullets = message.split('\n').all(has_bullet);
    let line = |line: &str| match (all_have_bullets, has_bullet(line)) {
        (true, _) => format!("  {line}"),
        (false, true) => format!("    {line}"),
        (false, false) => format!("  * {line}"),
    };
    message.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Returns whether a text contains a bullet: `*` and white space.
fn has_bullet(text: &str) -> bool {
    text.split('*')
        .skip(1)
        .any(|rest| rest.starts_with([' ', '\t', '\n', '\r', '\u{c}']))
}
