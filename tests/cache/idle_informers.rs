//! Tests of idle informers in their grace period.
//!
//! They do not block other declarations.

use super::support::{Running, create_map, until};
use k8s_openapi::api::core::v1::ConfigMap;
use std::time::Duration;
use steersman::{
    cache::{Cache, CacheError, CacheOptions, Namespaces, Query, Select},
    client::{Client, Error},
    object::{Metadata, ObjectKey},
    testing::{Embedded, TestServer},
};
use tokio::time::sleep;

fn cache(server: &Embedded, options: CacheOptions) -> Cache {
    Cache::new(server.client().expect("a client"), options).expect("a ready client")
}

async fn server() -> Embedded {
    let server = Embedded::start().expect("the server starts");
    create_map(&server.client().expect("a client"), "default", "a", "blue").await;
    server
}

/// Selects with a transformation, which differs from every other closure.
fn transformed() -> Select<ConfigMap> {
    Select::new()
        .labels("app")
        .transform(|map: &mut ConfigMap| map.data = None)
}

#[tokio::test(start_paused = true)]
async fn another_representation_can_be_declared_once_the_informer_is_idle() {
    let server = server().await;
    let cache = Running::new(cache(&server, CacheOptions::default()));
    let metadata = cache
        .informer::<Metadata<ConfigMap>>()
        .expect("the informer is declared");
    metadata.await_synced().await.expect("synced");
    let events = metadata.events();
    drop(metadata);
    let rejected = cache.informer::<ConfigMap>();
    assert!(
        matches!(rejected, Err(CacheError::RepresentationMismatch { .. })),
        "{rejected:?}: events keep the informer in use"
    );
    drop(events);
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the other informer is idle");
    maps.await_synced().await.expect("synced");
    assert_eq!(
        maps.list(&Query::default())
            .expect("the informer serves reads")
            .len(),
        1
    );
    // The grace period of the replaced informer ends here, without effect on the new one.
    sleep(Duration::from_mins(1)).await;
    assert_eq!(cache.informers().len(), 1);
    create_map(&server.client().expect("a client"), "default", "b", "red").await;
    until(|| {
        maps.list(&Query::default())
            .expect("the informer serves reads")
            .len()
            == 2
    })
    .await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_transform_can_be_declared_once_the_informer_is_idle() {
    let server = server().await;
    let cache = Running::new(cache(&server, CacheOptions::default()));
    let once = cache
        .informer_of(transformed())
        .expect("the informer is declared");
    let rejected = cache.informer_of(transformed());
    assert!(
        matches!(rejected, Err(CacheError::TransformMismatch { .. })),
        "{rejected:?}"
    );
    drop(once);
    let again = cache
        .informer_of(transformed())
        .expect("the other informer is idle");
    again.await_synced().await.expect("synced");
    assert_eq!(
        again
            .list(&Query::default())
            .expect("the informer serves reads")
            .len(),
        1
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_dropped_before_the_cache_runs_does_not_block_declarations() {
    let server = server().await;
    let cache_before_run = cache(&server, CacheOptions::default());
    drop(
        cache_before_run
            .informer::<Metadata<ConfigMap>>()
            .expect("the informer is declared"),
    );
    let maps = cache_before_run
        .informer::<ConfigMap>()
        .expect("the other informer is idle");
    // An informer by namespace labels, which declares an internal informer of namespaces.
    let tenants = || Namespaces::Labelled("kubernetes.io/metadata.name".into());
    drop(
        cache_before_run
            .informer_of(Select::<Metadata<ConfigMap>>::new().namespaces(tenants()))
            .expect("the informer is declared"),
    );
    let followed = cache_before_run.informer_of(Select::<ConfigMap>::new().namespaces(tenants()));
    let followed = followed.expect("the other informer is idle");
    assert_eq!(
        cache_before_run.informers().len(),
        3,
        "two informers, and the internal one of namespaces"
    );
    let cache = Running::new(cache_before_run);
    for maps in [maps, followed] {
        maps.await_synced().await.expect("synced");
        assert!(
            maps.get(&ObjectKey::new("default", "a"))
                .expect("the informer serves reads")
                .is_some()
        );
    }
    cache.stop().await;
}

/// An invalid declaration does not replace an idle informer.
#[tokio::test(start_paused = true)]
async fn a_rejected_declaration_does_not_replace_the_idle_informer() {
    let server = server().await;
    // The option fixes the representation, so a different declaration is an error.
    let kinds = vec![Select::<Metadata<ConfigMap>>::new().into()];
    let cache = Running::new(cache(
        &server,
        CacheOptions {
            kinds,
            ..CacheOptions::default()
        },
    ));
    let metadata = cache
        .informer::<Metadata<ConfigMap>>()
        .expect("the informer is declared");
    metadata.await_synced().await.expect("synced");
    drop(metadata);
    let rejected = cache.informer::<ConfigMap>();
    assert!(
        matches!(rejected, Err(CacheError::RepresentationMismatch { .. })),
        "{rejected:?}"
    );
    let metadata = cache
        .informer::<Metadata<ConfigMap>>()
        .expect("the idle informer");
    assert!(
        metadata
            .get(&ObjectKey::new("default", "a"))
            .expect("synced")
            .is_some()
    );
    assert_eq!(server.server().journal().count("watch configmaps"), 1);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_of_another_representation_is_not_rejected_because_of_an_idle_informer() {
    let server = server().await;
    let key = ObjectKey::new("default", "a");
    for allow_lazy in [true, false] {
        let cache = Running::new(cache(
            &server,
            CacheOptions {
                allow_lazy,
                ..CacheOptions::default()
            },
        ));
        let client = Client::new(server.client().expect("a client"))
            .expect("a client")
            .with_cache(cache.clone());
        let metadata = cache
            .informer::<Metadata<ConfigMap>>()
            .expect("the informer is declared");
        metadata.await_synced().await.expect("synced");
        let rejected = client.get::<ConfigMap>(&key).await;
        assert!(
            matches!(
                rejected,
                Err(Error::Cache(CacheError::RepresentationMismatch { .. }))
            ),
            "{rejected:?}"
        );
        drop(metadata);
        let read = client.get::<ConfigMap>(&key).await;
        if allow_lazy {
            assert!(read.expect("the read declares the informer").is_some());
            let rejected = cache.informer_of(Select::<ConfigMap>::new().managed_fields());
            assert!(
                matches!(rejected, Err(CacheError::ManagedFieldsDropped { .. })),
                "{rejected:?}: a lazy read keeps the informer"
            );
        } else {
            assert!(
                matches!(read, Err(Error::Cache(CacheError::NotCached { .. }))),
                "{read:?}"
            );
        }
        drop(client);
        cache.stop().await;
    }
}

/// Threads declare and drop two representations of one kind concurrently.
///
/// Each handle serves while it is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_held_informer_stays_while_other_representations_are_declared() {
    let server = server().await;
    let cache = Running::new(cache(&server, CacheOptions::default()));
    let users = (0..8).map(|user| {
        let cache = Cache::clone(&cache);
        tokio::spawn(async move {
            let mut served = 0;
            for _ in 0..50 {
                let listed = if user % 2 == 0 {
                    match cache.informer::<ConfigMap>() {
                        Ok(maps) => maps
                            .await_synced()
                            .await
                            .and_then(|()| maps.list(&Query::default()))
                            .map(|all| all.len()),
                        Err(rejected) => Err(rejected),
                    }
                } else {
                    let metadata = cache
                        .informer::<Metadata<ConfigMap>>()
                        .expect("every representation has metadata");
                    metadata
                        .await_synced()
                        .await
                        .and_then(|()| metadata.list(&Query::default()))
                        .map(|all| all.len())
                };
                match listed {
                    Ok(all) => {
                        assert_eq!(all, 1);
                        served += 1;
                    }
                    Err(rejected) => assert!(
                        matches!(rejected, CacheError::RepresentationMismatch { .. }),
                        "{rejected}"
                    ),
                }
                tokio::task::yield_now().await;
            }
            (user, served)
        })
    });
    for user in users.collect::<Vec<_>>() {
        let (user, served) = user.await.expect("the task does not panic");
        assert!(
            user % 2 == 0 || served == 50,
            "{user} was served {served} times"
        );
    }
    let last = cache
        .informer::<ConfigMap>()
        .expect("the other informers are idle");
    last.await_synced().await.expect("synced");
    cache.stop().await;
}
