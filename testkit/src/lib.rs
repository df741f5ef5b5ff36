//! Test support shared by all packages.
//!
//! - [`skip`]: records a test that cannot run on this machine, so that `cargo xtask test` counts it.
//! - [`Seeds`]: the seeds of a random test. Fixed in `cargo xtask test`, new ones in `cargo xtask soak`.
//! - [`properties!`]: property tests that take their seeds from [`Seeds`].
//! - [`Test`]: names a test in commands and in paths of regression files.

#[cfg(feature = "proptest")]
mod property;
mod record;
mod seeds;
mod skip;
mod test;
#[cfg(test)]
mod tests;

#[cfg(feature = "proptest")]
pub use self::property::check_property;
pub use self::{
    seeds::{Seeds, soak_time},
    skip::skip,
    test::Test,
};

/// Proptest, for the expansion of [`properties!`].
#[cfg(feature = "proptest")]
#[doc(hidden)]
pub use proptest;
