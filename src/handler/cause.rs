//! The event that a handler is called for, as priorities and reasons have it.

use super::later::EventRef;
use crate::{
    event::Event,
    workqueue::{Priority, Reason},
};
use std::{fmt, sync::Arc};

/// What the events of a source are about, and the reasons that are the same for all of its objects: made once for it.
pub(crate) struct Subject {
    name: Box<str>,
    reasons: [Reason; Verb::ALL.len()],
}

impl Subject {
    /// `name` is mostly a kind.
    pub(crate) fn new(name: &str) -> Arc<Self> {
        let reasons = Verb::ALL.map(|verb| format!("{name} {}", verb.text()).into());
        Arc::new(Self { name: name.into(), reasons })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Listed,
    Created,
    Updated,
    Resynced,
    Deleted,
    Generic,
}

impl Verb {
    const ALL: [Self; 6] = [Self::Listed, Self::Created, Self::Updated, Self::Resynced, Self::Deleted, Self::Generic];

    pub(crate) fn of<K>(event: &Event<K>) -> Self {
        match event {
            Event::Create { initial: true, .. } => Self::Listed,
            Event::Create { .. } => Self::Created,
            Event::Update { old, new } if old.meta().resource_version() == new.meta().resource_version() => {
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

/// One event.
#[derive(Clone)]
pub(super) struct Cause {
    subject: Arc<Subject>,
    pub(super) event: EventRef,
    verb: Verb,
}

impl Cause {
    /// `number` is that of the event in its source.
    pub(super) fn new<K>(subject: &Arc<Subject>, event: &Event<K>, number: u64) -> Self {
        let object = event.object().key().clone();
        Self { subject: subject.clone(), event: EventRef { object, number }, verb: Verb::of(event) }
    }

    /// What is not news can wait.
    pub(super) fn priority(&self) -> Option<Priority> {
        matches!(self.verb, Verb::Listed | Verb::Resynced).then_some(Priority::LOW)
    }

    /// `Pod updated`
    pub(super) fn short_reason(&self) -> Reason {
        self.subject.reasons[self.verb as usize].clone()
    }

    /// `Pod shop/web updated`; thousands that are listed at once are not told apart.
    pub(super) fn full_reason(&self) -> Reason {
        match self.verb {
            Verb::Listed | Verb::Resynced => self.short_reason(),
            _ => self.to_string().into(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.subject.name, self.event.object, self.verb.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectKey;

    #[test]
    fn every_verb_has_its_reason() {
        let subject = Subject::new("Pod");
        for verb in Verb::ALL {
            let event = EventRef { object: ObjectKey::new("shop", "web"), number: 1 };
            let cause = Cause { subject: subject.clone(), event, verb };
            assert_eq!(cause.short_reason().as_str(), format!("Pod {}", verb.text()));
        }
    }
}
