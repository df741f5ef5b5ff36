//! CPU time of reconciles that sleep.

use crate::{
    harness::{self, Countdown},
    keys,
    noop::produce_and_wait,
    open_loop::{CpuClock, OpenLoop},
    pick,
};
use std::{sync::Arc, time::Duration};
use steersman::reconcile::Request;
use tokio::time::sleep;

const SLEEPERS: usize = 10_000;
/// Namespace of the requests whose reconciles sleep.
const ASLEEP: &str = "asleep";
/// Interval of the other requests.
const TICK: Duration = Duration::from_millis(1);

/// CPU time that 10,000 sleeping reconciles add to 1,000 other reconciles per second, in percent of
/// a core.
///
/// Sleeping reconciles alone use no CPU in any implementation. The workload shows whether they are
/// polled when other requests are reconciled.
pub(crate) fn cpu(quick: bool) -> Vec<f64> {
    let others = keys(pick(quick, 1_000, 3_000));
    let awake = Arc::new(Countdown::default());
    let asleep = Arc::new(Countdown::default());
    let reconcile = {
        let awake = awake.clone();
        let asleep = asleep.clone();
        move |request: Request| {
            let awake = awake.clone();
            let asleep = asleep.clone();
            async move {
                if request.namespace() == Some(ASLEEP) {
                    asleep.decrement();
                    sleep(Duration::from_hours(1)).await;
                } else {
                    awake.decrement();
                }
            }
        }
    };
    let share = harness::run(SLEEPERS + 8, reconcile, async move |queue| {
        let warm_up = OpenLoop::new(1_000);
        let items = OpenLoop::new(others.len());
        let pass = async |items: &OpenLoop| {
            let clock = CpuClock::start();
            produce_and_wait(items, TICK, &awake, |number| {
                queue.add(others[number].clone());
            })
            .await;
            clock.elapsed()
        };
        pass(&warm_up).await;
        let without = pass(&items).await;
        asleep.expect(SLEEPERS);
        for number in 0..SLEEPERS {
            queue.add(Request::new(ASLEEP, format!("object-{number:08}")));
        }
        asleep.wait().await;
        let with = pass(&items).await;
        with.saturating_sub(without).as_secs_f64() / (TICK * others.len() as u32).as_secs_f64()
    });
    vec![share * 100.0]
}
