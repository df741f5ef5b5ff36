//! Where settings come from, and what a builder does not take.

use crate::rig::{Name, Script, builder, quiet, secs};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use std::time::Duration;
use steersman::{
    builder::BuildError,
    controller::{Defaults, Options, WatchError},
    prelude::*,
    reconcile::ClusterRequest,
    source::Kind,
};

fn workers(n: usize) -> Options {
    Options { max_concurrent: Some(n), ..Options::default() }
}

fn cache() -> Cache {
    let config = Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = kube_client::Client::try_from(config).unwrap();
    Cache::new(client, CacheOptions::default()).unwrap()
}

#[tokio::test]
async fn what_the_controller_says_wins_over_its_kind_and_that_over_all() {
    let cache = cache();
    let defaults = Defaults::new(workers(2)).kind("", "Pod", workers(3));
    let limit = |built: Result<(Controller, _), BuildError>| built.unwrap().0.max_concurrent();
    let builder = || Controller::<Request>::builder("test").cache(&cache).defaults(&defaults);
    assert_eq!(limit(builder().for_::<Pod>().max_concurrent(4).build(Script::new())), 4);
    assert_eq!(limit(builder().for_::<Pod>().build(Script::new())), 3);
    assert_eq!(limit(builder().for_::<Secret>().build(Script::new())), 2);
    assert_eq!(limit(builder().build(Script::new())), 2, "without a kind");
    assert_eq!(limit(builder().watches::<Pod>(handler::object()).build(Script::new())), 2, "of what is reconciled");
    assert_eq!(limit(Controller::<Request>::builder("test").build(Script::new())), 1, "without defaults");
}

/// Upstream's overwrites the whole struct.
#[test]
fn options_set_what_they_say_and_leave_the_rest() {
    let late = |options: Options| {
        let builder = builder::<Name>().options(Options { sync_timeout: Some(secs(9)), ..workers(4) });
        builder.options(options).build(Script::new()).unwrap().0
    };
    assert_eq!(late(Options::default()).max_concurrent(), 4);
    assert_eq!(late(Options { recover_panics: Some(false), ..Options::default() }).max_concurrent(), 4);
    assert_eq!(late(workers(7)).max_concurrent(), 7);
}

#[tokio::test(start_paused = true)]
async fn options_of_two_calls_hold_together() {
    let timeout = Options { sync_timeout: Some(secs(3)), ..Options::default() };
    let builder = builder().options(timeout).options(workers(2)).watches_source(crate::rig::silent("ticker"));
    let error = crate::rig::watch_error(crate::rig::Rig::run(builder, Script::new()).ended().await);
    assert!(error.to_string().starts_with("ticker: not synced within 3 s"), "{error}");
}

#[track_caller]
fn assert_error<R: steersman::workqueue::Key>(
    built: Result<(Controller<R>, steersman::controller::ControllerTask<R>), BuildError>,
    expected: &str,
) {
    assert_eq!(built.expect_err("it is not built").to_string(), expected);
}

#[test]
fn every_misuse_is_an_error_that_names_the_fix() {
    assert_error(
        Controller::<Name>::builder("").build(Script::new()),
        "a controller needs a name: give one to `Controller::builder`",
    );
    assert_error(
        builder::<Name>().max_concurrent(0).build(Script::new()),
        "controller test: max_concurrent is 0: set at least 1, or do not run it",
    );
    let defaults = Defaults::new(workers(0));
    assert_error(
        builder::<Name>().defaults(&defaults).build(Script::new()),
        "controller test: max_concurrent is 0: set at least 1, or do not run it",
    );
    assert_error(
        builder::<Name>().max_per_group(0, |name| *name).build(Script::new()),
        "controller test: max_per_group is 0: set at least 1",
    );
    let no_time = Options { reconcile_timeout: Some(Duration::ZERO), ..Options::default() };
    assert_error(
        builder::<Name>().options(no_time).build(Script::new()),
        "controller test: reconcile_timeout is 0: set a time, or leave it out",
    );
    let no_time = Options { sync_timeout: Some(Duration::ZERO), ..Options::default() };
    assert_error(
        builder::<Name>().options(no_time).build(Script::new()),
        "controller test: sync_timeout is 0: set a time, or leave it out",
    );
    assert_error(
        Controller::builder("test").for_::<ConfigMap>().build(Script::new()),
        "kind source: ConfigMap: no cache: use `Kind::with_cache`, or give the builder one",
    );
    let builder = Controller::<ClusterRequest>::builder("test");
    let handler = handler::in_cluster("east", handler::object());
    assert_error(
        builder.watches::<Pod>(handler).build(Script::new()),
        "kind source: Pod: no cache: use `Kind::with_cache`, or give the builder one",
    );
}

#[test]
fn what_is_built_of_a_handle_that_was_stopped_says_so() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let builder = builder::<Name>().watches_source(quiet("ticker"));
    runtime.block_on(builder.handle().stop());
    assert_error(builder.build(Script::new()), "controller test has stopped: nothing can be watched by it any more");
}

#[test]
fn a_controller_whose_sources_could_not_all_be_watched_keeps_none() {
    let builder = builder::<Request>().watches_source(source::from_fn("ticker", |_, _| async { Ok(()) }));
    let builder = builder.watches::<Pod>(handler::object());
    let handle = builder.handle();
    assert!(matches!(builder.build(Script::new()), Err(BuildError::Watch(WatchError::NoCache { .. }))));
    assert!(handle.watches().is_empty() && handle.queue().is_closed());
}

#[tokio::test]
async fn a_kind_that_brings_its_cache_needs_none_of_the_controller() {
    let kind = Kind::with_cache(&cache(), Select::<Pod>::new(), handler::object());
    let (controller, _task) = Controller::builder("test").watches_source(kind).build(Script::new()).unwrap();
    assert_eq!(controller.watches().len(), 1);
}

#[test]
fn a_builder_may_be_looked_at() {
    let builder = Controller::builder("test").for_::<Pod>();
    let text = format!("{builder:?}");
    assert!(text.contains("test") && text.contains("Pod"), "{text}");
}
