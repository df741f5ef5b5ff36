//! Choice between streamed and paged lists.
//!
//! Invariant: a failure of one way does not keep a kind from syncing. If the API server reports
//! that it does not support streamed lists, they are not requested again. Otherwise, of lists that
//! fail in a row, two are streamed and two are paged, in turn, because a proxy may break streams.
//! After a successful paged list the next one is streamed again.

use super::Failure;

/// Lists that fail in a row before the other way is tried.
const FAILURES_BEFORE_SWITCH: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct ListStrategy {
    disable_streams: bool,
    /// Number of lists that have failed in a row.
    failed: u32,
}

impl ListStrategy {
    pub(super) fn streams(&self) -> bool {
        !self.disable_streams && (self.failed / FAILURES_BEFORE_SWITCH).is_multiple_of(2)
    }

    /// Records that the API server does not support streamed lists.
    pub(super) fn disable_streams(&mut self) {
        self.disable_streams = true;
    }

    /// Records a complete streamed list.
    pub(super) fn streamed(&mut self) {
        self.failed = 0;
    }

    /// Records a complete paged list.
    pub(super) fn paged(&mut self) {
        self.failed = FAILURES_BEFORE_SWITCH - 1;
    }

    /// Records a failed list. Failures that do not depend on the way, such as 403, do not count.
    pub(super) fn failed(&mut self, failure: &Failure) {
        let independent_of_strategy = matches!(failure, Failure::Rejected(rejection) if matches!(rejection.code, 401 | 403 | 404 | 429));
        self.failed += u32::from(!independent_of_strategy);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{broken, wire::ErrorResponse},
        *,
    };

    /// Returns how the next lists are requested if all fail: `s` for streamed, `p` for paged.
    fn choices(strategy: &mut ListStrategy, count: usize) -> String {
        let mut next = || {
            let streams = strategy.streams();
            strategy.failed(&broken("cut"));
            if streams { 's' } else { 'p' }
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn failing_lists_alternate_after_two_attempts() {
        assert_eq!(choices(&mut ListStrategy::default(), 9), "ssppsspps");
    }

    #[test]
    fn after_a_paged_list_one_failed_stream_switches_back_to_paging() {
        let mut strategy = ListStrategy::default();
        strategy.paged();
        assert_eq!(choices(&mut strategy, 3), "spp");
        strategy.streamed();
        assert_eq!(choices(&mut strategy, 3), "ssp");
    }

    #[test]
    fn rejections_do_not_change_the_strategy() {
        for code in [401, 403, 404, 429] {
            let mut strategy = ListStrategy::default();
            for _ in 0..FAILURES_BEFORE_SWITCH {
                strategy.failed(&Failure::Rejected(ErrorResponse::of(code, None, b"no")));
            }
            assert!(strategy.streams(), "{code}");
        }
    }

    #[test]
    fn unsupported_streaming_is_not_requested_again() {
        let mut strategy = ListStrategy::default();
        strategy.disable_streams();
        assert_eq!(choices(&mut strategy, 5), "ppppp");
        strategy.paged();
        assert!(!strategy.streams());
    }
}
