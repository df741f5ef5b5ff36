//! Reads: get, and the objects of a list or watch.

use super::ResourceRequest;
use crate::{
    catalog::Served,
    http::query::{ListOptions, VersionMatch},
    object::{Head, Key, Object},
    page::Position,
    selector::{FieldSelector, LabelSelector},
    server::Core,
    status::{Failure, Result},
    store::{Expired, Range},
};
use serde_json::Value;
use std::{borrow::Cow, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Objects as of one revision, or a page of them.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Object>>,
    /// Continue token of the next page.
    pub(crate) next: Option<String>,
    /// Number of further objects, if known.
    pub(crate) remaining: Option<usize>,
}

/// Selects the objects of a list or watch.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    /// Errors: 400 if a field selector names a field that cannot be selected.
    pub(crate) fn new(served: &Served, namespace: &str, options: &ListOptions) -> Result<Self> {
        for requirement in options.fields.requirements() {
            check_selectable(served, &requirement.field)?;
        }
        Ok(Self {
            namespace: namespace.into(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
        })
    }

    /// Returns whether labels or fields are selected.
    fn is_selective(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(crate) fn matches(&self, served: &Served, object: &Object) -> bool {
        (self.namespace.is_empty() || object.key.namespace() == self.namespace)
            && self.labels.matches(|label| object.label(label))
            && (self.fields.is_empty() || self.matches_fields(served, object))
    }

    fn matches_fields(&self, served: &Served, object: &Object) -> bool {
        let mut decoded = None;
        let by_key = |field: &str| match field {
            "metadata.name" => Some(object.key.name()),
            "metadata.namespace" => Some(object.key.namespace()),
            _ => None,
        };
        if self
            .fields
            .requirements()
            .iter()
            .any(|requirement| by_key(&requirement.field).is_none())
        {
            decoded = Some(Value::Object(object.decode(&Head::bare())));
        }
        self.fields.matches(|field| match by_key(field) {
            Some(value) => Cow::Borrowed(value),
            None => Cow::Owned(field_text(served, decoded.as_ref(), field)),
        })
    }
}

/// Checks that objects can be selected by `field`.
///
/// As in kube-apiserver, only kinds with selectable fields of their own reject `metadata.namespace`
/// if they are cluster-scoped.
fn check_selectable(served: &Served, field: &str) -> Result<()> {
    let resource = &served.resource;
    let has_own_fields = resource.strategy.custom || !resource.selectable.is_empty();
    let known = match field {
        "metadata.name" => true,
        "metadata.namespace" => resource.namespaced || !has_own_fields,
        _ => resource
            .selectable
            .iter()
            .any(|selectable| selectable.name == field),
    };
    if known {
        return Ok(());
    }
    Err(Failure::bad_request(match &*resource.kind {
        _ if !has_own_fields => {
            format!(
                "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        }
        "Job" if !resource.strategy.custom => {
            format!("field label \"{field}\" not supported for Job")
        }
        _ => format!("field label not supported: {field}"),
    }))
}

fn field_text(served: &Served, object: Option<&Value>, field: &str) -> String {
    let selectable = served
        .resource
        .selectable
        .iter()
        .find(|selectable| selectable.name == field);
    let value = selectable.zip(object).and_then(|(selectable, object)| {
        selectable
            .path
            .iter()
            .try_fold(object, |value, name| value.get(name))
    });
    match value {
        // In kube-apiserver these fields are Go numbers and booleans, which are never absent.
        None | Some(Value::Null) => match field {
            "spec.hostNetwork" | "spec.unschedulable" => "false".into(),
            "status.replicas" | "status.successful" => "0".into(),
            _ => String::new(),
        },
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

impl ResourceRequest<'_> {
    /// Returns an object.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Object>> {
        self.find(name).ok_or_else(|| self.not_found(name))
    }

    /// Returns the objects that a list requests.
    pub(crate) fn list(&self, options: &ListOptions) -> Result<List> {
        let filter = Filter::new(self.served, self.namespace, options)?;
        let any_state = options.resource_version == Some(0);
        let limit = options.limit.filter(|_| !any_state);
        let (at, from) = self.start(options, limit)?;
        let only = options
            .fields
            .exact("metadata.name")
            .map(|name| self.key(name));
        // With a selector the number of objects to scan for a page is unknown.
        let scanned = if filter.is_selective() { None } else { limit };
        let range = match &only {
            Some(key) if !self.namespace.is_empty() || !self.served.resource.namespaced => Range {
                namespace: self.namespace,
                from: from.as_str().max(key.as_str()),
                limit: Some(1),
            },
            _ => Range {
                namespace: self.namespace,
                from: &from,
                limit: scanned,
            },
        };
        let scan = self.core.store.scan(&self.served.table, range, at);
        let mut scan =
            scan.map_err(|Expired { floor }| self.expired(options, at.unwrap_or(0), floor, &from))?;
        let mut more = scan.remaining > 0 && only.is_none();
        if filter.is_selective() {
            let mut rest = scan.objects.into_iter();
            let selected = rest
                .by_ref()
                .filter(|object| filter.matches(self.served, object));
            scan.objects = selected.take(limit.unwrap_or(usize::MAX)).collect();
            // As in kube-apiserver, a full page has a continue token even if no later object is
            // selected.
            more = rest.len() > 0;
        }
        let next =
            scan.objects.last().filter(|_| more).map(|last| {
                Position::after(Some(scan.revision), self.relative(&last.key)).encode()
            });
        let remaining = (next.is_some() && !filter.is_selective()).then_some(scan.remaining);
        Ok(List {
            revision: scan.revision,
            objects: scan.objects,
            next,
            remaining,
        })
    }

    /// Returns the revision to list, `None` for the current one, and the first key.
    fn start(&self, options: &ListOptions, limit: Option<usize>) -> Result<(Option<u64>, String)> {
        if let Some(position) = &options.position {
            let from = if self.namespace.is_empty() {
                position.start.clone()
            } else {
                format!("{}/{}", self.namespace, position.start)
            };
            let current = self.core.store.revision();
            if let Some(revision) = position.revision.filter(|revision| *revision > current) {
                return Err(Failure::too_large_resource_version(revision, current));
            }
            return Ok((position.revision, from));
        }
        let exact = match options.version_match {
            Some(VersionMatch::Exact) => true,
            Some(VersionMatch::NotOlderThan) => false,
            // The meaning of a resource version before `resourceVersionMatch` existed.
            None => limit.is_some(),
        };
        let at = options
            .resource_version
            .filter(|revision| exact && *revision > 0);
        Ok((at, String::new()))
    }

    /// Returns the key as continue tokens of this list contain it.
    fn relative<'b>(&self, key: &'b Key) -> &'b str {
        if self.namespace.is_empty() {
            key.as_str()
        } else {
            key.name()
        }
    }

    /// Returns the failure of an expired page, with a token that continues on the current objects.
    fn expired(&self, options: &ListOptions, wanted: u64, floor: u64, from: &str) -> Box<Failure> {
        if options.position.is_none() {
            return Failure::expired(wanted, floor);
        }
        let start = from
            .strip_prefix(&format!("{}/", self.namespace))
            .unwrap_or(from);
        let mut failure = Failure::new(
            410,
            crate::status::Reason::Expired,
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
             results. Continuing with the provided token results in an inconsistent list - objects that were created, \
             modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        failure.continue_token = Some(
            Position {
                revision: None,
                start: start.into(),
            }
            .encode(),
        );
        failure
    }
}

impl Core {
    /// Waits a few seconds until the store has reached `revision`.
    ///
    /// Errors: the store has not reached it in time.
    pub(crate) async fn wait_for_revision(&self, revision: Option<u64>) -> Result<()> {
        const TIMEOUT: Duration = Duration::from_secs(3);
        const POLL_INTERVAL: Duration = Duration::from_millis(20);
        let Some(wanted) = revision else {
            return Ok(());
        };
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let current = self.store.revision();
            if current >= wanted {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Failure::too_large_resource_version(wanted, current));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}
