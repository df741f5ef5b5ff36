//! Anything at all, sent to the whole surface.

use std::time::{Duration, Instant};

/// Runs a round of so many random cases, and goes on with rounds for the seconds that `STEERSMAN_SOAK` gives, if it does.
pub(crate) fn soak(cases: u32, mut round: impl FnMut(u32)) {
    let seconds = std::env::var("STEERSMAN_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        round(cases);
        if Instant::now() >= end {
            return;
        }
    }
}
