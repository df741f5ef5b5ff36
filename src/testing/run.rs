//! One test on both servers: as two tests, so that the harness's own line says on which one it failed.

use super::{Env, Environment, Error};
use std::{
    env, fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};
use steersman_testkit::skip;
use tokio::{runtime, time::timeout};

/// How long a test may take, unless `STEERSMAN_TEST_SECONDS` says otherwise.
const LIMIT: Duration = Duration::from_mins(2);

/// Makes of one test two: the same on the embedded server and on the real one.
///
/// A function `name` becomes a module `name` with the tests `embedded` and `real`, and the harness says which one failed:
/// `a_config_map_is_read_back::real ... FAILED`. The function has one parameter, an [`Env`](crate::testing::Env), and returns nothing or a `Result`.
///
/// * `embedded` has a server of its own; `real` shares one with all tests of the binary: let each test work in a
///   [`namespace`](crate::testing::TestServer::namespace) of its own.
/// * If etcd or kube-apiserver is not installed, `real` is [skipped](crate::testing::skip); with `CI=true` it fails.
/// * When `real` fails, the logs of the server are kept, and it says where.
/// * Each runs on a runtime of its own with two threads, and fails if it takes longer than two minutes
///   (`STEERSMAN_TEST_SECONDS` for another limit). Code that blocks its thread for ever is not noticed.
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

/// What a test returns: nothing, or a result.
pub trait TestOutput {
    /// What failed.
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

/// Run a test on an embedded server: what [`env_test!`](crate::env_test) makes of `embedded`. For a test that is set up in another way.
///
/// # Panics
/// If the test fails, or takes too long.
pub fn run_embedded<F: Future<Output: TestOutput>>(test: impl FnOnce(Env) -> F) {
    bounded(async { test(Env::embedded().unwrap_or_else(|error| panic!("{error}"))).await });
}

/// Run a test on the shared real server, or leave it out where there is none: what [`env_test!`](crate::env_test) makes of `real`.
///
/// # Panics
/// If the test fails, or takes too long, or the server does not start.
pub fn run_real<F: Future<Output: TestOutput>>(test: impl FnOnce(Env) -> F) {
    let started = runtime().block_on(Environment::shared());
    let Some(environment) = or_left_out(started) else { return };
    let real = super::Real::new(environment.clone());
    let made = real.made();
    let run = catch_unwind(AssertUnwindSafe(|| bounded(test(Env::Real(real)))));
    let tidied = runtime().block_on(made.tidy_up(&environment));
    if let Err(panic) = run {
        if let Err(error) = environment.check() {
            eprintln!("{error}");
        }
        environment.keep_logs();
        resume_unwind(panic);
    }
    tidied.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns what was started, or [skips](skip) the test if the programs to start are not installed.
///
/// For tests that start an [`Environment`] of their own. Such a test returns on `None`.
///
/// # Panics
/// If the start failed for another reason, and if the test is to be skipped with `CI=true`.
pub fn or_left_out<T>(started: Result<T, Error>) -> Option<T> {
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
    let limit = env::var("STEERSMAN_TEST_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = limit.map_or(LIMIT, Duration::from_secs);
    // The runtime ends before this returns, and with it what the test left running.
    let output = runtime().block_on(async { timeout(limit, test).await });
    let failure = match output {
        Ok(output) => output.failure().map(|failure| format!("the test failed: {failure}")),
        Err(_) => Some(format!("the test was still running after {} s and was ended", limit.as_secs())),
    };
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

fn runtime() -> runtime::Runtime {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap_or_else(|error| panic!("cannot start a runtime: {error}"))
}
