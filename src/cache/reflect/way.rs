//! How the next list is asked for: streamed, or by pages.
//!
//! What holds: neither way alone keeps a kind from syncing. A server that says that it streams no lists is not asked for one again. Of lists that fail in a row two are
//! streamed and two by pages, in turn: there is more between here and the server than the server, and what it makes of a stream is not known. After a list by pages the
//! next one is streamed once again.

use super::Failure;

/// So many lists in a row fail before they are asked for in the other way.
const PATIENCE: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Way {
    never_streams: bool,
    /// Lists in a row.
    failed: u32,
}

impl Way {
    pub(super) fn streams(&self) -> bool {
        !self.never_streams && (self.failed / PATIENCE).is_multiple_of(2)
    }

    /// The server streams no lists.
    pub(super) fn never_streams(&mut self) {
        self.never_streams = true;
    }

    /// A streamed list is whole.
    pub(super) fn streamed(&mut self) {
        self.failed = 0;
    }

    /// All pages of a list have come.
    pub(super) fn paged(&mut self) {
        self.failed = PATIENCE - 1;
    }

    /// A list is not whole. Who may not ask, or not now, is told so whatever the way.
    pub(super) fn failed(&mut self, failure: &Failure) {
        let says_nothing_of_the_way =
            matches!(failure, Failure::Refused(refusal) if matches!(refusal.code, 401 | 403 | 404 | 429));
        self.failed += u32::from(!says_nothing_of_the_way);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{broken, wire::Refusal},
        *,
    };

    /// The ways of the next lists, all of which fail: `s` is streamed, `p` by pages.
    fn ways(way: &mut Way, count: usize) -> String {
        let mut next = || {
            let streams = way.streams();
            way.failed(&broken("cut"));
            if streams { 's' } else { 'p' }
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn lists_that_fail_are_asked_for_twice_in_each_way() {
        assert_eq!(ways(&mut Way::default(), 9), "ssppsspps");
    }

    #[test]
    fn after_pages_have_come_one_list_is_streamed_and_after_that_has_failed_pages_are_next() {
        let mut way = Way::default();
        way.paged();
        assert_eq!(ways(&mut way, 3), "spp");
        way.streamed();
        assert_eq!(ways(&mut way, 3), "ssp");
    }

    #[test]
    fn who_may_not_ask_is_not_told_anything_of_the_way() {
        for code in [401, 403, 404, 429] {
            let mut way = Way::default();
            for _ in 0..PATIENCE {
                way.failed(&Failure::Refused(Refusal::of(code, None, b"no")));
            }
            assert!(way.streams(), "{code}");
        }
    }

    #[test]
    fn a_server_that_streams_no_lists_is_not_asked_for_one_again() {
        let mut way = Way::default();
        way.never_streams();
        assert_eq!(ways(&mut way, 5), "ppppp");
        way.paged();
        assert!(!way.streams());
    }
}
