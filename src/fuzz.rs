//! Bodies of the fuzz targets in `fuzz/`: each takes any bytes and panics if an invariant breaks.
//!
//! Feature `__internals`; not part of the API. A test runs each on its corpus, without libFuzzer.

#[cfg(feature = "admin")]
pub use crate::admin::fuzz::admin_paths;
pub use crate::{
    cache::watch_lines,
    object::fuzz::{compact, selectors},
};
