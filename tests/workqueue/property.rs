//! Property tests: after each random operation, queue and naive model agree.

use crate::{
    model::{End, Handed, Model, NEVER, Nanos, Phase, Record, Wait, When, limiter_delay},
    support::{ByHand, reasons},
};
use proptest::prelude::*;
use std::{collections::HashMap, task::Poll, time::Duration};
use steersman::workqueue::{
    Add, Band, Entry, EntryState, Item, Limiter, Outcome, Priority, QueueOptions, Reason, WorkQueue,
};

#[derive(Clone, Debug)]
enum Step {
    Add {
        keys: Vec<u8>,
        when: When,
        priority: Option<i32>,
        reason: Option<&'static str>,
    },
    /// Uses `get`, polled once, if `wait` is set, otherwise `try_get`.
    Get {
        wait: bool,
    },
    /// Finishes the running item with number `which`.
    Finish {
        which: usize,
        end: End,
        priority: Option<i32>,
        error: Option<&'static str>,
        next: bool,
    },
    Unpark {
        key: u8,
    },
    Cancel {
        key: u8,
    },
    Forget {
        key: u8,
    },
    /// Advances the time. If `look` is unset, the states are not compared afterwards.
    Advance {
        by: Duration,
        look: bool,
    },
    Shut {
        phase: Phase,
        drain: bool,
    },
}

const KEYS: u8 = 5;

fn delay() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_nanos(1)),
        Just(Duration::from_micros(500)),
        (1..20u64).prop_map(Duration::from_millis),
        (1..50_000_000u64).prop_map(Duration::from_nanos),
        Just(Duration::from_hours(1)),
        Just(Duration::MAX),
    ]
}

fn passing() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::from_nanos(1)),
        Just(Duration::from_nanos(999_999)),
        (1..20u64).prop_map(Duration::from_millis),
        (1..50_000_000u64).prop_map(Duration::from_nanos),
        Just(Duration::from_hours(2)),
    ]
}

fn priority() -> impl Strategy<Value = Option<i32>> {
    prop::option::of(prop_oneof![
        -2..=2i32,
        Just(100),
        Just(-100),
        Just(i32::MAX),
        Just(i32::MIN)
    ])
}

fn step() -> impl Strategy<Value = Step> {
    let when = (
        prop::option::of(delay()),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(delay, limited, replace)| When {
            delay,
            limited,
            replace,
        });
    let reason = prop::option::of(prop::sample::select(vec![
        "one", "two", "three", "four", "five", "six",
    ]));
    let keys = prop_oneof![9 => prop::collection::vec(0..KEYS, 1), 1 => prop::collection::vec(0..KEYS, 0..4)];
    let end = prop_oneof![
        2 => Just(End::Drop),
        2 => Just(End::Done),
        2 => delay().prop_map(End::After),
        4 => Just(End::Retry),
        1 => delay().prop_map(End::NotBefore),
        2 => delay().prop_map(End::RetryAfter),
        2 => prop::option::of(delay()).prop_map(End::Park),
    ];
    let error = prop::option::of(prop::sample::select(vec!["broken", "down"]));
    prop_oneof![
        30 => (keys, when, priority(), reason)
            .prop_map(|(keys, when, priority, reason)| Step::Add { keys, when, priority, reason }),
        20 => any::<bool>().prop_map(|wait| Step::Get { wait }),
        20 => (any::<usize>(), end, priority(), error, any::<bool>())
            .prop_map(|(which, end, priority, error, next)| Step::Finish { which, end, priority, error, next }),
        4 => (0..KEYS).prop_map(|key| Step::Unpark { key }),
        3 => (0..KEYS).prop_map(|key| Step::Cancel { key }),
        2 => (0..KEYS).prop_map(|key| Step::Forget { key }),
        15 => (passing(), any::<bool>()).prop_map(|(by, look)| Step::Advance { by, look }),
        1 => (prop::sample::select(vec![Phase::HandOut, Phase::Closed]), any::<bool>())
            .prop_map(|(phase, drain)| Step::Shut { phase, drain }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..150)
}

fn share() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0), 1 => 1..5u32, 1 => Just(16)]
}

/// The queue and its model.
struct Both {
    queue: WorkQueue<u8>,
    model: Model,
    items: Vec<Item<u8>>,
}

impl Both {
    /// Creates queue and model.
    ///
    /// If `asks` is set, the queue calls a custom limiter with the delays of a built-in one.
    fn new(share: u32, asks: bool) -> Self {
        let limiter = if asks {
            Limiter::new(|_: &u8, attempt, _| limiter_delay(attempt))
        } else {
            Limiter::exponential(limiter_delay(0), limiter_delay(u32::MAX))
        };
        let queue = WorkQueue::new(QueueOptions {
            share,
            limiter,
            ..QueueOptions::default()
        });
        Self {
            queue,
            model: Model::new(share),
            items: Vec::new(),
        }
    }

    /// Applies the step to both and compares them, unless the step excludes that.
    async fn play(&mut self, step: Step) {
        if matches!(step, Step::Cancel { .. } | Step::Finish { .. }) {
            // The behaviour of a key that came due unobserved before it is cancelled or finished is
            // unspecified.
            self.compare();
        }
        match step {
            Step::Advance { by, look } => {
                tokio::time::advance(by).await;
                self.model.advance(by);
                if !look {
                    return;
                }
            }
            Step::Add {
                mut keys,
                when,
                priority,
                reason,
            } => {
                if when.limited {
                    // The behaviour of a key that occurs twice in a rate-limited batch is
                    // unspecified.
                    keys.sort_unstable();
                    keys.dedup();
                }
                self.add(&keys, when, priority, reason);
            }
            Step::Get { wait } => self.get(wait),
            Step::Finish { .. } if self.items.is_empty() => {}
            Step::Finish {
                which,
                end,
                priority,
                error,
                next,
            } => {
                self.finish(which % self.items.len(), end, priority, error, next);
            }
            Step::Unpark { key } => {
                assert_eq!(
                    self.queue.unpark(&key),
                    self.model.phase != Phase::Closed && self.model.unpark(key)
                );
            }
            Step::Cancel { key } => {
                assert_eq!(
                    self.queue.cancel(&key),
                    self.model.phase != Phase::Closed && self.model.cancel(key)
                );
            }
            Step::Forget { key } => {
                self.queue.forget(&key);
                self.model.forget(key);
            }
            Step::Shut { phase, drain } => {
                self.model.shut_down(phase);
                match phase {
                    Phase::Closed => self.queue.close(),
                    _ if drain => {
                        let drained = ByHand::new(self.queue.drain()).poll().is_ready();
                        assert_eq!(drained, self.model.is_drained());
                    }
                    _ => self.queue.close_after_ready(),
                }
            }
        }
        self.compare();
    }

    fn add(&mut self, keys: &[u8], when: When, priority: Option<i32>, reason: Option<&str>) {
        let add = Add {
            after: when.delay,
            rate_limited: when.limited,
            priority: priority.map(Priority),
            reason: reason.map(Into::into),
            replace_timer: when.replace,
        };
        match keys {
            [key] => self.queue.add_with(*key, add),
            keys => self.queue.add_all(keys.iter().copied(), add),
        }
        for key in keys {
            self.model.add(*key, when, priority.unwrap_or(0), reason);
        }
    }

    fn get(&mut self, wait: bool) {
        let handed = self.model.get();
        let item = if wait {
            let polled = ByHand::new(self.queue.get()).poll();
            assert_eq!(
                polled.is_pending(),
                handed.is_none() && self.model.gives_more(),
                "whether the getter waits"
            );
            match polled {
                Poll::Ready(item) => item,
                Poll::Pending => None,
            }
        } else {
            self.queue.try_get()
        };
        self.handed_out(item, handed.as_ref());
    }

    fn handed_out(&mut self, item: Option<Item<u8>>, expected: Option<&Handed>) {
        let seen = item.as_ref().map(|item| Handed {
            key: **item,
            priority: item.priority().0,
            attempt: item.attempt(),
            waited: item.waited(),
            reasons: reasons(item),
        });
        assert_eq!(seen.as_ref(), expected);
        self.items.extend(item);
    }

    fn finish(
        &mut self,
        which: usize,
        end: End,
        priority: Option<i32>,
        error: Option<&str>,
        next: bool,
    ) {
        let mut item = self.items.remove(which);
        let key = *item;
        if let Some(error) = error {
            item.set_error(error);
        }
        let outcome = match end {
            End::Done => Some(Outcome::done()),
            End::After(delay) => Some(Outcome::requeue_after(delay)),
            End::Retry => Some(Outcome::requeue()),
            End::NotBefore(delay) => Some(Outcome::requeue_not_before(delay)),
            End::RetryAfter(delay) => Some(Outcome::retry_after(delay)),
            End::Drop | End::Park(_) => None,
        };
        let outcome = outcome.map(|outcome| match priority {
            Some(priority) => outcome.priority(Priority(priority)),
            None => outcome,
        });
        let priority = priority.filter(|_| outcome.is_some());
        self.model
            .finish(key, end, priority, error.map(str::to_owned));
        match (end, outcome) {
            (_, Some(outcome)) if next => {
                let item = item.finish_and_try_get(outcome);
                let handed = self.model.get();
                self.handed_out(item, handed.as_ref());
            }
            (_, Some(outcome)) => item.finish(outcome),
            (End::Park(Some(bound)), _) => item.park_for(bound),
            (End::Park(None), _) => item.park(),
            _ => drop(item),
        }
    }

    /// Asserts that queue and model have the same observable state.
    fn compare(&self) {
        let Self {
            queue,
            model,
            items,
        } = self;
        let of = |wait: fn(Wait) -> bool| model.keys.values().filter(|rec| wait(rec.wait)).count();
        let depth: usize = Band::ALL.iter().map(|band| model.depth(*band)).sum();
        assert_eq!((queue.len(), queue.is_empty()), (depth, depth == 0));
        let stats = queue.stats();
        assert_eq!(
            Band::ALL.map(|band| stats.band(band).depth),
            Band::ALL.map(|band| model.depth(band))
        );
        assert_eq!(
            (
                stats.delayed,
                stats.parked,
                stats.running,
                stats.limiter_panics
            ),
            (
                of(|wait| matches!(wait, Wait::Time(..))),
                of(|wait| matches!(wait, Wait::Unpark(..))),
                items.len(),
                0
            )
        );
        assert_eq!(
            (stats.adds, stats.retries, stats.rejected),
            (model.adds, model.retries, model.rejected)
        );
        let runs = || {
            model
                .keys
                .values()
                .filter_map(|rec| rec.run.as_ref())
                .map(|run| self.ago(run.started))
        };
        assert_eq!(
            (stats.unfinished, stats.longest_running),
            (runs().sum(), runs().max().unwrap_or_default())
        );
        assert_eq!(queue.is_closed(), model.phase != Phase::Open);
        for key in 0..KEYS {
            let attempts = model
                .rec(key)
                .filter(|_| model.phase != Phase::Closed)
                .map_or(0, |rec| rec.attempts);
            assert_eq!(queue.num_requeues(&key), attempts, "key {key}");
        }
        for item in items {
            let rec = model.rec(**item).expect("a running key");
            assert_eq!(item.is_queued_again(), matches!(rec.wait, Wait::Worker(_)));
            assert_eq!(
                rec.run.as_ref().map(|run| &run.reasons),
                Some(&reasons(item))
            );
        }
        self.compare_snapshot();
    }

    fn ago(&self, then: Nanos) -> Duration {
        Duration::from_nanos(self.model.now - then)
    }

    fn compare_snapshot(&self) {
        let snapshot = self.queue.snapshot();
        let entries: HashMap<u8, &Entry<u8>> =
            snapshot.iter().map(|entry| (entry.key, entry)).collect();
        assert_eq!(entries.len(), snapshot.len(), "each key once");
        if self.model.phase == Phase::Closed {
            assert!(entries.is_empty());
            return;
        }
        assert_eq!(entries.len(), self.model.keys.len());
        for (key, rec) in &self.model.keys {
            let entry = entries[key];
            self.compare_state(entry.state, rec);
            assert_eq!(
                (entry.attempts, entry.last_error.as_deref()),
                (rec.attempts, rec.error.as_deref())
            );
            let only_runs = rec.run.as_ref().filter(|_| rec.wait == Wait::Nothing);
            let expected = only_runs.map_or(&rec.reasons, |run| &run.reasons);
            assert!(
                entry.reasons.iter().map(Reason::as_str).eq(expected),
                "{entry:?} {rec:?}"
            );
            let expected = match only_runs {
                Some(run) => (run.priority, run.added_at),
                None if rec.wait == Wait::Nothing => continue,
                None => (rec.priority, rec.added_at),
            };
            assert_eq!(
                (entry.priority.0, entry.added_ago),
                (expected.0, self.ago(expected.1)),
                "{rec:?}"
            );
        }
    }

    fn compare_state(&self, state: EntryState, rec: &Record) {
        let ready_in = |until: Nanos| Duration::from_nanos(until - self.model.now);
        match (state, &rec.run, rec.wait) {
            (EntryState::Idle, None, Wait::Nothing)
            | (EntryState::Delayed { .. }, None, Wait::Time(NEVER, _))
            | (EntryState::Parked { .. }, None, Wait::Unpark(NEVER, _)) => {}
            (
                EntryState::Running {
                    started_ago,
                    again,
                    again_in,
                    ..
                },
                Some(run),
                wait,
            ) => {
                assert_eq!(
                    (started_ago, again),
                    (self.ago(run.started), matches!(wait, Wait::Worker(_)))
                );
                match wait {
                    Wait::Time(NEVER, _) => assert!(again_in.is_some()),
                    Wait::Time(at, _) => assert_eq!(again_in, Some(ready_in(at))),
                    _ => assert_eq!(again_in, None),
                }
            }
            (EntryState::Ready { ready_ago }, None, Wait::Worker(since)) => {
                assert_eq!(ready_ago, self.ago(since));
            }
            (EntryState::Delayed { ready_in: seen }, None, Wait::Time(at, _)) => {
                assert_eq!(seen, ready_in(at));
            }
            (
                EntryState::Parked {
                    ready_in: Some(seen),
                },
                None,
                Wait::Unpark(until, _),
            ) => {
                assert_eq!(seen, ready_in(until));
            }
            (state, run, wait) => panic!("{state:?} instead of {run:?}, {wait:?}"),
        }
    }
}

fn queue_and_model_agree(share: u32, asks: bool, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        let mut both = Both::new(share, asks);
        for step in steps {
            both.play(step).await;
        }
    });
}

steersman_testkit::properties! {

    cases = 64;

    #[test]
    fn random_operations_agree_with_the_model(share in share(), asks in any::<bool>(), steps in steps()) {
        queue_and_model_agree(share, asks, steps);
    }
}
