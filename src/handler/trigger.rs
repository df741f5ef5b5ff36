//! Event that triggers requests, and their priorities and reasons.

use super::retry::EventRef;
use crate::{
    event::Event,
    object::{DecodeError, ObjectKey},
    workqueue::{Priority, Reason},
};
use std::{fmt, sync::Arc};

/// Subject of the events of a source, with the reasons that all objects share.
pub(crate) struct Subject {
    name: Box<str>,
    reasons: [Reason; EventKind::ALL.len()],
}

impl Subject {
    /// Creates a subject. `name` is usually a kind.
    pub(crate) fn new(name: &str) -> Arc<Self> {
        let reasons = EventKind::ALL.map(|verb| format!("{name} {}", verb.text()).into());
        Arc::new(Self {
            name: name.into(),
            reasons,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Type of an event, as shown in reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Listed,
    Created,
    Updated,
    Resynced,
    Deleted,
    Generic,
}

impl EventKind {
    const ALL: [Self; 6] = [
        Self::Listed,
        Self::Created,
        Self::Updated,
        Self::Resynced,
        Self::Deleted,
        Self::Generic,
    ];

    pub(crate) fn of<K>(event: &Event<K>) -> Self {
        match event {
            Event::Create { initial: true, .. } => Self::Listed,
            Event::Create { .. } => Self::Created,
            Event::Update { old, new }
                if old.meta().resource_version() == new.meta().resource_version() =>
            {
                Self::Resynced
            }
            Event::Update { .. } => Self::Updated,
            Event::Delete { .. } => Self::Deleted,
            Event::Generic { .. } => Self::Generic,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Resynced => "resynced",
            Self::Deleted => "deleted",
            Self::Generic => "generic event",
        }
    }
}

/// Event that triggers requests.
#[derive(Clone)]
pub(super) struct Trigger {
    subject: Arc<Subject>,
    pub(super) event: EventRef,
    verb: EventKind,
}

impl Trigger {
    /// Creates a trigger. `number` is that of the event in its source.
    pub(super) fn new<K: 'static>(subject: &Arc<Subject>, event: &Event<K>, number: u64) -> Self {
        let object = event.object().id();
        Self {
            subject: subject.clone(),
            event: EventRef { object, number },
            verb: EventKind::of(event),
        }
    }

    /// Returns whether this is the kind and the key of the event's object.
    fn is_about(&self, kind: &str, key: &ObjectKey) -> bool {
        let object = &self.event.object;
        let own_kind = match &object.kind {
            Some(gvk) => &gvk.kind,
            None => self.subject.name(),
        };
        (own_kind, &object.key) == (kind, key)
    }

    /// Returns a low priority for events that report no change.
    pub(super) fn priority(&self) -> Option<Priority> {
        matches!(self.verb, EventKind::Listed | EventKind::Resynced).then_some(Priority::LOW)
    }

    /// Returns the reason without the object, such as `Pod updated`.
    pub(super) fn short_reason(&self) -> Reason {
        self.subject.reasons[self.verb as usize].clone()
    }

    /// Returns the reason with the object, such as `Pod shop/web updated`.
    ///
    /// Events of a list or resync share one reason, because there are thousands of them.
    pub(super) fn full_reason(&self) -> Reason {
        match self.verb {
            EventKind::Listed | EventKind::Resynced => self.short_reason(),
            _ => self.to_string().into(),
        }
    }
}

/// Returns whether no further attempt of a mapping can succeed.
///
/// `trigger` is the event of the mapping, if any. Its objects do not change, so an object that does
/// not decode never will.
pub(super) fn is_permanent(trigger: Option<&Trigger>, error: &anyhow::Error) -> bool {
    decode_errors(error).any(|error| match error {
        DecodeError::BodyDropped { .. } => true,
        DecodeError::Mismatch { kind, key, .. } => {
            trigger.is_some_and(|trigger| trigger.is_about(kind, key))
        }
        _ => false,
    })
}

/// Returns whether a mapping failed because the body of an object was dropped.
pub(super) fn is_body_dropped(error: &anyhow::Error) -> bool {
    decode_errors(error).any(|error| matches!(error, DecodeError::BodyDropped { .. }))
}

fn decode_errors(error: &anyhow::Error) -> impl Iterator<Item = &DecodeError> {
    error.chain().filter_map(|cause| cause.downcast_ref())
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}",
            self.subject.name,
            self.event.object.key,
            self.verb.text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectId;

    #[test]
    fn every_event_has_a_reason() {
        let subject = Subject::new("Pod");
        for verb in EventKind::ALL {
            let event = EventRef {
                object: ObjectId {
                    kind: None,
                    key: ObjectKey::new("shop", "web"),
                },
                number: 1,
            };
            let trigger = Trigger {
                subject: subject.clone(),
                event,
                verb,
            };
            assert_eq!(
                trigger.short_reason().as_str(),
                format!("Pod {}", verb.text())
            );
        }
    }
}
