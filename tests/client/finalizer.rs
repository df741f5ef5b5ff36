//! Tests of finalizers: added, kept and removed.

use super::{
    interceptors::{Calls, RunBefore},
    support::{config_map, live},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::Status;
use std::{future::ready, sync::Arc};
use steersman::{
    client::{
        Client, Deletion, Error, Finalize, Result, Verb, add_finalizer, has_finalizer,
        remove_finalizer,
    },
    object::{KubeObject, Metadata, ObjectKey},
    testing::Env,
};

const OURS: &str = "shop.example/ours";
const THEIRS: &str = "shop.example/theirs";

fn active<K: KubeObject>(finalize: Finalize<K>) -> Arc<K> {
    let Finalize::Active(object) = finalize else {
        panic!("not active: {finalize:?}")
    };
    object
}

fn deleting<K: KubeObject>(finalize: Finalize<K>) -> Deletion<K> {
    let Finalize::Deleting(deletion) = finalize else {
        panic!("not deleting: {finalize:?}")
    };
    deletion
}

async fn read(client: &Client, key: &ObjectKey) -> Result<Option<Arc<ConfigMap>>> {
    client.live().get(key).await
}

/// Creates an object with these finalizers, and deletes it.
async fn deleted(client: &Client, namespace: &str, finalizers: &[&str]) -> Result<Arc<ConfigMap>> {
    let mut map = config_map(namespace, "colors", "blue");
    for name in finalizers {
        add_finalizer(&mut map, name);
    }
    let key = ObjectKey::of(&map);
    client.create(&map).await?;
    client.delete::<ConfigMap>(&key).await?;
    Ok(read(client, &key)
        .await?
        .expect("the object has finalizers"))
}

#[test]
fn finalizers_of_an_object_are_a_set() {
    let mut map = config_map("shop", "colors", "blue");
    assert!(!has_finalizer(&map, OURS) && !remove_finalizer(&mut map, OURS));
    assert!(add_finalizer(&mut map, OURS) && !add_finalizer(&mut map, OURS));
    assert!(add_finalizer(&mut map, THEIRS));
    map.metadata.finalizers.as_mut().unwrap().push(OURS.into());
    assert!(remove_finalizer(&mut map, OURS), "duplicates are removed");
    assert_eq!(
        map.metadata.finalizers.as_deref(),
        Some(&[THEIRS.to_owned()][..])
    );
    assert!(remove_finalizer(&mut map, THEIRS) && !remove_finalizer(&mut map, THEIRS));
    assert_eq!(map.metadata.finalizers, None);
}

steersman::env_test! {
    async fn an_object_is_deleted_when_its_finalizer_is_removed(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let calls = Calls::default();
        let client = client.intercepted(calls.clone());
        let made = Arc::new(client.create(&config_map(&namespace, "colors", "blue")).await?);
        let key = ObjectKey::of(&*made);

        let held = active(client.finalizer(made, OURS).await?);
        assert_eq!(held.metadata.finalizers.as_deref(), Some(&[OURS.to_owned()][..]));
        assert_eq!(*read(&client, &key).await?.expect("exists"), *held, "the finalizer was written");
        calls.take();
        let again = active(client.finalizer(held.clone(), OURS).await?);
        assert!(Arc::ptr_eq(&again, &held) && calls.take().is_empty(), "the finalizer is already set");

        client.delete::<ConfigMap>(&key).await?;
        let going = read(&client, &key).await?.expect("the object has a finalizer");
        calls.take();
        let deletion = deleting(client.finalizer(going.clone(), OURS).await?);
        assert!(Arc::ptr_eq(deletion.object(), &going) && calls.take().is_empty());
        deletion.clone().finish().await?;
        assert_eq!(calls.take(), [format!("Patch ConfigMap {key}")], "one request");
        assert!(read(&client, &key).await?.is_none());
        deletion.finish().await?;
        calls.take();
        let mut released = (*going).clone();
        remove_finalizer(&mut released, OURS);
        assert!(matches!(client.finalizer(Arc::new(released), OURS).await?, Finalize::Released));
        assert!(calls.take().is_empty());
        Ok(())
    }

    async fn removing_a_finalizer_keeps_those_of_others(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let going = deleted(&client, &namespace, &[THEIRS, OURS]).await?;
        let key = ObjectKey::of(&*going);
        deleting(client.finalizer(going.clone(), OURS).await?).finish().await?;
        let left = read(&client, &key).await?.expect("the object has another finalizer");
        assert_eq!(left.metadata.finalizers.as_deref(), Some(&[THEIRS.to_owned()][..]));
        deleting(client.finalizer(going.clone(), OURS).await?).finish().await?;
        assert!(matches!(client.finalizer(left.clone(), OURS).await?, Finalize::Released));
        deleting(client.finalizer(left, THEIRS).await?).finish().await?;
        assert!(read(&client, &key).await?.is_none());
        Ok(())
    }

    async fn concurrent_finalizers_are_all_removed(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let names = ["shop.example/a", "shop.example/b", "shop.example/c", "shop.example/d"];
        let going = deleted(&client, &namespace, &names).await?;
        // Each task starts from the object with all finalizers.
        let finishing = names.map(|name| {
            let (client, going) = (client.clone(), going.clone());
            tokio::spawn(async move { deleting(client.finalizer(going, name).await?).finish().await })
        });
        for task in finishing {
            task.await??;
        }
        assert!(read(&client, &ObjectKey::of(&*going)).await?.is_none());
        Ok(())
    }

    async fn finish_ignores_a_new_object_of_the_same_name(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let deletion = deleting(client.finalizer(deleted(&client, &namespace, &[OURS]).await?, OURS).await?);
        deletion.clone().finish().await?;
        let mut other = config_map(&namespace, "colors", "blue");
        add_finalizer(&mut other, OURS);
        let other = client.create(&other).await?;
        deletion.finish().await?;
        assert_eq!(*read(&client, &ObjectKey::of(&other)).await?.expect("the other object exists"), other);
        Ok(())
    }

    async fn adding_a_finalizer_to_a_changed_object_is_a_conflict(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let made = Arc::new(client.create(&config_map(&namespace, "colors", "blue")).await?);
        active(client.finalizer(made.clone(), THEIRS).await?);
        let error = client.finalizer(made.clone(), OURS).await.expect_err("a conflict");
        assert!(error.is_conflict(), "{error}");
        let now = read(&client, &ObjectKey::of(&*made)).await?.expect("exists");
        let held = active(client.finalizer(now, OURS).await?);
        assert_eq!(held.metadata.finalizers.as_deref(), Some(&[THEIRS.to_owned(), OURS.to_owned()][..]));
        Ok(())
    }

    async fn a_finalizer_needs_only_metadata_and_no_subresource(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let made = client.create(&config_map(&namespace, "colors", "blue")).await?;
        let error = client.status().finalizer(Arc::new(made.clone()), OURS).await.expect_err("a subresource");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");

        let key = ObjectKey::of(&made);
        let metadata = client.get::<Metadata<ConfigMap>>(&key).await?.expect("exists");
        active(client.finalizer(metadata, OURS).await?);
        client.delete::<ConfigMap>(&key).await?;
        let metadata = client.get::<Metadata<ConfigMap>>(&key).await?.expect("the object has a finalizer");
        deleting(client.finalizer(metadata, OURS).await?).finish().await?;
        assert!(read(&client, &key).await?.is_none());
        Ok(())
    }

    async fn finish_returns_a_conflict_after_five_attempts(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let going = deleted(&client, &namespace, &[OURS]).await?;
        let calls = Calls::default();
        let seen = calls.clone();
        let busy = client.intercepted(RunBefore(move |verb| {
            seen.push(format!("{verb:?}"));
            let conflict = Status::failure("the object has been modified", "Conflict").with_code(409);
            ready(if verb == Verb::Patch { Err(conflict.into()) } else { Ok(()) })
        }));
        let error = deleting(busy.finalizer(going, OURS).await?).finish().await.expect_err("every patch conflicts");
        assert!(error.is_conflict(), "{error}");
        assert_eq!(calls.take(), ["Patch", "Get", "Patch", "Get", "Patch", "Get", "Patch", "Get", "Patch"]);
        Ok(())
    }
}
