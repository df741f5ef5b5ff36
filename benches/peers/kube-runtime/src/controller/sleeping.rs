//! CPU time of reconciles that sleep.

use crate::{
    harness::{self, Countdown, keys},
    noop::produce_and_wait,
    open_loop::{CpuClock, OpenLoop},
    pick,
};
use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::reflector::ObjectRef;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

const SLEEPERS: u16 = 10_000;
/// Namespace of the objects whose reconciles sleep.
const ASLEEP: &str = "asleep";
/// Interval of the other requests.
const TICK: Duration = Duration::from_millis(1);

/// CPU time that 10,000 sleeping reconciles add to 1,000 other reconciles per second, in percent of
/// a core.
pub(crate) fn cpu(quick: bool) -> Result<Vec<f64>> {
    let others = keys(pick(quick, 1_000, 3_000));
    let sleepers: Vec<ObjectRef<ConfigMap>> = (0..SLEEPERS)
        .map(|number| ObjectRef::new(&format!("object-{number:08}")).within(ASLEEP))
        .collect();
    let all: Vec<_> = others.iter().chain(&sleepers).cloned().collect();
    let awake = Arc::new(Countdown::default());
    let asleep = Arc::new(Countdown::default());
    let reconcile = {
        let (awake, asleep) = (awake.clone(), asleep.clone());
        move |object: Arc<ConfigMap>| {
            let (awake, asleep) = (awake.clone(), asleep.clone());
            async move {
                if object.metadata.namespace.as_deref() == Some(ASLEEP) {
                    asleep.decrement();
                    sleep(Duration::from_hours(1)).await;
                } else {
                    awake.decrement();
                }
            }
        }
    };
    let share = harness::run(SLEEPERS + 8, &all, reconcile, async move |feed| {
        let warm_up = OpenLoop::new(1_000);
        let items = OpenLoop::new(others.len());
        let pass = async |items: &OpenLoop| {
            let clock = CpuClock::start();
            produce_and_wait(items, TICK, &awake, |number| feed.add(&others[number])).await;
            clock.elapsed()
        };
        pass(&warm_up).await;
        let without = pass(&items).await;
        asleep.expect(sleepers.len());
        for key in &sleepers {
            feed.add(key);
        }
        asleep.wait().await;
        let with = pass(&items).await;
        with.saturating_sub(without).as_secs_f64() / (TICK * others.len() as u32).as_secs_f64()
    })?;
    Ok(vec![share * 100.0])
}
