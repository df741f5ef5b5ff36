//! Faults as rules: `PATCH widgets/status -> 409 twice`. What a controller has to survive, on demand.
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
    matcher::{Call, Matcher, PatternError},
    status::{Details, Failure, Reason},
};
use parking_lot::Mutex;
use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A rule: which requests, and what happens to them. Without an action it counts what it matches and changes nothing.
#[derive(Clone, Debug)]
pub struct Fault {
    matcher: Matcher,
    delay: Duration,
    what: What,
    skip: u64,
    times: Option<u64>,
}

/// What a rule does, before it is known to whom.
#[derive(Clone, Debug)]
enum What {
    Serve,
    Status(u16),
    Fail(Box<Failure>),
    Close,
    DropWatchAfter(u64),
}

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Action {
    /// First wait this long.
    pub(crate) delay: Duration,
    /// Then do this.
    pub(crate) then: Then,
}

/// What is to be done with a request, after the delay.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Then {
    /// Serve it as if there were no rule.
    Serve,
    /// Answer with this. `details.retry_after_seconds` also goes into the header `Retry-After`.
    Fail(Box<Failure>),
    /// Cut the connection: answer with [`Closed::response`](crate::cut::Closed::response).
    Close,
    /// Serve the watch, and break it after so many events: see [`DropAfter`](crate::cut::DropAfter).
    DropWatchAfter(u64),
}

impl Fault {
    /// A rule for the requests that the pattern matches; [`Matcher`] says how it is written.
    ///
    /// # Panics
    ///
    /// If the pattern is not one: the message says what is. To read one from elsewhere, parse the whole rule.
    pub fn on(pattern: &str) -> Self {
        Self::new(Matcher::written(pattern))
    }

    fn new(matcher: Matcher) -> Self {
        Self { matcher, delay: Duration::ZERO, what: What::Serve, skip: 0, times: None }
    }

    /// Fail with this HTTP status, and the reason and message that the real server has for it.
    ///
    /// # Panics
    ///
    /// If it is not a status of failure, 400 to 599.
    #[must_use]
    pub fn status(self, code: u16) -> Self {
        assert!(is_failure(code), "{code} is no status of failure: those are 400 to 599");
        Self { what: What::Status(code), ..self }
    }

    /// Fail with exactly this.
    #[must_use]
    pub fn failure(self, failure: impl Into<Box<Failure>>) -> Self {
        Self { what: What::Fail(failure.into()), ..self }
    }

    /// Fail with 429 and tell the client to come back after `retry_after`, whole seconds, at least one.
    #[must_use]
    pub fn too_many(self, retry_after: Duration) -> Self {
        let seconds = retry_after.as_secs_f64().ceil().max(1.) as u32;
        let failure = Failure::new(429, Reason::TooManyRequests, "too many requests, please try again later")
            .about(Details { retry_after_seconds: Some(seconds), ..Details::default() });
        self.failure(failure)
    }

    /// Cut the connection without an answer. A client without a connection, called directly, gets
    /// [`Closed`](crate::cut::Closed) as the error of its call.
    #[must_use]
    pub fn close(self) -> Self {
        Self { what: What::Close, ..self }
    }

    /// Break watches after so many events. Requests that are no watches pass this rule by.
    #[must_use]
    pub fn drop_watch_after(self, events: u64) -> Self {
        Self { what: What::DropWatchAfter(events), ..self }
    }

    /// Wait before anything else is done; alone, the request is then served.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Act on so many requests, then no more. Without this a rule acts on all.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Let the first `requests` that match go by.
    #[must_use]
    pub fn after(self, requests: u64) -> Self {
        Self { skip: requests, ..self }
    }

    fn covers(&self, call: &Call<'_>) -> bool {
        let watches = matches!(self.what, What::DropWatchAfter(_));
        (!watches || call.verb == "watch") && self.matcher.matches(call)
    }

    fn action(&self, call: &Call<'_>) -> Action {
        let then = match &self.what {
            What::Serve => Then::Serve,
            What::Status(code) => Then::Fail(failure(*code, call)),
            What::Fail(failure) => Then::Fail(failure.clone()),
            What::Close => Then::Close,
            What::DropWatchAfter(events) => Then::DropWatchAfter(*events),
        };
        Action { delay: self.delay, then }
    }
}

fn is_failure(code: u16) -> bool {
    (400..600).contains(&code)
}

/// What the real server says with `code` to `call`, so that clients find the reason and details that they look for.
fn failure(code: u16, call: &Call<'_>) -> Box<Failure> {
    let Call { group, resource, name, .. } = *call;
    let why = "injected by a fault rule";
    let reason = match code {
        400 => Reason::BadRequest,
        401 => return Failure::new(401, Reason::Unauthorized, "Unauthorized"),
        403 => return Failure::forbidden(group, resource, name, why),
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
        500 => return Failure::internal(why),
        504 => Reason::Timeout,
        _ => return Failure::new(code, None, why),
    };
    Failure::new(code, reason, why)
}

/// The rules in force. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<Rule>>>);

#[derive(Debug)]
struct Rule {
    fault: Fault,
    seen: u64,
    hits: Arc<AtomicU64>,
}

impl Faults {
    /// Puts a rule behind those that are there. It stays until it is [removed](RuleHandle::remove), not until its handle
    /// is dropped.
    pub fn add(&self, fault: Fault) -> RuleHandle {
        let hits = Arc::new(AtomicU64::new(0));
        self.0.lock().push(Rule { fault, seen: 0, hits: hits.clone() });
        RuleHandle { faults: self.clone(), hits }
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// What is to be done with a request: by the first rule that matches and is not used up. That use is counted.
    pub(crate) fn decide(&self, call: &Call<'_>) -> Option<Action> {
        self.0.lock().iter_mut().find_map(|rule| rule.decide(call))
    }
}

impl Rule {
    fn decide(&mut self, call: &Call<'_>) -> Option<Action> {
        let hits = self.hits.load(Ordering::Relaxed);
        if self.fault.times.is_some_and(|times| hits >= times) || !self.fault.covers(call) {
            return None;
        }
        self.seen += 1;
        if self.seen <= self.fault.skip {
            return None;
        }
        self.hits.store(hits + 1, Ordering::Relaxed);
        Some(self.fault.action(call))
    }
}

/// A rule that was added.
#[derive(Clone, Debug)]
pub struct RuleHandle {
    faults: Faults,
    /// Also tells the rule from others.
    hits: Arc<AtomicU64>,
}

impl RuleHandle {
    /// How many requests it acted on.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Takes it out of force; its hits stay readable.
    pub fn remove(&self) {
        self.faults.0.lock().retain(|rule| !Arc::ptr_eq(&rule.hits, &self.hits));
    }
}

/// A text that is no rule.
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

/// `PATTERN -> ACTIONS`, such as `PATCH widgets/status -> 409 twice`; a wrong one is told what actions there are.
impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (pattern, actions) = text.split_once("->").ok_or_else(|| {
            FaultError(format!(
                "`{text}` has no `->`: a rule is `PATTERN -> ACTIONS`, `PATCH widgets/status -> 409 twice`"
            ))
        })?;
        let mut fault = Self::new(pattern.parse()?);
        let words: Vec<_> = actions.split_whitespace().collect();
        let mut rest = &words[..];
        if rest.is_empty() {
            return Err(no_action(""));
        }
        while !rest.is_empty() {
            (fault, rest) = fault.read(rest).ok_or_else(|| no_action(&rest.join(" ")))?;
        }
        Ok(fault)
    }
}

fn no_action(text: &str) -> FaultError {
    FaultError(format!(
        "`{text}` is no action: there are `409` or another status from 400 to 599, `429 retry-after 3`, `close`, \
         `drop after 5`, `delay 200ms`, and with them `once`, `twice`, `3 times`, `skip 2`"
    ))
}

impl Fault {
    /// Reads one action off `words`.
    fn read<'a>(self, words: &'a [&'a str]) -> Option<(Self, &'a [&'a str])> {
        Some(match words {
            ["429", "retry-after", seconds, rest @ ..] => {
                (self.too_many(Duration::from_secs(seconds.parse::<u32>().ok()?.into())), rest)
            }
            ["close", rest @ ..] => (self.close(), rest),
            ["drop", "after", events, rest @ ..] => (self.drop_watch_after(events.parse().ok()?), rest),
            ["delay", delay, rest @ ..] => (self.delay(duration(delay)?), rest),
            ["once", rest @ ..] => (self.times(1), rest),
            ["twice", rest @ ..] => (self.times(2), rest),
            [times, "times", rest @ ..] => (self.times(times.parse().ok()?), rest),
            ["skip", requests, rest @ ..] => (self.after(requests.parse().ok()?), rest),
            [code, rest @ ..] => (self.status(code.parse().ok().filter(|code| is_failure(*code))?), rest),
            [] => return None,
        })
    }
}

/// `200ms`, `3s`, `1m`.
fn duration(text: &str) -> Option<Duration> {
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
