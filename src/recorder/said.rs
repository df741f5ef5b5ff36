//! What was said: one event, cut to what the server takes.

use super::{EventType, Reference, Reporter};
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

/// The most bytes of a note.
const NOTE: usize = 1024;
/// The most bytes of a reason, an action, and who says it.
pub(super) const WORD: usize = 128;
/// The most bytes of a name.
const NAME: usize = 253;

/// Equal ones are one series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Said {
    pub(super) regarding: Reference,
    pub(super) related: Option<Reference>,
    pub(super) kind: EventType,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
}

impl Said {
    /// `None` without a reason and an action: the server takes no such event. One of them stands for the other.
    pub(super) fn new(
        regarding: Reference,
        related: Option<Reference>,
        kind: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) -> Option<Self> {
        let or = |word: &str, other: &str| cut(if word.is_empty() { other } else { word }, WORD).to_owned();
        let (reason, action) = (or(reason, action), or(action, reason));
        let note = cut(note, NOTE).to_owned();
        (!reason.is_empty()).then_some(Self { regarding, related, kind, reason, action, note })
    }

    /// Where the event lives: beside its object, or in `default`.
    pub(super) fn namespace(&self) -> &str {
        self.regarding.inner().namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// A name for an event, which nobody else gives at this nanosecond.
    pub(super) fn name(&self, nanos: u64) -> String {
        let object = self.regarding.name();
        let name = format!("{object}.{nanos:x}");
        // Some objects have names that no event can have: `system:node`.
        if is_subdomain(object) && name.len() <= NAME {
            name
        } else {
            format!("event-{:x}.{nanos:x}", rand::random::<u64>())
        }
    }

    /// As the server takes it.
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
            type_: Some(self.kind.as_str().to_owned()),
            series: series.map(|(count, last)| EventSeries {
                count: i32::try_from(count).unwrap_or(i32::MAX),
                last_observed_time: MicroTime(last),
            }),
            ..Event::default()
        }
    }
}

/// At most so many bytes, and whole characters.
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

    fn said(key: &ObjectKey, reason: &str, action: &str, note: &str) -> Option<Said> {
        let object = Reference::new(&GroupVersionKind::gvk("", "v1", "Pod"), key);
        Said::new(object, None, EventType::Normal, reason, action, note)
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let web = ObjectKey::new("shop", "web");
        let said = said(&web, &"r".repeat(200), &"ä".repeat(65), &format!("x{}", "€".repeat(400))).unwrap();
        assert_eq!((said.reason.len(), said.action.len(), said.note.len()), (128, 128, 1024));
        assert!(said.note.ends_with('€') && cut("ä", 1).is_empty());
    }

    #[test]
    fn one_of_reason_and_action_stands_for_the_other() {
        let web = ObjectKey::new("shop", "web");
        assert_eq!(said(&web, "Scaled", "", "").unwrap().action, "Scaled");
        assert_eq!(said(&web, "", "Scale", "").unwrap().reason, "Scale");
        assert!(said(&web, "", "", "why not").is_none());
    }

    #[test]
    fn an_event_lives_beside_its_object_under_a_name_that_the_server_takes() {
        let web = said(&ObjectKey::new("shop", "web.v1"), "r", "a", "").unwrap();
        assert_eq!((web.namespace(), &*web.name(255)), ("shop", "web.v1.ff"));
        for name in ["system:node", "", "-x", "a..b", &"n".repeat(250)] {
            let role = said(&ObjectKey::cluster_scoped(name), "r", "a", "").unwrap();
            let event = role.name(255);
            assert!(role.namespace() == "default" && is_subdomain(&event) && event.len() <= NAME, "{name}: {event}");
        }
    }
}
