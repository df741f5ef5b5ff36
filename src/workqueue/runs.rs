//! Keys in workers.

use super::{
    list::NIL,
    reasons::{ReasonIds, Reasons},
};

/// The runs going on. A run's number is the worker that the snapshot shows. On a line of the caches of its own: it is written by who takes keys, and not by who adds them.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Runs {
    all: Vec<Run>,
    free: Vec<u32>,
    started: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Run {
    /// [`NIL`] if this run is over.
    pub(super) slot: u32,
    pub(super) started: u64,
    /// As the key was queued for it.
    pub(super) added_at: u64,
    pub(super) priority: i32,
    /// It began before the backoff had elapsed.
    pub(super) early: bool,
    pub(super) reasons: ReasonIds,
    /// Tells it from others that had its number.
    pub(super) serial: u32,
}

/// What a worker has of its run.
pub(super) struct Held<K> {
    pub(super) key: K,
    pub(super) slot: u32,
    pub(super) run: u32,
    pub(super) priority: i32,
    pub(super) attempts: u32,
    /// How long the key was ready.
    pub(super) waited: u64,
    /// When it was handed out.
    pub(super) began: u64,
}

impl Runs {
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(super) fn get(&self, run: u32) -> Run {
        self.all[run as usize]
    }

    /// The slots of the runs going on, and when they started.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.all.iter().filter(|run| run.slot != NIL).map(|run| (run.slot, run.started))
    }

    #[inline]
    pub(super) fn start(&mut self, mut run: Run) -> u32 {
        self.started = self.started.wrapping_add(1);
        run.serial = self.started;
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = run;
            number
        } else {
            self.all.push(run);
            self.all.len() as u32 - 1
        }
    }

    /// Copy the reasons of the runs going on, which `reasons` has, to a place of their own, and give back the old one.
    pub(super) fn keep_reasons(&mut self, reasons: &mut Reasons) -> Reasons {
        let mut kept = Reasons::new();
        for run in &mut self.all {
            let ids = std::mem::replace(&mut run.reasons, ReasonIds::EMPTY);
            for text in reasons.texts(ids) {
                kept.push(&mut run.reasons, &text);
            }
        }
        std::mem::replace(reasons, kept)
    }

    pub(super) fn take_early(&mut self, run: u32) -> bool {
        std::mem::take(&mut self.all[run as usize].early)
    }

    /// When it started, and its reasons.
    #[inline]
    pub(super) fn end(&mut self, number: u32) -> (u64, ReasonIds) {
        self.free.push(number);
        let run = &mut self.all[number as usize];
        run.slot = NIL;
        (run.started, std::mem::replace(&mut run.reasons, ReasonIds::EMPTY))
    }
}
