//! Names of tests.

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

/// A test, as cargo and libtest name it. [`this_test!`](crate::this_test) creates one.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    package: &'static str,
    directory: PathBuf,
    /// Name of the crate that holds the test: the library or an integration test.
    target: String,
    /// Path of the test function within the crate.
    name: String,
}

/// Returns the [`Test`] that contains the call. Call it in the test function itself.
#[macro_export]
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::Test::new(env!("CARGO_PKG_NAME"), env!("CARGO_MANIFEST_DIR"), here)
    }};
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.target, self.name)
    }
}

impl Test {
    /// Creates the name of the test that `here`, a function named `here`, is declared in.
    ///
    /// `package` and `directory` are those of the test's package at compile time.
    #[doc(hidden)]
    pub fn new<F: Copy>(package: &'static str, directory: &str, here: F) -> Self {
        let path = std::any::type_name_of_val(&here);
        let mut path = path.strip_suffix("::here").unwrap_or(path);
        while let Some(function) = path.strip_suffix("::{{closure}}") {
            path = function;
        }
        let (target, name) = path.split_once("::").unwrap_or(("", path));
        // Cargo sets the variable to the clone that runs, and a shared target directory may hold
        // the build of another clone.
        let directory =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| directory.into(), PathBuf::from);
        Self {
            package,
            directory,
            target: target.into(),
            name: name.into(),
        }
    }

    /// Returns the path of the file with the kept regressions of this test.
    pub(crate) fn regressions(&self) -> PathBuf {
        let mut path = self.directory.join("regressions").join(&self.target);
        path.extend(self.name.split("::"));
        path.with_extension("txt")
    }

    /// Returns the path of the regression file within the package.
    pub(crate) fn shown_regressions(&self) -> PathBuf {
        let path = self.regressions();
        path.strip_prefix(&self.directory)
            .map(Path::to_path_buf)
            .unwrap_or(path)
    }

    /// Returns the command that runs this test with `seed` alone.
    pub(crate) fn command(&self, seed: u64) -> String {
        let Self {
            package,
            target,
            name,
            ..
        } = self;
        let target = if *target == package.replace('-', "_") {
            "--lib".into()
        } else {
            format!("--test {target}")
        };
        format!("STEERSMAN_SEED={seed} cargo test -p {package} {target} -- --exact {name}")
    }
}
