//! `Ready` as the summary of the other deprecated conditions.

use super::{DeprecatedCondition, READY, Severity, compare, set};
use crate::cluster_api::conditions::Conditions;
use k8s_openapi::jiff::Timestamp;
use steersman::conditions::Status;

/// Options of a summary: its conditions and its message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary<'a> {
    /// Types to summarize. The first one in the list provides reason and message if several
    /// conditions are equally important. Default: all types but `Ready`.
    pub types: Option<&'a [&'a str]>,
    /// Types whose status True reports a problem.
    pub negative: &'a [&'a str],
    /// Makes the message `<n> of <m> completed`. `m` is the number of `types` if these are set,
    /// else of conditions.
    pub step_counter: bool,
    /// Types without which the message has no step counter. `m` is their number then.
    pub step_counter_if_only: Option<&'a [&'a str]>,
}

/// Condition with the status and severity that it has if True means no problem.
struct Entry<'a> {
    condition: &'a DeprecatedCondition,
    status: &'a str,
}

impl Entry<'_> {
    /// Returns the importance; the lowest number determines the summary.
    ///
    /// A False condition without a known severity is last, as in Cluster API.
    fn rank(&self) -> u8 {
        match (self.status, &self.condition.severity) {
            ("False", Severity::Error) => 0,
            ("False", Severity::Warning) => 1,
            ("False", Severity::Info) => 2,
            ("True", _) => 3,
            ("Unknown", _) => 4,
            _ => 5,
        }
    }
}

/// Returns `Ready` for these conditions; `None` if none of them is covered by the summary.
///
/// The order of importance is: False with the severity Error, Warning, Info; True; Unknown; False
/// without a severity. The most important condition determines status, severity, reason and
/// message.
pub fn summary(
    conditions: &[DeprecatedCondition],
    options: &Summary<'_>,
) -> Option<DeprecatedCondition> {
    let mut entries = entries(conditions, options);
    entries.sort_by(|one, other| compare(&one.condition.type_, &other.condition.type_));
    // The first group by rank; conditions of the same rank can differ in a severity that has no
    // meaning for their status.
    let top = entries.iter().min_by_key(|entry| entry.rank())?;
    let same_group = |entry: &&Entry<'_>| {
        entry.status == top.status && entry.condition.severity == top.condition.severity
    };
    let group: Vec<_> = entries.iter().filter(same_group).collect();
    let first = options
        .types
        .unwrap_or_default()
        .iter()
        .find_map(|type_| group.iter().find(|entry| entry.condition.type_ == *type_))
        .unwrap_or(&group[0]);
    let message = step_counter(&entries, options);
    let message = message.unwrap_or_else(|| first.condition.message.clone());
    let reason = first.condition.reason.clone();
    Some(match top.status {
        "True" => DeprecatedCondition::met(READY),
        "False" => {
            DeprecatedCondition::unmet(READY, reason, top.condition.severity.clone(), message)
        }
        _ => DeprecatedCondition::unknown(READY, reason, message),
    })
}

/// Sets `Ready` to the summary of the other conditions, if there is one.
pub fn set_summary(object: &mut impl Conditions, options: &Summary<'_>, now: Timestamp) {
    if let Some(condition) = summary(object.deprecated_conditions(), options) {
        set(object, condition, now);
    }
}

/// Returns the conditions that the summary covers.
fn entries<'a>(conditions: &'a [DeprecatedCondition], options: &Summary<'_>) -> Vec<Entry<'a>> {
    let covers =
        |type_: &str| type_ != READY && options.types.is_none_or(|types| types.contains(&type_));
    let covered = conditions
        .iter()
        .filter(|condition| covers(&condition.type_));
    covered
        .map(|condition| {
            let negative = options.negative.contains(&condition.type_.as_str());
            let status = match condition.status.as_str() {
                "True" if negative => Status::False.as_str(),
                "False" if negative => Status::True.as_str(),
                status => status,
            };
            Entry { condition, status }
        })
        .collect()
}

/// Returns the message of the step counter, if the options ask for one.
fn step_counter(entries: &[Entry<'_>], options: &Summary<'_>) -> Option<String> {
    if !options.step_counter {
        return None;
    }
    let mut total = options.types.map_or(entries.len(), <[_]>::len);
    if let Some(only) = options.step_counter_if_only {
        let allows = |entry: &Entry<'_>| only.contains(&entry.condition.type_.as_str());
        if !entries.iter().all(allows) {
            return None;
        }
        total = only.len();
    }
    let is_done =
        |entry: &&Entry<'_>| entry.status == "True" && entry.condition.severity == Severity::None;
    let done = entries.iter().filter(is_done).count();
    Some(format!("{done} of {total} completed"))
}
