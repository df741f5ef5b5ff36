//! Tests of dynamic kinds and their discovery.

use super::support::{definition, live};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
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
    async fn a_dynamic_kind_supports_every_verb(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let kind = gvk("verbs.client.steersman.example");
        env.install([definition(&kind.group)]).await?;
        let (orders, key) = (client.dynamic(&kind), ObjectKey::new(&namespace, "web"));
        assert!(orders.get(&key).await?.is_none());
        let mut made = client.create(&object(&kind, &namespace, "web")).await?;
        assert_eq!(*orders.get(&key).await?.expect("the object exists"), made);
        made.data["spec"]["count"] = json!(2);
        let updated = client.update(&made).await?;
        assert_eq!(updated.types, made.types);
        made.data["spec"]["count"] = json!(3);
        assert!(client.patch_from(&made, &updated).await.expect_err("the base is old").is_conflict());
        let patched = orders.patch(&key, &Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}))).await?;
        assert_eq!(patched.data["spec"]["count"], 2);
        let metadata = orders.get_metadata(&key).await?.expect("exists");
        assert_eq!((&metadata.metadata.labels, &metadata.types), (&patched.metadata.labels, &made.types));
        let listed = orders.list(&Query::default().namespace(Some(&namespace)).labels("app=web")?).await?;
        assert_eq!((listed.len(), &listed[0].types), (1, &made.types), "the client sets the type of items");
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

    async fn a_kind_is_discovered_as_soon_as_it_is_installed(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let kind = gvk("later.client.steersman.example");
        assert_eq!(client.discover(&kind).await?, None);
        let error = client.create(&object(&kind, &namespace, "web")).await.expect_err("an unknown kind");
        assert!(matches!(error, Error::NoSuchKind(_)) && !error.is_not_found(), "{error}");
        assert!(error.to_string().contains("later.client.steersman.example/v1 Order"), "{error}");
        env.install([definition(&kind.group)]).await?;
        let found = client.live().discover(&kind).await?.expect("installed");
        assert_eq!((&*found.resource.plural, found.namespaced), ("orders", true));
        assert_eq!(found.key(Some("shop"), "web"), ObjectKey::new("shop", "web"));
        client.create(&object(&kind, &namespace, "web")).await?;
        let missing = GroupVersionKind::gvk(&kind.group, "v1", "Orders");
        assert_eq!(client.discover(&missing).await?, None, "a plural is not a kind");
        let node = client.discover(&GroupVersionKind::gvk("", "v1", "Node")).await?.expect("all servers have nodes");
        assert_eq!(node.key(Some("shop"), "node-1"), ObjectKey::cluster_scoped("node-1"));
        Ok(())
    }

    async fn a_removed_kind_is_discovered_as_missing(env: Env) -> anyhow::Result<()> {
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
            // The kind may be served, and then listed in discovery, shortly after its CRD is
            // deleted.
            match client.dynamic(&kind).get(&ObjectKey::new(&namespace, "web")).await {
                Err(Error::Api(status)) if status.code == 404 => tokio::task::yield_now().await,
                Err(error) => break assert!(matches!(error, Error::NoSuchKind(_)), "{error}: not a missing object"),
                Ok(_) => tokio::task::yield_now().await,
            }
        }
        assert_eq!(client.discover(&kind).await?, None);
        Ok(())
    }
}

steersman::env_test! {
    async fn a_kind_is_discovered_in_every_served_version_the_preferred_first(env: Env) -> anyhow::Result<()> {
        let (client, _) = live(&env).await?;
        let group = "versions.client.steersman.example";
        assert_eq!(client.discover_kind(group, "Order").await?, []);
        assert_eq!(client.discover_plural(group, "Order").await?, None);
        let in_versions = |mut crd: CustomResourceDefinition, versions: &[(&str, bool)]| {
            let version = crd.spec.versions.remove(0);
            crd.spec.versions = versions
                .iter()
                .map(|(name, served)| CustomResourceDefinitionVersion {
                    name: (*name).into(),
                    served: *served,
                    storage: *name == versions[0].0,
                    ..version.clone()
                })
                .collect();
            crd
        };
        let mut parcels = definition(group);
        parcels.metadata.name = Some(format!("parcels.{group}"));
        parcels.spec.names.kind = "Parcel".into();
        parcels.spec.names.plural = "parcels".into();
        parcels.spec.names.singular = Some("parcel".into());
        let versions = [("v1beta1", true), ("v1", true), ("v2alpha1", true), ("v3", false)];
        env.install([
            in_versions(definition(group), &versions),
            in_versions(parcels, &[("v2", true)]),
        ])
        .await?;

        let found = client.discover_kind(group, "Order").await?;
        let versions: Vec<_> = found.iter().map(|found| &*found.resource.version).collect();
        assert_eq!(versions, ["v1", "v1beta1", "v2alpha1"], "v2 is preferred, and lacks the kind");
        assert!(found.iter().all(|found| found.resource.plural == "orders" && found.namespaced));
        let parcels = client.discover_kind(group, "Parcel").await?;
        assert_eq!(parcels.len(), 1);
        assert_eq!(client.discover_kind(group, "orders").await?, [], "a plural is not a kind");
        assert_eq!(client.discover_plural(group, "Order").await?.as_deref(), Some("orders"));
        let pods = client.discover_kind("", "Pod").await?;
        assert_eq!(pods.iter().map(|pod| &*pod.resource.api_version).collect::<Vec<_>>(), ["v1"]);
        Ok(())
    }
}

#[tokio::test]
async fn only_the_plural_name_of_a_discovered_kind_is_cached() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let client = Client::new(server.client()?)?;
    let requests = || server.server().journal().count("get *");
    let before = requests();
    client.discover_kind("apps", "Deployment").await?;
    assert_eq!(requests() - before, 2, "the group and its version");
    client.discover_plural("apps", "Deployment").await?;
    client
        .discover(&GroupVersionKind::gvk("apps", "v1", "Deployment"))
        .await?;
    assert_eq!(requests() - before, 2);
    client.discover_kind("apps", "Deployment").await?;
    assert_eq!(requests() - before, 4, "versions are never cached");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn discovery_is_cached_and_concurrent_callers_share_a_response() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let client = Client::new(server.client()?)?;
    let rule = server
        .server()
        .faults()
        .add(Fault::on("GET *").delay(std::time::Duration::from_secs(1)));
    let (deployment, missing) = (
        GroupVersionKind::gvk("apps", "v1", "Deployment"),
        GroupVersionKind::gvk("apps", "v1", "Nothing"),
    );
    let other = client.live();
    let (a, b, c) = tokio::join!(
        client.discover(&deployment),
        other.discover(&deployment),
        client.discover(&missing)
    );
    assert_eq!(
        (a?.is_some(), b?.is_some(), c?.is_some()),
        (true, true, false)
    );
    assert_eq!(
        rule.hits(),
        2,
        "one shared request, and one more for the missing kind"
    );
    client.dry_run().discover(&deployment).await?;
    assert_eq!(rule.hits(), 2, "cached");
    assert!(
        tokio::time::timeout(
            std::time::Duration::from_millis(1),
            client.discover(&missing)
        )
        .await
        .is_err()
    );
    assert!(client.discover(&missing).await?.is_none());
    assert_eq!(
        rule.hits(),
        4,
        "a missing kind is requested again, also after a cancelled call"
    );
    Ok(())
}

/// The first discovery response is created before the CRD, and arrives after another request has
/// started.
#[tokio::test(start_paused = true)]
async fn a_kind_installed_before_the_call_is_found_despite_an_older_shared_response()
-> anyhow::Result<()> {
    let server = Embedded::start()?;
    let (created, (release, released)) = (Arc::new(Notify::new()), watch::channel(false));
    let (service_of_server, response_created) = (server.server().service(), created.clone());
    let service = tower::service_fn(move |request| {
        let response = tower::Service::call(&mut service_of_server.clone(), request);
        let (created, mut released) = (response_created.clone(), released.clone());
        async move {
            let response = response.await;
            created.notify_one();
            let _ = released.wait_for(|released| *released).await;
            response
        }
    });
    let client = Client::new(kube_client::Client::new(service, "default"))?;
    let kind = gvk("between.client.steersman.example");
    // Another kind of the group, so that one discovery request suffices for an error.
    let mut other = definition(&kind.group);
    other.metadata.name = Some(format!("parcels.{}", kind.group));
    let names = &mut other.spec.names;
    (names.kind, names.plural, names.singular) =
        ("Parcel".into(), "parcels".into(), Some("parcel".into()));
    server.install([other]).await?;
    let (early_client, early_kind) = (client.clone(), kind.clone());
    let early = tokio::spawn(async move { early_client.discover(&early_kind).await });
    created.notified().await;
    server.install([definition(&kind.group)]).await?;
    let mut late = std::pin::pin!(client.discover(&kind));
    let polled =
        std::future::poll_fn(|cx| std::task::Poll::Ready(late.as_mut().poll(cx).is_pending()))
            .await;
    assert!(polled, "the call shares the request in flight");
    release.send_replace(true);
    assert!(early.await??.is_none(), "the kind was missing");
    assert!(late.await?.is_some());
    Ok(())
}
