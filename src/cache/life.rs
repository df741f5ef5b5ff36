//! What an informer is of, and who uses it: it lives as long as somebody does, and a little longer, unless it is removed before.

use super::scope::Scope;
use kube_core::GroupVersionKind;
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// Counts the users of an informer.
pub(super) struct Life {
    gvk: GroupVersionKind,
    scope: Scope,
    /// Whether the kind has namespaces, as it was found: 0 is not known, 1 no, 2 yes. Readers ask, and must not meet at a lock.
    namespaced: AtomicU8,
    users: watch::Sender<usize>,
    /// Those of them that cannot do without.
    needed_by: AtomicUsize,
    removed: watch::Sender<bool>,
}

impl Life {
    pub(super) fn new(gvk: GroupVersionKind, scope: Scope) -> Arc<Self> {
        Arc::new(Self {
            gvk,
            scope,
            namespaced: AtomicU8::new(0),
            users: watch::Sender::new(0),
            needed_by: AtomicUsize::new(0),
            removed: watch::Sender::new(false),
        })
    }

    /// Where the kind is now: one that was gone may have come back otherwise.
    pub(super) fn found(&self, namespaced: bool) {
        self.namespaced.store(1 + u8::from(namespaced), Relaxed);
    }

    /// Whether the kind has namespaces, once it was found.
    pub(super) fn namespaced(&self) -> Option<bool> {
        Some(self.namespaced.load(Relaxed)).filter(|known| *known > 0).map(|known| known == 2)
    }

    pub(super) fn is_used(&self) -> bool {
        *self.users.borrow() > 0
    }

    /// Whether somebody cannot do without.
    pub(super) fn is_needed(&self) -> bool {
        self.needed_by.load(Relaxed) > 0
    }

    /// Over, whoever uses it.
    pub(super) fn remove(&self) {
        self.removed.send_replace(true);
    }

    pub(super) async fn removed(&self) {
        // The sender is here, so that it cannot be gone.
        let _ = self.removed.subscribe().wait_for(|removed| *removed).await;
    }

    /// Until nobody has used it for so long.
    pub(super) async fn unused_for(&self, idle: Duration) {
        let mut users = self.users.subscribe();
        // The sender is here, so that it cannot be gone.
        loop {
            let _ = users.wait_for(|users| *users == 0).await;
            if timeout(idle, users.wait_for(|users| *users > 0)).await.is_err() {
                return;
            }
        }
    }
}

/// Whether a user can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    May,
}

/// One user, or several that came from one.
pub(super) struct Lease {
    life: Arc<Life>,
    counted: bool,
    needed: bool,
}

impl Lease {
    pub(super) fn new(life: &Arc<Life>, need: Need) -> Self {
        life.users.send_modify(|users| *users += 1);
        let needed = need == Need::Must;
        life.needed_by.fetch_add(usize::from(needed), Relaxed);
        Self { life: life.clone(), counted: true, needed }
    }

    /// One who looks, and stays for no longer than others do.
    pub(super) fn uncounted(life: &Arc<Life>) -> Self {
        Self { life: life.clone(), counted: false, needed: false }
    }

    pub(super) fn gvk(&self) -> &GroupVersionKind {
        &self.life.gvk
    }

    /// Of what it is kept, if it has namespaces.
    pub(super) fn scope(&self) -> &Scope {
        &self.life.scope
    }

    /// Whether it was found to have no namespaces: then all of it is kept.
    pub(super) fn is_whole(&self) -> bool {
        self.life.namespaced() == Some(false)
    }

    pub(super) fn is_removed(&self) -> bool {
        *self.life.removed.borrow()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.counted {
            self.life.users.send_modify(|users| *users -= 1);
            self.life.needed_by.fetch_sub(usize::from(self.needed), Relaxed);
        }
    }
}

/// Until one of them is done: true if it is `a`, also when both are.
pub(super) async fn first(a: impl Future, b: impl Future) -> bool {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| match (a.as_mut().poll(cx), b.as_mut().poll(cx)) {
        (Poll::Ready(_), _) => Poll::Ready(true),
        (_, Poll::Ready(_)) => Poll::Ready(false),
        _ => Poll::Pending,
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    const IDLE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn it_is_over_when_nobody_has_used_it_for_long_enough_in_one_go() {
        let life = Life::new(GroupVersionKind::gvk("", "v1", "Pod"), Scope::whole(&[]).expect("all of them"));
        let lease = Lease::new(&life, Need::Must);
        let begun = Instant::now();
        let watched = life.clone();
        let over = tokio::spawn(async move {
            watched.unused_for(IDLE).await;
            begun.elapsed()
        });
        sleep(Duration::from_secs(100)).await;
        drop(lease);
        sleep(Duration::from_secs(20)).await;
        let (one, two) = (Lease::new(&life, Need::Must), Lease::new(&life, Need::Must));
        sleep(Duration::from_secs(20)).await;
        drop(one);
        assert!(life.is_used());
        sleep(Duration::from_mins(1)).await;
        drop(two);
        let over = over.await.expect("it ends");
        assert!((230..231).contains(&over.as_secs()), "{over:?}");
    }
}
