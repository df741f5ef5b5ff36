//! A finalizer's life: put on, held, taken off.

use super::{
    calls::{Before, Calls},
    support::{live, map},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::Status;
use std::{future::ready, sync::Arc};
use steersman::{
    client::{Client, Deletion, Error, Finalize, Result, Verb, add_finalizer, has_finalizer, remove_finalizer},
    object::{KubeObject, Metadata, ObjectKey},
    testing::Env,
};

const OURS: &str = "shop.example/ours";
const THEIRS: &str = "shop.example/theirs";

fn active<K: KubeObject>(finalize: Finalize<K>) -> Arc<K> {
    let Finalize::Active(object) = finalize else { panic!("not active: {finalize:?}") };
    object
}

fn deleting<K: KubeObject>(finalize: Finalize<K>) -> Deletion<K> {
    let Finalize::Deleting(deletion) = finalize else { panic!("not deleting: {finalize:?}") };
    deletion
}

async fn read(client: &Client, key: &ObjectKey) -> Result<Option<Arc<ConfigMap>>> {
    client.live().get(key).await
}

/// With these finalizers, and being deleted.
async fn deleted(client: &Client, namespace: &str, finalizers: &[&str]) -> Result<Arc<ConfigMap>> {
    let mut map = map(namespace, "colors", "blue");
    for name in finalizers {
        add_finalizer(&mut map, name);
    }
    let key = ObjectKey::of(&map);
    client.create(&map).await?;
    client.delete::<ConfigMap>(&key).await?;
    Ok(read(client, &key).await?.expect("it has finalizers"))
}

#[test]
fn finalizers_of_an_object_in_hand_are_a_set() {
    let mut map = map("shop", "colors", "blue");
    assert!(!has_finalizer(&map, OURS) && !remove_finalizer(&mut map, OURS));
    assert!(add_finalizer(&mut map, OURS) && !add_finalizer(&mut map, OURS));
    assert!(add_finalizer(&mut map, THEIRS));
    map.metadata.finalizers.as_mut().unwrap().push(OURS.into());
    assert!(remove_finalizer(&mut map, OURS), "also if somebody else has put it there twice");
    assert_eq!(map.metadata.finalizers.as_deref(), Some(&[THEIRS.to_owned()][..]));
    assert!(remove_finalizer(&mut map, THEIRS) && !remove_finalizer(&mut map, THEIRS));
    assert_eq!(map.metadata.finalizers, None);
}

steersman::env_test! {
    async fn an_object_stays_until_the_finalizer_is_taken_off(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let calls = Calls::default();
        let client = client.intercepted(calls.clone());
        let made = Arc::new(client.create(&map(&namespace, "colors", "blue")).await?);
        let key = ObjectKey::of(&*made);

        let held = active(client.finalizer(made, OURS).await?);
        assert_eq!(held.metadata.finalizers.as_deref(), Some(&[OURS.to_owned()][..]));
        assert_eq!(*read(&client, &key).await?.expect("it is there"), *held, "it was written");
        calls.take();
        let again = active(client.finalizer(held.clone(), OURS).await?);
        assert!(Arc::ptr_eq(&again, &held) && calls.take().is_empty(), "it has it: nothing to do");

        client.delete::<ConfigMap>(&key).await?;
        let going = read(&client, &key).await?.expect("it is held");
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

    async fn a_finalizer_leaves_those_of_others(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let going = deleted(&client, &namespace, &[THEIRS, OURS]).await?;
        let key = ObjectKey::of(&*going);
        deleting(client.finalizer(going.clone(), OURS).await?).finish().await?;
        let left = read(&client, &key).await?.expect("theirs is on it");
        assert_eq!(left.metadata.finalizers.as_deref(), Some(&[THEIRS.to_owned()][..]));
        deleting(client.finalizer(going.clone(), OURS).await?).finish().await?;
        assert!(matches!(client.finalizer(left.clone(), OURS).await?, Finalize::Released));
        deleting(client.finalizer(left, THEIRS).await?).finish().await?;
        assert!(read(&client, &key).await?.is_none());
        Ok(())
    }

    async fn many_can_finish_at_once(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let names = ["shop.example/a", "shop.example/b", "shop.example/c", "shop.example/d"];
        let going = deleted(&client, &namespace, &names).await?;
        // Each works from what it was when all were on it.
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

    async fn an_object_of_the_same_name_is_left_alone(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let deletion = deleting(client.finalizer(deleted(&client, &namespace, &[OURS]).await?, OURS).await?);
        deletion.clone().finish().await?;
        let mut other = map(&namespace, "colors", "blue");
        add_finalizer(&mut other, OURS);
        let other = client.create(&other).await?;
        deletion.finish().await?;
        assert_eq!(*read(&client, &ObjectKey::of(&other)).await?.expect("it is another one"), other);
        Ok(())
    }

    async fn a_finalizer_put_on_what_has_changed_is_a_conflict(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let made = Arc::new(client.create(&map(&namespace, "colors", "blue")).await?);
        active(client.finalizer(made.clone(), THEIRS).await?);
        let error = client.finalizer(made.clone(), OURS).await.expect_err("it has changed");
        assert!(error.is_conflict(), "{error}");
        let now = read(&client, &ObjectKey::of(&*made)).await?.expect("it is there");
        let held = active(client.finalizer(now, OURS).await?);
        assert_eq!(held.metadata.finalizers.as_deref(), Some(&[THEIRS.to_owned(), OURS.to_owned()][..]));
        Ok(())
    }

    async fn a_finalizer_is_no_part_of_a_status_and_needs_no_body(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let made = client.create(&map(&namespace, "colors", "blue")).await?;
        let error = client.status().finalizer(Arc::new(made.clone()), OURS).await.expect_err("a part");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");

        let key = ObjectKey::of(&made);
        let metadata = client.get::<Metadata<ConfigMap>>(&key).await?.expect("it is there");
        active(client.finalizer(metadata, OURS).await?);
        client.delete::<ConfigMap>(&key).await?;
        let metadata = client.get::<Metadata<ConfigMap>>(&key).await?.expect("it is held");
        deleting(client.finalizer(metadata, OURS).await?).finish().await?;
        assert!(read(&client, &key).await?.is_none());
        Ok(())
    }

    async fn who_is_never_left_alone_gives_up_with_a_conflict(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let going = deleted(&client, &namespace, &[OURS]).await?;
        let calls = Calls::default();
        let seen = calls.clone();
        let busy = client.intercepted(Before(move |verb| {
            seen.push(format!("{verb:?}"));
            let conflict = Status::failure("the object has been modified", "Conflict").with_code(409);
            ready(if verb == Verb::Patch { Err(conflict.into()) } else { Ok(()) })
        }));
        let error = deleting(busy.finalizer(going, OURS).await?).finish().await.expect_err("never left alone");
        assert!(error.is_conflict(), "{error}");
        assert_eq!(calls.take(), ["Patch", "Get", "Patch", "Get", "Patch", "Get", "Patch", "Get", "Patch"]);
        Ok(())
    }
}
