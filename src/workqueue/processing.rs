//! Keys that workers are processing. A *run* is the processing of one key by one worker.

use super::{
    linked_list::NIL,
    reasons::{ReasonIds, Reasons},
};

/// Current runs. The index of a run is the worker that a snapshot shows.
///
/// Padded to its own cache line: workers write it, but callers of `add` do not.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Processing {
    all: Vec<ProcessingEntry>,
    free: Vec<u32>,
    started: u32,
}

#[derive(Clone, Copy)]
pub(super) struct ProcessingEntry {
    /// Slot of the key; [`NIL`] if this run has ended.
    pub(super) slot: u32,
    pub(super) started: u64,
    /// Time of the add that queued the key for this run.
    pub(super) added_at: u64,
    pub(super) priority: i32,
    /// Whether the run started before the backoff had elapsed.
    pub(super) early: bool,
    pub(super) reasons: ReasonIds,
    /// Distinguishes this run from others with the same index.
    pub(super) serial: u32,
}

/// Data of a run that its worker holds.
pub(super) struct HandedOut<K> {
    pub(super) key: K,
    pub(super) slot: u32,
    pub(super) run: u32,
    pub(super) priority: i32,
    pub(super) attempts: u32,
    /// Time that the key was ready.
    pub(super) waited: u64,
    /// Time at which the key was handed out.
    pub(super) began: u64,
}

impl Processing {
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(super) fn get(&self, run: u32) -> ProcessingEntry {
        self.all[run as usize]
    }

    /// Returns the slots and start times of the current runs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.all
            .iter()
            .filter(|run| run.slot != NIL)
            .map(|run| (run.slot, run.started))
    }

    #[inline]
    pub(super) fn start(&mut self, mut run: ProcessingEntry) -> u32 {
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

    /// Moves the reasons of the current runs to a new table, and returns the old one.
    pub(super) fn move_reasons(&mut self, reasons: &mut Reasons) -> Reasons {
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

    /// Ends a run and returns its start time and reasons.
    #[inline]
    pub(super) fn end(&mut self, number: u32) -> (u64, ReasonIds) {
        self.free.push(number);
        let run = &mut self.all[number as usize];
        run.slot = NIL;
        (
            run.started,
            std::mem::replace(&mut run.reasons, ReasonIds::EMPTY),
        )
    }
}
