//! How long the rest of the build takes: by the packages that Go has yet to compile, at the pace of those compiled so
//! far. Before there are enough of them the pace is the one of a build of everything on 2 cores.

use std::time::Duration;

/// What a package took there on average: 2,700 of them in about ten minutes.
const USUAL_PACE: Duration = Duration::from_millis(210);
/// For how many packages the usual pace counts: the first are the standard library's, small and not typical.
const USUAL_WEIGHT: usize = 300;
/// What linking a program took there, on average.
const LINKING: Duration = Duration::from_secs(5);
/// What all of it took there, downloads included.
const FROM_NOTHING: &str = "usually up to 10 min if Go has compiled none of it before";

/// What is done and what is left.
#[derive(Default)]
pub(super) struct Estimate {
    /// Packages that Go had yet to compile when the build began; not known before they are listed.
    pub(super) packages: Option<usize>,
    /// How many of them it has compiled since.
    pub(super) compiled: usize,
    /// Programs yet to be linked.
    pub(super) programs: usize,
    /// Programs that are done.
    pub(super) linked: usize,
}

impl Estimate {
    /// In words, after `spent` on building.
    pub(super) fn words(&self, spent: Duration) -> String {
        match self.packages {
            None => FROM_NOTHING.into(),
            Some(packages) => format!("{} left", about(self.left(packages, spent))),
        }
    }

    fn left(&self, packages: usize, spent: Duration) -> Duration {
        let usual = USUAL_PACE * USUAL_WEIGHT as u32;
        let pace = (usual + spent).as_secs_f64() / (USUAL_WEIGHT + self.compiled) as f64;
        let packages = packages.saturating_sub(self.compiled);
        Duration::from_secs_f64(pace * packages as f64) + self.linking(spent) * self.programs as u32
    }

    /// What linking a program takes: as long as here so far, if nothing else was done.
    fn linking(&self, spent: Duration) -> Duration {
        if self.compiled == 0 { LINKING.max(spent / (self.linked as u32 + 1)) } else { LINKING }
    }
}

/// No more exact than it can be.
fn about(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => "a few seconds".into(),
        seconds @ 10..=50 => format!("about {} s", seconds.div_ceil(10) * 10),
        seconds => format!("about {} min", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(packages: usize, compiled: usize, programs: usize) -> Estimate {
        Estimate { packages: Some(packages), compiled, programs, linked: 0 }
    }

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn before_anything_is_compiled_the_usual_times_count() {
        assert_eq!(
            Estimate::default().words(Duration::ZERO),
            "usually up to 10 min if Go has compiled none of it before",
            "the packages are not listed yet"
        );
        assert_eq!(estimate(2737, 0, 4).words(Duration::ZERO), "about 10 min left");
    }

    #[test]
    fn with_everything_compiled_only_linking_is_left() {
        assert_eq!(estimate(0, 0, 4).words(Duration::ZERO), "about 20 s left");
        assert_eq!(estimate(0, 0, 1).words(seconds(3)), "a few seconds left");
        assert_eq!(estimate(0, 0, 3).words(seconds(46)), "about 2 min left", "46 s and still at the first");
        let last = Estimate { linked: 3, ..estimate(0, 0, 1) };
        assert_eq!(last.words(seconds(100)), "about 30 s left", "25 s each");
    }

    #[test]
    fn the_pace_of_this_machine_counts_more_with_every_package() {
        let slow = |compiled, spent| estimate(2700, compiled, 0).left(2700, seconds(spent)).as_secs();
        assert!((560..=570).contains(&slow(0, 0)));
        // A second for each package: 2400 left of them would be 2400 s.
        assert!((1400..=1500).contains(&slow(300, 300)));
        assert!((200..=300).contains(&slow(2400, 2400)));
        assert_eq!(slow(2701, 2701), 0, "more than were listed");
    }

    #[test]
    fn the_time_left_is_said_no_more_exactly_than_it_is_known() {
        let said = |counts: [u64; 4]| counts.map(|count| about(seconds(count)));
        assert_eq!(said([3, 10, 31, 50]), ["a few seconds", "about 10 s", "about 40 s", "about 50 s"]);
        assert_eq!(said([51, 89, 91, 600]), ["about 1 min", "about 1 min", "about 2 min", "about 10 min"]);
    }
}
