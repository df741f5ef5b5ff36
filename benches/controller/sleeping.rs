//! Reconciles that wait for something.

use crate::{
    fed::{self, Countdown},
    keys,
    noop::passed,
    open_loop::{CpuClock, OpenLoop},
    pick,
};
use std::{sync::Arc, time::Duration};
use steersman::reconcile::Request;
use tokio::time::sleep;

const SLEEPERS: usize = 10_000;
/// The namespace of those that sleep.
const ASLEEP: &str = "asleep";
/// Others, one at every tick.
const TICK: Duration = Duration::from_millis(1);

/// What 10,000 reconciles that sleep cost: the CPU time of the process while they do and 1,000 others per second come and go, less that of the same others
/// before, in percent of a core. Alone they cost nothing anywhere; what is looked for is whether they are looked at when something else happens.
pub(crate) fn cpu(quick: bool) -> Vec<f64> {
    let others = keys(pick(quick, 1_000, 3_000));
    let (awake, down) = (Arc::new(Countdown::default()), Arc::new(Countdown::default()));
    let reconcile = {
        let (awake, down) = (awake.clone(), down.clone());
        move |request: Request| {
            let (awake, down) = (awake.clone(), down.clone());
            async move {
                if request.namespace() == Some(ASLEEP) {
                    down.one();
                    sleep(Duration::from_hours(1)).await;
                } else {
                    awake.one();
                }
            }
        }
    };
    let share = fed::run(SLEEPERS + 8, reconcile, async move |queue| {
        let (warm, items) = (OpenLoop::new(1_000), OpenLoop::new(others.len()));
        let pass = async |items: &OpenLoop| {
            let clock = CpuClock::start();
            passed(items, TICK, &awake, |number| queue.add(others[number].clone())).await;
            clock.elapsed()
        };
        pass(&warm).await;
        let without = pass(&items).await;
        down.expect(SLEEPERS);
        for number in 0..SLEEPERS {
            queue.add(Request::new(ASLEEP, &format!("object-{number:08}")));
        }
        down.wait().await;
        let with = pass(&items).await;
        with.saturating_sub(without).as_secs_f64() / (TICK * others.len() as u32).as_secs_f64()
    });
    vec![share * 100.0]
}
