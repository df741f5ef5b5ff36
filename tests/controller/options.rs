//! Tests of the precedence of options, and of errors of the builder.

use crate::test_controller::{Name, Script, builder, idle_source, secs};
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
    Options {
        max_concurrent: Some(n),
        ..Options::default()
    }
}

fn cache() -> Cache {
    let config = Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = kube_client::Client::try_from(config).unwrap();
    Cache::new(client, CacheOptions::default()).unwrap()
}

#[tokio::test]
async fn options_of_the_controller_override_those_of_the_kind_and_of_the_manager() {
    let cache = cache();
    let defaults = Defaults::new(workers(2)).kind("", "Pod", workers(3));
    let limit = |built: Result<(Controller, _), BuildError>| built.unwrap().0.max_concurrent();
    let builder = || {
        Controller::<Request>::builder("test")
            .cache(&cache)
            .defaults(&defaults)
    };
    assert_eq!(
        limit(
            builder()
                .for_::<Pod>()
                .max_concurrent(4)
                .build(Script::new())
        ),
        4
    );
    assert_eq!(limit(builder().for_::<Pod>().build(Script::new())), 3);
    assert_eq!(limit(builder().for_::<Secret>().build(Script::new())), 2);
    assert_eq!(limit(builder().build(Script::new())), 2, "without a kind");
    assert_eq!(
        limit(
            builder()
                .watches::<Pod>(handler::object())
                .build(Script::new())
        ),
        2,
        "the kind of the primary counts"
    );
    assert_eq!(
        limit(Controller::<Request>::builder("test").build(Script::new())),
        1,
        "without defaults"
    );
}

/// controller-runtime overwrites the whole struct.
#[test]
fn options_override_only_the_fields_that_are_set() {
    let late = |options: Options| {
        let builder = builder::<Name>().options(Options {
            sync_timeout: Some(secs(9)),
            ..workers(4)
        });
        builder.options(options).build(Script::new()).unwrap().0
    };
    assert_eq!(late(Options::default()).max_concurrent(), 4);
    assert_eq!(
        late(Options {
            recover_panics: Some(false),
            ..Options::default()
        })
        .max_concurrent(),
        4
    );
    assert_eq!(late(workers(7)).max_concurrent(), 7);
}

#[tokio::test(start_paused = true)]
async fn two_calls_of_options_are_merged() {
    let timeout = Options {
        sync_timeout: Some(secs(3)),
        ..Options::default()
    };
    let builder = builder()
        .options(timeout)
        .options(workers(2))
        .watches_source(crate::test_controller::unsynced_source("ticker"));
    let error = crate::test_controller::watch_error(
        crate::test_controller::TestController::run(builder, Script::new())
            .ended()
            .await,
    );
    assert!(
        error.to_string().starts_with("ticker not synced after 3 s"),
        "{error}"
    );
}

#[track_caller]
fn assert_error<R: steersman::workqueue::Key>(
    built: Result<(Controller<R>, steersman::controller::ControllerTask<R>), BuildError>,
    expected: &str,
) {
    assert_eq!(built.expect_err("an invalid builder").to_string(), expected);
}

#[test]
fn every_build_error_names_the_fix() {
    assert_error(
        Controller::<Name>::builder("").build(Script::new()),
        "cannot build a controller: its name is empty; pass one to `Controller::builder`",
    );
    assert_error(
        builder::<Name>().max_concurrent(0).build(Script::new()),
        "cannot build controller test: max_concurrent is 0; set at least 1, or do not run it",
    );
    let defaults = Defaults::new(workers(0));
    assert_error(
        builder::<Name>().defaults(&defaults).build(Script::new()),
        "cannot build controller test: max_concurrent is 0; set at least 1, or do not run it",
    );
    assert_error(
        builder::<Name>()
            .max_per_group(0, |name| *name)
            .build(Script::new()),
        "cannot build controller test: max_per_group is 0; set at least 1",
    );
    let no_time = Options {
        reconcile_timeout: Some(Duration::ZERO),
        ..Options::default()
    };
    assert_error(
        builder::<Name>().options(no_time).build(Script::new()),
        "cannot build controller test: reconcile_timeout is 0; set a longer time, or remove the option",
    );
    let no_time = Options {
        sync_timeout: Some(Duration::ZERO),
        ..Options::default()
    };
    assert_error(
        builder::<Name>().options(no_time).build(Script::new()),
        "cannot build controller test: sync_timeout is 0; set a longer time, or remove the option",
    );
    assert_error(
        Controller::builder("test")
            .for_::<ConfigMap>()
            .build(Script::new()),
        "cannot start kind source: ConfigMap: no cache set; use `Kind::with_cache`, or pass a cache to the builder",
    );
    let builder = Controller::<ClusterRequest>::builder("test");
    let handler = handler::in_cluster("east", handler::object());
    assert_error(
        builder.watches::<Pod>(handler).build(Script::new()),
        "cannot start kind source: Pod: no cache set; use `Kind::with_cache`, or pass a cache to the builder",
    );
}

#[test]
fn building_after_the_handle_was_stopped_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let builder = builder::<Name>().watches_source(idle_source("ticker"));
    runtime.block_on(builder.handle().stop());
    assert_error(
        builder.build(Script::new()),
        "cannot add a source to controller test: the controller has stopped",
    );
}

#[test]
fn a_build_error_stops_the_sources_added_before() {
    let builder =
        builder::<Request>().watches_source(source::from_fn("ticker", |_, _| async { Ok(()) }));
    let builder = builder.watches::<Pod>(handler::object());
    let handle = builder.handle();
    assert!(matches!(
        builder.build(Script::new()),
        Err(BuildError::Watch(WatchError::NoCache { .. }))
    ));
    assert!(handle.watches().is_empty() && handle.queue().is_closed());
}

#[tokio::test]
async fn a_kind_with_its_own_cache_does_not_require_one_of_the_controller() {
    let kind = Kind::with_cache(&cache(), Select::<Pod>::new(), handler::object());
    let (controller, _task) = Controller::builder("test")
        .watches_source(kind)
        .build(Script::new())
        .unwrap();
    assert_eq!(controller.watches().len(), 1);
}

#[test]
fn a_builder_implements_debug() {
    let builder = Controller::builder("test").for_::<Pod>();
    let text = format!("{builder:?}");
    assert!(text.contains("test") && text.contains("Pod"), "{text}");
}
