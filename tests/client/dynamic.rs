//! Kinds that are named at run time, and where they are on the server.

use super::support::{definition, live};
use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::json;
use std::{future::Future, sync::Arc};
use steersman::{
    cache::Query,
    client::{Client, Error, Patch},
    object::ObjectKey,
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;
use tokio::sync::{Notify, watch};

fn gvk(group: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", "Order")
}

fn object(kind: &GroupVersionKind, namespace: &str, name: &str) -> DynamicObject {
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"namespace": namespace, "name": name}, "spec": {"count": 1},
    });
    serde_json::from_value(object).expect("an object")
}

steersman::env_test! {
    async fn a_kind_named_at_run_time_has_every_verb(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let kind = gvk("verbs.client.steersman.example");
        env.install([definition(&kind.group)]).await?;
        let (orders, key) = (client.dynamic(&kind), ObjectKey::new(&namespace, "web"));
        assert!(orders.get(&key).await?.is_none());
        let mut made = client.create(&object(&kind, &namespace, "web")).await?;
        assert_eq!(*orders.get(&key).await?.expect("it was made"), made);
        made.data["spec"]["count"] = json!(2);
        let updated = client.update(&made).await?;
        assert_eq!(updated.types, made.types);
        made.data["spec"]["count"] = json!(3);
        assert!(client.patch_from(&made, &updated).await.expect_err("the base is old").is_conflict());
        let patched = orders.patch(&key, &Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}))).await?;
        assert_eq!(patched.data["spec"]["count"], 2);
        let metadata = orders.get_metadata(&key).await?.expect("it is there");
        assert_eq!((&metadata.metadata.labels, &metadata.types), (&patched.metadata.labels, &made.types));
        let listed = orders.list(&Query::default().namespace(Some(&namespace)).labels("app=web")?).await?;
        assert_eq!((listed.len(), &listed[0].types), (1, &made.types), "items do not say what they are, the client does");
        let label = Patch::Merge(json!({"metadata": {"labels": {"app": null}}}));
        assert!(orders.patch_metadata(&key, &label).await?.metadata.labels.is_none_or(|labels| labels.is_empty()));
        client.create(&object(&kind, &namespace, "two")).await?;
        assert!(orders.delete(&key).await? && !orders.delete(&key).await?);
        let all = Query::default().namespace(Some(&namespace));
        assert_eq!(client.dynamic(&kind).list_metadata(&Query::default().namespace(Some(&namespace))).await?.len(), 1);
        orders.delete_collection(&all).await?;
        assert!(orders.list(&all).await?.is_empty());
        Ok(())
    }

    async fn a_kind_is_found_as_soon_as_it_is_installed(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let kind = gvk("later.client.steersman.example");
        assert_eq!(client.discover(&kind).await?, None);
        let error = client.create(&object(&kind, &namespace, "web")).await.expect_err("there is no such kind");
        assert!(matches!(error, Error::NoSuchKind(_)) && !error.is_not_found(), "{error}");
        assert!(error.to_string().contains("later.client.steersman.example/v1 Order"), "{error}");
        env.install([definition(&kind.group)]).await?;
        let found = client.live().discover(&kind).await?.expect("it is there now");
        assert_eq!((&*found.resource.plural, found.namespaced), ("orders", true));
        assert_eq!(found.key(Some("shop"), "web"), ObjectKey::new("shop", "web"));
        client.create(&object(&kind, &namespace, "web")).await?;
        let missing = GroupVersionKind::gvk(&kind.group, "v1", "Orders");
        assert_eq!(client.discover(&missing).await?, None, "a plural is no kind");
        let node = client.discover(&GroupVersionKind::gvk("", "v1", "Node")).await?.expect("all servers have nodes");
        assert_eq!(node.key(Some("shop"), "node-1"), ObjectKey::cluster_scoped("node-1"));
        Ok(())
    }

    async fn a_kind_that_is_gone_is_forgotten(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let kind = gvk("gone.client.steersman.example");
        env.install([definition(&kind.group)]).await?;
        client.create(&object(&kind, &namespace, "web")).await?;
        let definitions = client.dynamic(&GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"));
        let name = ObjectKey::cluster_scoped("orders.gone.client.steersman.example");
        assert!(definitions.delete(&name).await?);
        while definitions.get(&name).await?.is_some() {
            tokio::task::yield_now().await;
        }
        loop {
            // It may be served for a moment after its definition is gone, and be listed for another one.
            match client.dynamic(&kind).get(&ObjectKey::new(&namespace, "web")).await {
                Err(Error::Refused(said)) if said.code == 404 => tokio::task::yield_now().await,
                Err(error) => break assert!(matches!(error, Error::NoSuchKind(_)), "{error}: not that the object is not there"),
                Ok(_) => tokio::task::yield_now().await,
            }
        }
        assert_eq!(client.discover(&kind).await?, None);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_is_not_asked_for_again_and_who_asks_at_once_shares_an_answer() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let client = Client::new(server.client()?)?;
    let asked = server.server().faults().add(Fault::on("GET *").delay(std::time::Duration::from_secs(1)));
    let (there, not) =
        (GroupVersionKind::gvk("apps", "v1", "Deployment"), GroupVersionKind::gvk("apps", "v1", "Nothing"));
    let other = client.live();
    let (a, b, c) = tokio::join!(client.discover(&there), other.discover(&there), client.discover(&not));
    assert_eq!((a?.is_some(), b?.is_some(), c?.is_some()), (true, true, false));
    assert_eq!(asked.hits(), 2, "one for those that are there, and one more for who was told no");
    client.dry_run().discover(&there).await?;
    assert_eq!(asked.hits(), 2, "it is known");
    assert!(tokio::time::timeout(std::time::Duration::from_millis(1), client.discover(&not)).await.is_err());
    assert!(client.discover(&not).await?.is_none());
    assert_eq!(asked.hits(), 4, "what is not there is asked for again, also after somebody gave up");
    Ok(())
}

/// The answer to the first question is made before the kind is there, and comes after somebody else has asked.
#[tokio::test(start_paused = true)]
async fn a_kind_that_was_there_when_it_was_asked_for_is_found_whatever_others_are_told() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let (made, (give, given)) = (Arc::new(Notify::new()), watch::channel(false));
    let (inside, says_made) = (server.server().service(), made.clone());
    let service = tower::service_fn(move |request| {
        let answer = tower::Service::call(&mut inside.clone(), request);
        let (made, mut given) = (says_made.clone(), given.clone());
        async move {
            let answer = answer.await;
            made.notify_one();
            let _ = given.wait_for(|given| *given).await;
            answer
        }
    });
    let client = Client::new(kube_client::Client::new(service, "default"))?;
    let kind = gvk("between.client.steersman.example");
    // Another kind of its group, so that one question is enough to be told no.
    let mut other = definition(&kind.group);
    other.metadata.name = Some(format!("parcels.{}", kind.group));
    let names = &mut other.spec.names;
    (names.kind, names.plural, names.singular) = ("Parcel".into(), "parcels".into(), Some("parcel".into()));
    server.install([other]).await?;
    let (asker, asked) = (client.clone(), kind.clone());
    let early = tokio::spawn(async move { asker.discover(&asked).await });
    made.notified().await;
    server.install([definition(&kind.group)]).await?;
    let mut late = std::pin::pin!(client.discover(&kind));
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(late.as_mut().poll(cx).is_pending())).await;
    assert!(polled, "it shares the question that is on its way");
    give.send_replace(true);
    assert!(early.await??.is_none(), "it was not there");
    assert!(late.await?.is_some());
    Ok(())
}
