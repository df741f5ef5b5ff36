//! Naive model of the work queue, written after its documentation.
//!
//! `property` compares the two.

mod record;

pub(crate) use record::{NEVER, Nanos, Record, Run, Wait, limiter_delay, nanos};
use std::{collections::BTreeMap, time::Duration};
use steersman::workqueue::{Band, Priority};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    HandOut,
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    pub(crate) delay: Option<Duration>,
    pub(crate) limited: bool,
    pub(crate) replace: bool,
}

/// Fields of an item that the model returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) key: u8,
    pub(crate) priority: i32,
    pub(crate) attempt: u32,
    pub(crate) waited: Duration,
    pub(crate) reasons: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Drop,
    Done,
    After(Duration),
    Retry,
    /// Waits for the limiter's delay, but at least for this long.
    NotBefore(Duration),
    /// Waits for this long, regardless of the limiter.
    RetryAfter(Duration),
    Park(Option<Duration>),
}

impl End {
    fn is_requeue(self) -> bool {
        !matches!(self, Self::Drop | Self::Done | Self::Park(_))
    }
}

pub(crate) struct Model {
    pub(crate) now: Nanos,
    pub(crate) phase: Phase,
    pub(crate) keys: BTreeMap<u8, Record>,
    /// Ready keys that do not run, in the order in which they became ready.
    line: Vec<u8>,
    share: u32,
    turns: u32,
    served: i32,
    timers: u64,
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) rejected: u64,
}

impl Model {
    pub(crate) fn new(share: u32) -> Self {
        Self {
            now: 0,
            phase: Phase::Open,
            keys: BTreeMap::new(),
            line: Vec::new(),
            share: if share == 1 { 2 } else { share },
            turns: 0,
            served: i32::MIN,
            timers: 0,
            adds: 0,
            retries: 0,
            rejected: 0,
        }
    }

    pub(crate) fn rec(&self, key: u8) -> Option<&Record> {
        self.keys.get(&key)
    }

    fn of(&mut self, key: u8) -> &mut Record {
        self.keys.entry(key).or_default()
    }

    /// Advances the time and makes due keys ready, in the order of their times.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.now += nanos(by);
        let due = |rec: &Record| match rec.wait {
            Wait::Time(at, timer) | Wait::Unpark(at, timer) if at <= self.now => Some((at, timer)),
            _ => None,
        };
        let mut keys: Vec<_> = self
            .keys
            .iter()
            .filter_map(|(key, rec)| Some((due(rec)?, *key)))
            .collect();
        keys.sort_unstable();
        for ((at, _), key) in keys {
            self.become_ready(key, at);
        }
    }

    fn become_ready(&mut self, key: u8, since: Nanos) {
        self.adds += 1;
        self.of(key).wait = Wait::Worker(since);
        if self.of(key).run.is_none() {
            self.line.push(key);
        }
    }

    fn timer(&mut self, delay: Duration) -> (Nanos, u64) {
        self.timers += 1;
        (self.now.saturating_add(nanos(delay)), self.timers)
    }

    pub(crate) fn add(&mut self, key: u8, mut when: When, priority: i32, reason: Option<&str>) {
        if self.phase != Phase::Open {
            self.rejected += 1;
            return;
        }
        when.delay = when.delay.filter(|delay| !delay.is_zero());
        if when.limited {
            let limited = self.count_attempt(key);
            when.delay = Some(when.delay.map_or(limited, |delay| delay.min(limited)));
        }
        if let Some(reason) = reason {
            self.of(key).because(reason);
        }
        self.merge(key, when, priority);
    }

    fn count_attempt(&mut self, key: u8) -> Duration {
        let rec = self.of(key);
        let early = rec
            .run
            .as_mut()
            .is_some_and(|run| std::mem::take(&mut run.early));
        if rec.run.is_some() {
            rec.backoff = 0;
        }
        if !early || rec.attempts == 0 {
            rec.attempts += 1;
        }
        limiter_delay(rec.attempts - 1)
    }

    fn merge(&mut self, key: u8, when: When, priority: i32) {
        let now = self.now;
        let timer = when.delay.map(|delay| self.timer(delay));
        self.retries += u64::from(timer.is_some());
        let rec = self.of(key);
        let raised = priority > rec.priority;
        if let (true, Some((end, _))) = (when.limited, timer) {
            // A failed run starts a new backoff. Without a run, the pending backoff continues.
            let waits =
                rec.run.is_none() && matches!(rec.wait, Wait::Time(..)) && rec.backoff > now;
            rec.backoff = if waits && !when.replace {
                rec.backoff.min(end)
            } else {
                end
            };
        }
        match rec.wait {
            Wait::Nothing => {
                (rec.priority, rec.added_at) = (priority, now);
                match timer {
                    Some((at, n)) => rec.wait = Wait::Time(at, n),
                    None => self.become_ready(key, now),
                }
            }
            Wait::Worker(_) => {
                rec.priority = rec.priority.max(priority);
                if raised && rec.run.is_none() {
                    self.line.retain(|other| *other != key);
                    self.line.push(key);
                }
            }
            Wait::Time(was, _) => {
                rec.priority = rec.priority.max(priority);
                match timer {
                    None => self.become_ready(key, now),
                    Some((at, n)) if at < was || when.replace => rec.wait = Wait::Time(at, n),
                    Some(_) => {}
                }
            }
            Wait::Unpark(..) => rec.priority = rec.priority.max(priority),
        }
    }

    /// Returns the index in `line` of the key to return next.
    fn turn(&mut self) -> Option<usize> {
        let priority = |key: &u8| self.keys[key].priority;
        let highest = self.line.iter().map(priority).max()?;
        let first = self.line.iter().position(|key| priority(key) == highest);
        if self.share == 0 {
            return first;
        }
        self.turns += 1;
        if self.turns < self.share {
            self.served = self.served.max(highest);
            return first;
        }
        let passed_over = self.line.iter().position(|key| priority(key) < self.served);
        (self.turns, self.served) = (0, i32::MIN);
        passed_over.or(first)
    }

    pub(crate) fn get(&mut self) -> Option<Handed> {
        let place = self.turn()?;
        let key = self.line.remove(place);
        let now = self.now;
        let rec = self.of(key);
        let Wait::Worker(since) = rec.wait else {
            panic!("a queued key waits for a worker")
        };
        rec.wait = Wait::Nothing;
        let reasons = std::mem::take(&mut rec.reasons);
        rec.run = Some(Run {
            started: now,
            priority: rec.priority,
            added_at: rec.added_at,
            reasons: reasons.clone(),
            early: since < rec.backoff,
            unparked: false,
        });
        let waited = Duration::from_nanos(now - since);
        Some(Handed {
            key,
            priority: rec.priority,
            attempt: rec.attempts + 1,
            waited,
            reasons,
        })
    }

    pub(crate) fn finish(
        &mut self,
        key: u8,
        end: End,
        priority: Option<i32>,
        error: Option<String>,
    ) {
        if self.phase == Phase::Closed {
            self.rejected += u64::from(end.is_requeue());
            self.keys.remove(&key);
            return;
        }
        let open = self.phase == Phase::Open;
        let retry_in = match end {
            End::Retry if open => Some(self.count_attempt(key)),
            End::NotBefore(delay) if open => Some(self.count_attempt(key).max(delay)),
            End::RetryAfter(delay) if open => {
                self.count_attempt(key);
                Some(delay).filter(|delay| !delay.is_zero())
            }
            _ => None,
        };
        let rec = self.of(key);
        let run = rec.run.clone().expect("a running key");
        rec.error = error.or(rec.error.take());
        let priority = priority.unwrap_or(run.priority);
        match end {
            End::Done | End::After(_) => self.forget_attempts(key),
            _ => {}
        }
        match end {
            _ if !open => self.rejected += u64::from(end.is_requeue()),
            End::After(delay) => {
                let delay = Some(delay).filter(|delay| !delay.is_zero());
                self.merge(
                    key,
                    When {
                        delay,
                        limited: false,
                        replace: false,
                    },
                    priority,
                );
            }
            End::Retry | End::NotBefore(_) | End::RetryAfter(_) => {
                self.merge(
                    key,
                    When {
                        delay: retry_in,
                        limited: true,
                        replace: false,
                    },
                    priority,
                );
            }
            End::Park(bound) => self.park(key, bound, run),
            End::Drop | End::Done => {}
        }
        self.of(key).run = None;
        if matches!(self.of(key).wait, Wait::Worker(_)) {
            self.line.push(key);
        }
        if !open {
            self.forget_attempts(key);
        }
        self.free(key);
    }

    fn park(&mut self, key: u8, bound: Option<Duration>, run: Run) {
        let now = self.now;
        let (until, timer) = self.timer(bound.unwrap_or(Duration::MAX));
        let rec = self.of(key);
        let added_meanwhile = rec.wait != Wait::Nothing;
        rec.priority = if added_meanwhile {
            rec.priority.max(run.priority)
        } else {
            run.priority
        };
        let newer = std::mem::replace(&mut rec.reasons, run.reasons);
        for reason in &newer {
            rec.because(reason);
        }
        if run.unparked || until <= now {
            rec.wait = Wait::Worker(now);
            self.adds += 1;
        } else {
            rec.wait = Wait::Unpark(until, timer);
        }
    }

    pub(crate) fn unpark(&mut self, key: u8) -> bool {
        let now = self.now;
        let Some(rec) = self.keys.get_mut(&key) else {
            return false;
        };
        if matches!(rec.wait, Wait::Unpark(..)) {
            self.become_ready(key, now);
            return true;
        }
        rec.run.as_mut().map(|run| run.unparked = true).is_some()
    }

    pub(crate) fn cancel(&mut self, key: u8) -> bool {
        let Some(rec) = self.keys.get_mut(&key) else {
            return false;
        };
        let waited = std::mem::replace(&mut rec.wait, Wait::Nothing) != Wait::Nothing;
        rec.reasons.clear();
        self.line.retain(|other| *other != key);
        self.free(key);
        waited
    }

    pub(crate) fn forget(&mut self, key: u8) {
        if self.keys.contains_key(&key) {
            self.forget_attempts(key);
            self.free(key);
        }
    }

    fn forget_attempts(&mut self, key: u8) {
        let rec = self.of(key);
        (rec.attempts, rec.backoff, rec.error) = (0, 0, None);
        if let Some(run) = &mut rec.run {
            run.early = false;
        }
    }

    /// Removes the key if it neither runs nor waits and has no failed attempts.
    fn free(&mut self, key: u8) {
        self.keys.retain(|other, rec| {
            *other != key || rec.wait != Wait::Nothing || rec.run.is_some() || rec.attempts > 0
        });
    }

    pub(crate) fn shut_down(&mut self, phase: Phase) {
        if phase <= self.phase {
            return;
        }
        self.phase = phase;
        if phase == Phase::Closed {
            self.keys.retain(|_, rec| rec.run.is_some());
            self.line.clear();
        }
        for rec in self.keys.values_mut() {
            rec.error = None;
            if phase == Phase::Closed || matches!(rec.wait, Wait::Time(..) | Wait::Unpark(..)) {
                rec.wait = Wait::Nothing;
                rec.reasons.clear();
            }
        }
        self.keys
            .retain(|_, rec| rec.wait != Wait::Nothing || rec.run.is_some());
    }

    /// Counts the ready keys of a band, including running keys that were added again.
    pub(crate) fn depth(&self, band: Band) -> usize {
        let ready = |rec: &&Record| {
            matches!(rec.wait, Wait::Worker(_)) && Priority(rec.priority).band() == band
        };
        self.keys.values().filter(ready).count()
    }

    /// Returns whether `get` can still return a key, now or later.
    pub(crate) fn gives_more(&self) -> bool {
        let waits = |rec: &Record| matches!(rec.wait, Wait::Worker(_));
        self.phase == Phase::Open || self.phase == Phase::HandOut && self.keys.values().any(waits)
    }

    pub(crate) fn is_drained(&self) -> bool {
        let over = |rec: &Record| rec.wait == Wait::Nothing && rec.run.is_none();
        self.phase != Phase::Open && self.keys.values().all(over)
    }
}
