//! Estimates the remaining time of a build from the packages that Go still has to compile.
//!
//! The time per package is that of the packages compiled so far, averaged with the time of a
//! reference build on 2 cores.

use std::time::Duration;

/// Time per package in the reference build: 2,700 packages in about ten minutes.
const USUAL_PACE: Duration = Duration::from_millis(210);
/// Number of packages that the reference counts for. The first packages of a build belong to the
/// standard library, and are smaller than most.
const USUAL_WEIGHT: usize = 300;
/// Time to link a program in the reference build.
const LINKING: Duration = Duration::from_secs(5);
/// Estimate of the whole build, downloads included.
const FROM_NOTHING: &str = "usually up to 10 min if Go has compiled none of it before";

/// Progress of a build.
#[derive(Default)]
pub(super) struct Estimate {
    /// Packages to compile at the start of the build. `None` until they are listed.
    pub(super) packages: Option<usize>,
    /// Packages compiled so far.
    pub(super) compiled: usize,
    /// Programs to link.
    pub(super) programs: usize,
    /// Programs linked so far.
    pub(super) linked: usize,
}

impl Estimate {
    /// Formats the remaining time, after `spent` on building.
    pub(super) fn describe(&self, spent: Duration) -> String {
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

    /// Returns the time to link a program. If no package was compiled, all of `spent` was linking.
    fn linking(&self, spent: Duration) -> Duration {
        if self.compiled == 0 {
            LINKING.max(spent / (self.linked as u32 + 1))
        } else {
            LINKING
        }
    }
}

/// Formats a duration with the precision of the estimate.
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
        Estimate {
            packages: Some(packages),
            compiled,
            programs,
            linked: 0,
        }
    }

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_reference_build_is_the_first_estimate() {
        assert_eq!(
            Estimate::default().describe(Duration::ZERO),
            "usually up to 10 min if Go has compiled none of it before",
            "the packages are not listed yet"
        );
        assert_eq!(
            estimate(2737, 0, 4).describe(Duration::ZERO),
            "about 10 min left"
        );
    }

    #[test]
    fn only_linking_is_estimated_if_everything_is_compiled() {
        assert_eq!(
            estimate(0, 0, 4).describe(Duration::ZERO),
            "about 20 s left"
        );
        assert_eq!(estimate(0, 0, 1).describe(seconds(3)), "a few seconds left");
        assert_eq!(
            estimate(0, 0, 3).describe(seconds(46)),
            "about 2 min left",
            "46 s and still at the first"
        );
        let last = Estimate {
            linked: 3,
            ..estimate(0, 0, 1)
        };
        assert_eq!(last.describe(seconds(100)), "about 30 s left", "25 s each");
    }

    #[test]
    fn the_speed_of_this_machine_counts_more_with_every_package() {
        let slow = |compiled, spent| {
            estimate(2700, compiled, 0)
                .left(2700, seconds(spent))
                .as_secs()
        };
        assert!((560..=570).contains(&slow(0, 0)));
        // At a second per package, the remaining 2400 packages would take 2400 s.
        assert!((1400..=1500).contains(&slow(300, 300)));
        assert!((200..=300).contains(&slow(2400, 2400)));
        assert_eq!(slow(2701, 2701), 0, "more than were listed");
    }

    #[test]
    fn the_remaining_time_is_rounded() {
        let formatted = |counts: [u64; 4]| counts.map(|count| about(seconds(count)));
        assert_eq!(
            formatted([3, 10, 31, 50]),
            ["a few seconds", "about 10 s", "about 40 s", "about 50 s"]
        );
        assert_eq!(
            formatted([51, 89, 91, 600]),
            ["about 1 min", "about 1 min", "about 2 min", "about 10 min"]
        );
    }
}
