//! Content of an event, truncated to the limits of the API server.

use super::{EventType, Reference, Reporter};
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

/// Longest note in bytes.
const NOTE: usize = 1024;
/// Longest reason, action and reporter in bytes.
pub(super) const WORD: usize = 128;
/// Longest name in bytes.
const NAME: usize = 253;

/// Event without its time. Equal events form one series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EventKey {
    pub(super) regarding: Reference,
    pub(super) related: Option<Reference>,
    pub(super) kind: EventType,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
}

impl EventKey {
    /// Creates an event; `None` if reason and action are empty.
    ///
    /// The API server rejects an event without them. If one is empty, the other is used for both.
    pub(super) fn new(
        regarding: Reference,
        related: Option<Reference>,
        kind: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) -> Option<Self> {
        let or = |word: &str, other: &str| {
            cut(if word.is_empty() { other } else { word }, WORD).to_owned()
        };
        let (reason, action) = (or(reason, action), or(action, reason));
        let note = cut(note, NOTE).to_owned();
        (!reason.is_empty()).then_some(Self {
            regarding,
            related,
            kind,
            reason,
            action,
            note,
        })
    }

    /// Returns the namespace of the event: that of its object, or `default`.
    pub(super) fn namespace(&self) -> &str {
        self.regarding
            .inner()
            .namespace
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or("default")
    }

    /// Returns the name of the event, unique by the time in nanoseconds.
    pub(super) fn name(&self, nanos: u64) -> String {
        let object = self.regarding.name();
        let name = format!("{object}.{nanos:x}");
        // Some objects have names that are invalid for an event, such as `system:node`.
        if is_subdomain(object) && name.len() <= NAME {
            name
        } else {
            format!("event-{:x}.{nanos:x}", rand::random::<u64>())
        }
    }

    /// Returns the event as an API object.
    pub(super) fn event(
        &self,
        name: &str,
        reporter: &Reporter,
        first: Timestamp,
        series: Option<(u32, Timestamp)>,
    ) -> Event {
        let inner = |reference: &Reference| -> ObjectReference { reference.inner().clone() };
        Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(first)),
            reporting_controller: Some(reporter.controller.clone()),
            reporting_instance: Some(reporter.instance.clone()),
            action: Some(self.action.clone()),
            reason: Some(self.reason.clone()),
            note: Some(self.note.clone()),
            regarding: Some(inner(&self.regarding)),
            related: self.related.as_ref().map(inner),
            type_: Some(type_name(self.kind).to_owned()),
            series: series.map(|(count, last)| EventSeries {
                count: i32::try_from(count).unwrap_or(i32::MAX),
                last_observed_time: MicroTime(last),
            }),
            ..Event::default()
        }
    }
}

fn type_name(kind: EventType) -> &'static str {
    match kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

/// Truncates text to `most` bytes at a character boundary.
pub(super) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn is_subdomain(name: &str) -> bool {
    let part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = part.as_bytes();
        bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
            && bytes.first().copied().is_some_and(plain)
            && bytes.last().copied().is_some_and(plain)
    };
    name.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectKey;
    use kube_core::GroupVersionKind;

    fn event(key: &ObjectKey, reason: &str, action: &str, note: &str) -> Option<EventKey> {
        let object = Reference::new(&GroupVersionKind::gvk("", "v1", "Pod"), key);
        EventKey::new(object, None, EventType::Normal, reason, action, note)
    }

    #[test]
    fn long_text_is_truncated_between_characters() {
        let web = ObjectKey::new("shop", "web");
        let event = event(
            &web,
            &"r".repeat(200),
            &"ä".repeat(65),
            &format!("x{}", "€".repeat(400)),
        )
        .unwrap();
        assert_eq!(
            (event.reason.len(), event.action.len(), event.note.len()),
            (128, 128, 1024)
        );
        assert!(event.note.ends_with('€') && cut("ä", 1).is_empty());
    }

    #[test]
    fn a_missing_reason_or_action_is_taken_from_the_other() {
        let web = ObjectKey::new("shop", "web");
        assert_eq!(event(&web, "Scaled", "", "").unwrap().action, "Scaled");
        assert_eq!(event(&web, "", "Scale", "").unwrap().reason, "Scale");
        assert!(event(&web, "", "", "why not").is_none());
    }

    #[test]
    fn an_event_is_in_the_objects_namespace_with_a_valid_name() {
        let web = event(&ObjectKey::new("shop", "web.v1"), "r", "a", "").unwrap();
        assert_eq!((web.namespace(), &*web.name(255)), ("shop", "web.v1.ff"));
        for name in ["system:node", "", "-x", "a..b", &"n".repeat(250)] {
            let role = event(&ObjectKey::cluster_scoped(name), "r", "a", "").unwrap();
            let event = role.name(255);
            assert!(
                role.namespace() == "default" && is_subdomain(&event) && event.len() <= NAME,
                "{name}: {event}"
            );
        }
    }
}
