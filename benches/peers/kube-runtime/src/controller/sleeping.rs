//! Reconciles that wait for something.

use crate::{
    fed::{self, Countdown, keys},
    noop::passed,
    open_loop::{CpuClock, OpenLoop},
    pick,
};
use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::reflector::ObjectRef;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

const SLEEPERS: u16 = 10_000;
/// The namespace of those that sleep.
const ASLEEP: &str = "asleep";
/// Others, one at every tick.
const TICK: Duration = Duration::from_millis(1);

/// What 10,000 reconciles that sleep cost: the CPU time of the process while they do and 1,000 others per second come and go, less that of the same others
/// before, in percent of a core.
pub(crate) fn cpu(quick: bool) -> Result<Vec<f64>> {
    let others = keys(pick(quick, 1_000, 3_000));
    let sleepers: Vec<ObjectRef<ConfigMap>> =
        (0..SLEEPERS).map(|number| ObjectRef::new(&format!("object-{number:08}")).within(ASLEEP)).collect();
    let all: Vec<_> = others.iter().chain(&sleepers).cloned().collect();
    let (awake, down) = (Arc::new(Countdown::default()), Arc::new(Countdown::default()));
    let reconcile = {
        let (awake, down) = (awake.clone(), down.clone());
        move |object: Arc<ConfigMap>| {
            let (awake, down) = (awake.clone(), down.clone());
            async move {
                if object.metadata.namespace.as_deref() == Some(ASLEEP) {
                    down.one();
                    sleep(Duration::from_hours(1)).await;
                } else {
                    awake.one();
                }
            }
        }
    };
    let share = fed::run(SLEEPERS + 8, &all, reconcile, async move |feed| {
        let (warm, items) = (OpenLoop::new(1_000), OpenLoop::new(others.len()));
        let pass = async |items: &OpenLoop| {
            let clock = CpuClock::start();
            passed(items, TICK, &awake, |number| feed.add(&others[number])).await;
            clock.elapsed()
        };
        pass(&warm).await;
        let without = pass(&items).await;
        down.expect(sleepers.len());
        for key in &sleepers {
            feed.add(key);
        }
        down.wait().await;
        let with = pass(&items).await;
        with.saturating_sub(without).as_secs_f64() / (TICK * others.len() as u32).as_secs_f64()
    })?;
    Ok(vec![share * 100.0])
}
