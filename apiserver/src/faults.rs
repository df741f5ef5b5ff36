//! Fault rules, such as `PATCH widgets/status -> 409 twice`, that make requests fail on demand.
//!
//! ```
//! use std::time::Duration;
//! use steersman_apiserver::{Fault, Faults};
//!
//! let faults = Faults::default();
//! let conflict = faults.add(Fault::on("PATCH widgets/status").status(409).times(2));
//! faults.add("list pods -> 429 retry-after 3 once".parse().unwrap());
//! faults.add(Fault::on("* secrets").delay(Duration::from_millis(200)));
//! assert_eq!(conflict.hits(), 0);
//! conflict.remove();
//! ```

use crate::{
    matcher::{Matcher, PatternError, RequestInfo},
    status::{Details, Failure, Reason},
};
use parking_lot::Mutex;
use std::{
    fmt,
    panic::Location,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A fault rule: a pattern of requests and what to do with them.
///
/// A rule without an action only counts the requests that it matches.
#[derive(Clone, Debug)]
pub struct Fault {
    matcher: Matcher,
    delay: Duration,
    kind: FaultKind,
    skip: u64,
    times: Option<u64>,
}

/// Configured effect of a rule.
#[derive(Clone, Debug)]
enum FaultKind {
    Serve,
    Status(u16),
    Fail(Box<Failure>),
    Close,
    DropWatchAfter(u64),
}

/// Decision about one request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Action {
    /// Time to wait before [`Self::kind`].
    pub(crate) delay: Duration,
    pub(crate) kind: ActionKind,
}

/// How to handle a request after the delay of an [`Action`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ActionKind {
    /// Serve it as without a rule.
    Serve,
    /// Respond with this failure. `details.retry_after_seconds` is also sent as the header
    /// `Retry-After`.
    Fail(Box<Failure>),
    /// Close the connection: respond with [`Closed::response`](crate::dropped_connection::Closed::response).
    Close,
    /// Serve the watch and break it after this number of events. See
    /// [`DropAfter`](crate::dropped_connection::DropAfter).
    DropWatchAfter(u64),
}

impl Fault {
    /// Creates a rule for the requests that `pattern` matches. [`Matcher`] documents the syntax.
    ///
    /// # Panics
    ///
    /// If the pattern is invalid. Use [`FromStr`] for rules that are not constants.
    pub fn on(pattern: &str) -> Self {
        Self::new(Matcher::from_literal(pattern))
    }

    fn new(matcher: Matcher) -> Self {
        Self {
            matcher,
            delay: Duration::ZERO,
            kind: FaultKind::Serve,
            skip: 0,
            times: None,
        }
    }

    /// Responds with this HTTP status, and with the reason and message that kube-apiserver uses for
    /// it.
    ///
    /// # Panics
    ///
    /// If the status is not in 400 to 599.
    #[must_use]
    pub fn status(self, code: u16) -> Self {
        assert!(
            is_failure(code),
            "{code} is not a status of a failure; use 400 to 599"
        );
        Self {
            kind: FaultKind::Status(code),
            ..self
        }
    }

    /// Responds with `failure`.
    #[must_use]
    pub fn failure(self, failure: impl Into<Box<Failure>>) -> Self {
        Self {
            kind: FaultKind::Fail(failure.into()),
            ..self
        }
    }

    /// Responds with 429 and a `Retry-After` of `retry_after`, rounded up to whole seconds, at
    /// least one.
    #[must_use]
    pub fn too_many(self, retry_after: Duration) -> Self {
        let seconds = retry_after.as_secs_f64().ceil().max(1.) as u32;
        let failure = Failure::new(
            429,
            Reason::TooManyRequests,
            "too many requests, please try again later",
        )
        .about(Details {
            retry_after_seconds: Some(seconds),
            ..Details::default()
        });
        self.failure(failure)
    }

    /// Closes the connection without a response. The call of an in-process client fails with
    /// [`Closed`](crate::dropped_connection::Closed).
    #[must_use]
    pub fn close(self) -> Self {
        Self {
            kind: FaultKind::Close,
            ..self
        }
    }

    /// Breaks watches after `events` events. The rule does not match requests other than watches.
    #[must_use]
    pub fn drop_watch_after(self, events: u64) -> Self {
        Self {
            kind: FaultKind::DropWatchAfter(events),
            ..self
        }
    }

    /// Waits before the action. Without another action the request is then served.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Limits the rule to `times` requests. Default: unlimited.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self {
            times: Some(times),
            ..self
        }
    }

    /// Ignores the first `requests` that match. Default: 0.
    #[must_use]
    pub fn after(self, requests: u64) -> Self {
        Self {
            skip: requests,
            ..self
        }
    }

    fn matches(&self, call: &RequestInfo<'_>) -> bool {
        let watches_only = matches!(self.kind, FaultKind::DropWatchAfter(_));
        (!watches_only || call.verb == "watch") && self.matcher.matches(call)
    }

    fn action(&self, call: &RequestInfo<'_>) -> Action {
        let kind = match &self.kind {
            FaultKind::Serve => ActionKind::Serve,
            FaultKind::Status(code) => ActionKind::Fail(failure(*code, call)),
            FaultKind::Fail(failure) => ActionKind::Fail(failure.clone()),
            FaultKind::Close => ActionKind::Close,
            FaultKind::DropWatchAfter(events) => ActionKind::DropWatchAfter(*events),
        };
        Action {
            delay: self.delay,
            kind,
        }
    }
}

fn is_failure(code: u16) -> bool {
    (400..600).contains(&code)
}

/// Returns the failure that kube-apiserver sends with `code`, with the reason and details that
/// clients read.
fn failure(code: u16, call: &RequestInfo<'_>) -> Box<Failure> {
    let RequestInfo {
        group,
        resource,
        name,
        ..
    } = *call;
    let message = "injected by a fault rule";
    let reason = match code {
        400 => Reason::BadRequest,
        401 => return Failure::new(401, Reason::Unauthorized, "Unauthorized"),
        403 => return Failure::forbidden(group, resource, name, message),
        404 => return Failure::not_found(group, resource, name),
        405 => return Failure::method_not_allowed(),
        406 => Reason::NotAcceptable,
        409 if call.verb == "create" => return Failure::already_exists(group, resource, name),
        409 => {
            let cause = "the object has been modified; please apply your changes to the latest version and try again";
            return Failure::conflict(group, resource, name, cause);
        }
        410 => Reason::Expired,
        413 => Reason::RequestEntityTooLarge,
        415 => Reason::UnsupportedMediaType,
        422 => Reason::Invalid,
        429 => Reason::TooManyRequests,
        500 => return Failure::internal(message),
        504 => Reason::Timeout,
        _ => return Failure::new(code, None, message),
    };
    Failure::new(code, reason, message)
}

/// The active fault rules. Clones share them.
///
/// When the server and all its handles are dropped, at the end of a test, rules that have acted on
/// no request are reported on stderr. [`unused`](Self::unused) returns them earlier.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Rules>>);

#[derive(Debug, Default)]
struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    fault: Fault,
    matched: u64,
    hits: Arc<AtomicU64>,
    /// Call of [`Faults::add`].
    added_at: &'static Location<'static>,
}

impl Rules {
    fn unused(&self) -> Vec<String> {
        let is_unused = |rule: &&Rule| rule.hits.load(Ordering::Relaxed) == 0;
        let describe = |rule: &Rule| {
            format!(
                "the fault added at {} has acted on no request; check its pattern",
                rule.added_at
            )
        };
        self.0.iter().filter(is_unused).map(describe).collect()
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        for unused in self.unused() {
            eprintln!("{unused}");
        }
    }
}

impl Faults {
    /// Adds a rule after the existing ones. It stays until [`RuleHandle::remove`]; dropping the
    /// handle does not remove it.
    #[track_caller]
    pub fn add(&self, fault: Fault) -> RuleHandle {
        let hits = Arc::new(AtomicU64::new(0));
        self.0.lock().0.push(Rule {
            fault,
            matched: 0,
            hits: hits.clone(),
            added_at: Location::caller(),
        });
        RuleHandle {
            faults: self.clone(),
            hits,
        }
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.0.lock().0.clear();
    }

    /// Returns a message for each rule that has acted on no request and was not removed.
    pub fn unused(&self) -> Vec<String> {
        self.0.lock().unused()
    }

    /// Returns the action of the first matching rule that is not used up, and counts it as a hit.
    pub(crate) fn decide(&self, call: &RequestInfo<'_>) -> Option<Action> {
        let mut rules = self.0.lock();
        rules.0.iter_mut().find_map(|rule| rule.decide(call))
    }
}

impl Rule {
    fn decide(&mut self, call: &RequestInfo<'_>) -> Option<Action> {
        let hits = self.hits.load(Ordering::Relaxed);
        if self.fault.times.is_some_and(|times| hits >= times) || !self.fault.matches(call) {
            return None;
        }
        self.matched += 1;
        if self.matched <= self.fault.skip {
            return None;
        }
        self.hits.store(hits + 1, Ordering::Relaxed);
        Some(self.fault.action(call))
    }
}

/// Handle of an added rule.
#[derive(Clone, Debug)]
pub struct RuleHandle {
    faults: Faults,
    /// Also identifies the rule.
    hits: Arc<AtomicU64>,
}

impl RuleHandle {
    /// Returns the number of requests that the rule acted on.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Removes the rule. [`Self::hits`] can still be read.
    pub fn remove(&self) {
        self.faults
            .0
            .lock()
            .0
            .retain(|rule| !Arc::ptr_eq(&rule.hits, &self.hits));
    }
}

/// Error of parsing a fault rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultError(String);

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FaultError {}

impl From<PatternError> for FaultError {
    fn from(error: PatternError) -> Self {
        Self(error.to_string())
    }
}

/// Parses `PATTERN -> ACTIONS`, such as `PATCH widgets/status -> 409 twice`.
impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (pattern, actions) = text.split_once("->").ok_or_else(|| {
            FaultError(format!(
                "cannot parse the fault rule `{text}`: no `->`; write `PATTERN -> ACTIONS`, such as `PATCH widgets/status -> 409 twice`"
            ))
        })?;
        let mut fault = Self::new(pattern.parse()?);
        let words: Vec<_> = actions.split_whitespace().collect();
        let mut rest = &words[..];
        if rest.is_empty() {
            return Err(invalid_action(""));
        }
        while !rest.is_empty() {
            (fault, rest) = fault
                .parse_action(rest)
                .ok_or_else(|| invalid_action(&rest.join(" ")))?;
        }
        Ok(fault)
    }
}

fn invalid_action(text: &str) -> FaultError {
    FaultError(format!(
        "invalid action `{text}`; use a status from 400 to 599 such as `409`, `429 retry-after 3`, `close`, \
         `drop after 5` or `delay 200ms`, with `once`, `twice`, `3 times` or `skip 2`"
    ))
}

impl Fault {
    /// Parses the first action of `words` and returns the rest.
    fn parse_action<'a>(self, words: &'a [&'a str]) -> Option<(Self, &'a [&'a str])> {
        Some(match words {
            ["429", "retry-after", seconds, rest @ ..] => (
                self.too_many(Duration::from_secs(seconds.parse::<u32>().ok()?.into())),
                rest,
            ),
            ["close", rest @ ..] => (self.close(), rest),
            ["drop", "after", events, rest @ ..] => {
                (self.drop_watch_after(events.parse().ok()?), rest)
            }
            ["delay", delay, rest @ ..] => (self.delay(parse_duration(delay)?), rest),
            ["once", rest @ ..] => (self.times(1), rest),
            ["twice", rest @ ..] => (self.times(2), rest),
            [times, "times", rest @ ..] => (self.times(times.parse().ok()?), rest),
            ["skip", requests, rest @ ..] => (self.after(requests.parse().ok()?), rest),
            [code, rest @ ..] => (
                self.status(code.parse().ok().filter(|code| is_failure(*code))?),
                rest,
            ),
            [] => return None,
        })
    }
}

/// Parses a duration such as `200ms`, `3s` or `1m`.
fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let number = number.parse::<u32>().ok()?.into();
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(60 * number)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;
