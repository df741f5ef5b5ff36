//! Property tests on the seeds of [`Seeds`].

use crate::{Seeds, Test};
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};

/// Declares property tests, in the syntax of `proptest!`, as tests of a module named `soak`.
///
/// Each takes its cases from [`Seeds`]: `cargo xtask test` runs the kept regressions and the cases
/// of one fixed seed, `cargo xtask soak` those of new seeds. Proptest writes a failure to the
/// regression file of the test. `cases = N;` before the tests sets the cases per seed. Default: 256.
///
/// ```
/// use proptest::prelude::*;
///
/// steersman_testkit::properties! {
///     cases = 64;
///
///     #[test]
///     fn a_sum_does_not_depend_on_the_order(a in 0..10, b in 0..10) {
///         prop_assert_eq!(a + b, b + a);
///     }
/// }
/// # fn main() {}
/// ```
#[allow(
    clippy::test_attr_in_doctest,
    reason = "the example declares tests, it does not run them"
)]
#[macro_export]
macro_rules! properties {
    (cases = $cases:expr; $($tests:tt)+) => {
        $crate::properties! { @module $cases; $($tests)+ }
    };
    (@module $cases:expr; $($(#[$attribute:meta])* fn $name:ident($($input:tt)+) $body:block)+) => {
        mod soak {
            #[allow(unused_imports, reason = "a test may need nothing of the module around it")]
            use super::*;

            $(
                $(#[$attribute])*
                fn $name() {
                    $crate::check_property($crate::this_test!(), $cases, |config| {
                        $crate::proptest::proptest!(config, |($($input)+)| $body);
                    });
                }
            )+
        }
    };
    ($($tests:tt)+) => {
        $crate::properties! { @module 256; $($tests)+ }
    };
}

/// Runs `check` with a configuration for each seed of `test`, with `cases` cases per seed.
///
/// `check` runs proptest, such as the closure form of `proptest!`, and panics on a failure. Use it
/// where [`properties!`](crate::properties) does not fit.
pub fn check_property(test: Test, cases: u32, check: impl Fn(Config)) {
    // Proptest wants a `&'static str`. Each test leaks one path.
    let file = test.regressions().to_string_lossy().into_owned().leak();
    let config = Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(file))),
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    for seed in Seeds::kept_by_proptest(test) {
        check(Config {
            rng_seed: RngSeed::Fixed(seed),
            ..config.clone()
        });
    }
}
