//! Runs one test on both servers, as two tests with their own results.

use super::{Env, Environment, Error};
use std::{
    env, fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};
use steersman_testkit::skip;
use tokio::{runtime, time::timeout};

/// Time limit of a test, unless `STEERSMAN_TEST_SECONDS` is set.
const LIMIT: Duration = Duration::from_mins(2);

/// Turns one test into two: on the embedded and on the real API server.
///
/// A function `name` becomes a module `name` with the tests `embedded` and `real`, so that the
/// harness reports which one failed: `a_config_map_is_read_back::real ... FAILED`. The function has
/// one parameter, an [`Env`](crate::testing::Env), and returns `()` or a `Result`.
///
/// * `embedded` has its own server. `real` shares one with all tests of the binary: use a separate
///   [`namespace`](crate::testing::TestServer::namespace) in each test.
/// * If etcd or kube-apiserver is not installed, `real` is [skipped](crate::testing::skip); with
///   `CI=true` it fails.
/// * If `real` fails, the logs of the server are kept and their location is printed.
/// * Each test has its own runtime with two threads, and fails after two minutes or
///   `STEERSMAN_TEST_SECONDS`. Code that blocks its thread is not interrupted.
///
/// ```
/// use steersman::testing::{Env, TestServer};
///
/// steersman::env_test! {
///     /// The server gives each test a namespace of its own.
///     async fn a_namespace_is_named_by_its_prefix(env: Env) -> Result<(), steersman::testing::Error> {
///         assert!(env.namespace("shop").await?.starts_with("shop-"), "on the {} server", env.name());
///         Ok(())
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! env_test {
    ($($(#[$attribute:meta])* async fn $name:ident($env:ident: $type:ty $(,)?) $(-> $output:ty)? $body:block)+) => {$(
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports, reason = "a test that needs nothing from around it is fine")]
            use super::*;

            async fn test($env: $type) $(-> $output)? $body

            #[test]
            fn embedded() {
                $crate::testing::run_embedded(test);
            }

            #[test]
            fn real() {
                $crate::testing::run_real(test);
            }
        }
    )+};
}

/// Return type of a test: `()` or a `Result`.
pub trait TestOutput {
    /// Returns the error as text; `None` if the test passed.
    fn failure(self) -> Option<String>;
}

impl TestOutput for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Debug> TestOutput for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}

/// Runs a test on an embedded server.
///
/// Used for `embedded` of [`env_test!`](crate::env_test), and by tests with another setup.
///
/// # Panics
/// Panics if the test fails or exceeds the time limit.
pub fn run_embedded<F: Future<Output: TestOutput>>(test: impl FnOnce(Env) -> F) {
    bounded(async { test(Env::embedded().unwrap_or_else(|error| panic!("{error}"))).await });
}

/// Runs a test on the shared real server.
///
/// Used for `real` of [`env_test!`](crate::env_test).
///
/// Skips the test if the server is not installed.
///
/// # Panics
/// Panics if the test fails or exceeds the time limit, or if the server does not start.
pub fn run_real<F: Future<Output: TestOutput>>(test: impl FnOnce(Env) -> F) {
    let started = runtime().block_on(Environment::shared());
    let Some(environment) = started_or_skipped(started) else {
        return;
    };
    let real = super::Real::new(environment.clone());
    let created = real.created();
    let run = catch_unwind(AssertUnwindSafe(|| bounded(test(Env::Real(real)))));
    let cleaned = runtime().block_on(created.clean_up(&environment));
    if let Err(panic) = run {
        if let Err(error) = environment.check() {
            eprintln!("{error}");
        }
        environment.keep_logs();
        resume_unwind(panic);
    }
    cleaned.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the started value, or [skips](skip) the test if binaries are missing.
///
/// For tests that start their own [`Environment`]. Such a test returns on `None`.
///
/// # Panics
/// Panics if the start failed for another reason, or if the test would be skipped with `CI=true`.
pub fn started_or_skipped<T>(started: Result<T, Error>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(error) if error.is_about_missing_binaries() => {
            skip("no kube-apiserver", error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn bounded(test: impl Future<Output: TestOutput>) {
    let limit = env::var("STEERSMAN_TEST_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    let limit = limit.map_or(LIMIT, Duration::from_secs);
    // The runtime ends before this returns, and with it all tasks of the test.
    let output = runtime().block_on(async { timeout(limit, test).await });
    let failure = match output {
        Ok(output) => output
            .failure()
            .map(|failure| format!("the test failed: {failure}")),
        Err(_) => Some(format!(
            "the test was cancelled after {} s",
            limit.as_secs()
        )),
    };
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

fn runtime() -> runtime::Runtime {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap_or_else(|error| panic!("cannot start a runtime: {error}"))
}
