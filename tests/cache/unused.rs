//! Informers that nobody uses any more, and that are kept for who comes back: they are in nobody's way.

use super::support::{Running, make, until};
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
    let server = Embedded::start().expect("it starts");
    make(&server.client().expect("a client"), "default", "a", "blue").await;
    server
}

/// What differs each time that it is made.
fn transformed() -> Select<ConfigMap> {
    Select::new().labels("app").transform(|map: &mut ConfigMap| map.data = None)
}

#[tokio::test(start_paused = true)]
async fn a_kind_can_be_had_in_another_form_as_soon_as_nobody_uses_the_one_there_is() {
    let server = server().await;
    let cache = Running::new(cache(&server, CacheOptions::default()));
    let names = cache.informer::<Metadata<ConfigMap>>().expect("it is new");
    names.await_synced().await.expect("it syncs");
    let events = names.events();
    drop(names);
    let refused = cache.informer::<ConfigMap>();
    assert!(matches!(refused, Err(CacheError::Representation { .. })), "{refused:?}: events use it");
    drop(events);
    let maps = cache.informer::<ConfigMap>().expect("nobody uses the other one");
    maps.await_synced().await.expect("it syncs");
    assert_eq!(maps.list(&Query::default()).expect("it serves").len(), 1);
    // The end of the other one, which would have come now, does not touch it.
    sleep(Duration::from_mins(1)).await;
    assert_eq!(cache.informers().len(), 1);
    make(&server.client().expect("a client"), "default", "b", "red").await;
    until(|| maps.list(&Query::default()).expect("it serves").len() == 2).await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_transform_can_be_declared_as_soon_as_nobody_uses_the_one_there_is() {
    let server = server().await;
    let cache = Running::new(cache(&server, CacheOptions::default()));
    let once = cache.informer_of(transformed()).expect("it is new");
    let refused = cache.informer_of(transformed());
    assert!(matches!(refused, Err(CacheError::OtherTransform { .. })), "{refused:?}");
    drop(once);
    let again = cache.informer_of(transformed()).expect("nobody uses the other one");
    again.await_synced().await.expect("it syncs");
    assert_eq!(again.list(&Query::default()).expect("it serves").len(), 1);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_declared_and_dropped_before_the_cache_runs_is_in_nobodys_way() {
    let server = server().await;
    let not_yet = cache(&server, CacheOptions::default());
    drop(not_yet.informer::<Metadata<ConfigMap>>().expect("it is new"));
    let maps = not_yet.informer::<ConfigMap>().expect("nobody uses the other one");
    // One that follows namespaces, which it has declared for itself.
    let tenants = || Namespaces::Labelled("kubernetes.io/metadata.name".into());
    drop(not_yet.informer_of(Select::<Metadata<ConfigMap>>::new().namespaces(tenants())).expect("it is new"));
    let followed = not_yet.informer_of(Select::<ConfigMap>::new().namespaces(tenants()));
    let followed = followed.expect("nobody uses the other one");
    assert_eq!(not_yet.informers().len(), 3, "these two, and the namespaces");
    let cache = Running::new(not_yet);
    for maps in [maps, followed] {
        maps.await_synced().await.expect("it syncs");
        assert!(maps.get(&ObjectKey::new("default", "a")).expect("it serves").is_some());
    }
    cache.stop().await;
}

/// What cannot be made anew is left as it is.
#[tokio::test(start_paused = true)]
async fn a_declaration_that_cannot_be_takes_nothing_from_who_comes_back() {
    let server = server().await;
    // Whoever declares it, it is kept so.
    let kinds = vec![Select::<Metadata<ConfigMap>>::new().into()];
    let cache = Running::new(cache(&server, CacheOptions { kinds, ..CacheOptions::default() }));
    let names = cache.informer::<Metadata<ConfigMap>>().expect("it is new");
    names.await_synced().await.expect("it syncs");
    drop(names);
    let refused = cache.informer::<ConfigMap>();
    assert!(matches!(refused, Err(CacheError::Representation { .. })), "{refused:?}");
    let names = cache.informer::<Metadata<ConfigMap>>().expect("it is there");
    assert!(names.get(&ObjectKey::new("default", "a")).expect("as it was").is_some());
    assert_eq!(server.server().journal().count("watch configmaps"), 1);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_in_another_form_is_not_refused_for_the_sake_of_what_nobody_uses() {
    let server = server().await;
    let key = ObjectKey::new("default", "a");
    for allow_lazy in [true, false] {
        let cache = Running::new(cache(&server, CacheOptions { allow_lazy, ..CacheOptions::default() }));
        let client = Client::new(server.client().expect("a client")).expect("it is ready").with_cache(cache.clone());
        let names = cache.informer::<Metadata<ConfigMap>>().expect("it is new");
        names.await_synced().await.expect("it syncs");
        let refused = client.get::<ConfigMap>(&key).await;
        assert!(matches!(refused, Err(Error::Cache(CacheError::Representation { .. }))), "{refused:?}");
        drop(names);
        let read = client.get::<ConfigMap>(&key).await;
        if allow_lazy {
            assert!(read.expect("it is declared by the read").is_some());
            let refused = cache.informer_of(Select::<ConfigMap>::new().managed_fields());
            assert!(matches!(refused, Err(CacheError::ManagedFields { .. })), "{refused:?}: it is declared for good");
        } else {
            assert!(matches!(read, Err(Error::Cache(CacheError::NotCached { .. }))), "{read:?}");
        }
        drop(client);
        cache.stop().await;
    }
}

/// Two forms of one kind, asked for and dropped at once on several threads: who has one is served by it for as long as he holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_gets_hold_of_an_informer_keeps_it_while_others_ask_for_another_form() {
    let server = server().await;
    let cache = Running::new(cache(&server, CacheOptions::default()));
    let users = (0..8).map(|user| {
        let cache = Cache::clone(&cache);
        tokio::spawn(async move {
            let mut served = 0;
            for _ in 0..50 {
                let listed = if user % 2 == 0 {
                    match cache.informer::<ConfigMap>() {
                        Ok(maps) => {
                            maps.await_synced().await.and_then(|()| maps.list(&Query::default())).map(|all| all.len())
                        }
                        Err(refused) => Err(refused),
                    }
                } else {
                    let names = cache.informer::<Metadata<ConfigMap>>().expect("every form serves it");
                    names.await_synced().await.and_then(|()| names.list(&Query::default())).map(|all| all.len())
                };
                match listed {
                    Ok(all) => {
                        assert_eq!(all, 1);
                        served += 1;
                    }
                    Err(refused) => assert!(matches!(refused, CacheError::Representation { .. }), "{refused}"),
                }
                tokio::task::yield_now().await;
            }
            (user, served)
        })
    });
    for user in users.collect::<Vec<_>>() {
        let (user, served) = user.await.expect("it found what it should");
        assert!(user % 2 == 0 || served == 50, "{user} was served {served} times");
    }
    let last = cache.informer::<ConfigMap>().expect("nobody uses another one");
    last.await_synced().await.expect("it syncs");
    cache.stop().await;
}
