//! What an informer tells, delivered: common to the sources that have one.

use super::{SourceContext, context::Health, deliver::Delivery};
use crate::{
    cache::{CacheError, Informer, InformerState, Notice},
    workqueue::Key,
};
use std::pin::pin;
use tokio::select;

/// Until it is stopped, or the informer has nothing more to tell.
pub(super) async fn tell<K: 'static, R: Key>(
    informer: Informer<K>,
    delivery: Delivery<K, R>,
    cx: &SourceContext,
) -> anyhow::Result<()> {
    let mut events = informer.events();
    cx.ask({
        // Who holds the handle of a watch does not hold the informer.
        let state = informer.states();
        move || health(state())
    });
    let mut refused = pin!(informer.refused());
    let (mut synced, mut known) = (false, false);
    while delivery.goes_on().await {
        let notice = select! {
            biased;
            notice = events.next() => notice,
            () = cx.stopped() => break,
            () = &mut refused, if !known => {
                known = true;
                cx.known();
                continue;
            }
        };
        match notice {
            Some(Notice::Event(event)) => delivery.deliver(&event),
            Some(Notice::InitialDone) => {
                synced = true;
                cx.synced();
            }
            None => return ended(&informer, synced),
        }
    }
    Ok(())
}

/// That the cache ends is not for a source to judge, unless somebody waits for what it will never tell.
fn ended<K>(informer: &Informer<K>, synced: bool) -> anyhow::Result<()> {
    match informer.check_lives() {
        Err(CacheError::Ended) if synced => Ok(()),
        lives => Ok(lives?),
    }
}

fn health(state: InformerState) -> Health {
    match state {
        InformerState::Synced => Health::Good,
        InformerState::Idle => Health::Waiting("the cache does not run: call its `run_until`".into()),
        InformerState::Starting => Health::Waiting("the first list has not come yet".into()),
        InformerState::Absent { error } => Health::Waiting(error),
        InformerState::Degraded { since, error } => Health::Bad { since, error },
        InformerState::Removed => Health::Waiting("its informer has ended".into()),
    }
}
