//! Reference count of an informer.
//!
//! An informer runs as long as it has handles, and then for a grace period, unless it is removed.

use super::scope::Scope;
use futures::future::{Either, select};
use kube_core::GroupVersionKind;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// Kind and scope of an informer, and the number of its handles.
pub(super) struct RefCount {
    gvk: GroupVersionKind,
    scope: Scope,
    /// Scope of the kind by discovery: 0 unknown, 1 cluster-scoped, 2 namespaced. Atomic, because
    /// reads must not contend for a lock.
    namespaced: AtomicU8,
    handles: watch::Sender<usize>,
    /// Number of handles whose declaration is not optional.
    required_by: AtomicUsize,
    removed: watch::Sender<bool>,
}

impl RefCount {
    pub(super) fn new(gvk: GroupVersionKind, scope: Scope) -> Arc<Self> {
        Arc::new(Self {
            gvk,
            scope,
            namespaced: AtomicU8::new(0),
            handles: watch::Sender::new(0),
            required_by: AtomicUsize::new(0),
            removed: watch::Sender::new(false),
        })
    }

    /// Sets the scope that discovery reports. It can change if a CRD is recreated.
    pub(super) fn set_namespaced(&self, namespaced: bool) {
        self.namespaced.store(1 + u8::from(namespaced), Relaxed);
    }

    /// Returns whether the kind is namespaced, if discovery has reported it.
    pub(super) fn namespaced(&self) -> Option<bool> {
        Some(self.namespaced.load(Relaxed))
            .filter(|known| *known > 0)
            .map(|known| known == 2)
    }

    pub(super) fn is_used(&self) -> bool {
        *self.handles.borrow() > 0
    }

    /// Returns whether a declaration requires the informer.
    pub(super) fn is_required(&self) -> bool {
        self.required_by.load(Relaxed) > 0
    }

    /// Removes the informer, even if it has handles.
    pub(super) fn remove(&self) {
        self.removed.send_replace(true);
    }

    pub(super) async fn removed(&self) {
        // `self` owns the sender, so `wait_for` cannot fail.
        let _ = self.removed.subscribe().wait_for(|removed| *removed).await;
    }

    /// Waits until the informer has had no handle for `idle`.
    pub(super) async fn unused_for(&self, idle: Duration) {
        let mut users = self.handles.subscribe();
        // `self` owns the sender, so `wait_for` cannot fail.
        loop {
            let _ = users.wait_for(|users| *users == 0).await;
            if timeout(idle, users.wait_for(|users| *users > 0))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// Whether a declaration requires the informer to sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    Required,
    Optional,
}

/// Reference that keeps an informer running. Clones of a handle share it.
pub(super) struct InformerRef {
    refs: Arc<RefCount>,
    counted: bool,
    needed: bool,
}

impl InformerRef {
    pub(super) fn new(refs: &Arc<RefCount>, need: Requirement) -> Self {
        refs.handles.send_modify(|users| *users += 1);
        let needed = need == Requirement::Required;
        refs.required_by.fetch_add(usize::from(needed), Relaxed);
        Self {
            refs: refs.clone(),
            counted: true,
            needed,
        }
    }

    /// Creates a reference that does not keep the informer running.
    pub(super) fn uncounted(refs: &Arc<RefCount>) -> Self {
        Self {
            refs: refs.clone(),
            counted: false,
            needed: false,
        }
    }

    pub(super) fn gvk(&self) -> &GroupVersionKind {
        &self.refs.gvk
    }

    /// Returns the scope, which applies if the kind is namespaced.
    pub(super) fn scope(&self) -> &Scope {
        &self.refs.scope
    }

    /// Returns whether discovery has reported a cluster-scoped kind.
    pub(super) fn is_cluster_scoped(&self) -> bool {
        self.refs.namespaced() == Some(false)
    }

    pub(super) fn is_removed(&self) -> bool {
        *self.refs.removed.borrow()
    }
}

impl Drop for InformerRef {
    fn drop(&mut self) {
        if self.counted {
            self.refs.handles.send_modify(|users| *users -= 1);
            self.refs
                .required_by
                .fetch_sub(usize::from(self.needed), Relaxed);
        }
    }
}

/// Waits until one of the futures is ready. Returns whether it is `a`, which is polled first.
pub(super) async fn race(a: impl Future, b: impl Future) -> bool {
    matches!(select(pin!(a), pin!(b)).await, Either::Left(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    const IDLE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn unused_for_waits_for_an_uninterrupted_idle_period() {
        let refs = RefCount::new(
            GroupVersionKind::gvk("", "v1", "Pod"),
            Scope::cluster_scoped(&[]).expect("all of them"),
        );
        let informer_ref = InformerRef::new(&refs, Requirement::Required);
        let begun = Instant::now();
        let watched = refs.clone();
        let over = tokio::spawn(async move {
            watched.unused_for(IDLE).await;
            begun.elapsed()
        });
        sleep(Duration::from_secs(100)).await;
        drop(informer_ref);
        sleep(Duration::from_secs(20)).await;
        let (one, two) = (
            InformerRef::new(&refs, Requirement::Required),
            InformerRef::new(&refs, Requirement::Required),
        );
        sleep(Duration::from_secs(20)).await;
        drop(one);
        assert!(refs.is_used());
        sleep(Duration::from_mins(1)).await;
        drop(two);
        let over = over.await.expect("the task ends");
        assert!((230..231).contains(&over.as_secs()), "{over:?}");
    }
}
