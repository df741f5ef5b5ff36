//! What is not found, and who says so; and what is found twice.

use super::support::map;
use http::{Request, Response};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube_client::client::Body;
use kube_core::GroupVersionKind;
use serde_json::{Value, json};
use std::convert::Infallible;
use steersman::{
    cache::Query,
    client::{Client, Error, IgnoreNotFound, Patch, Result},
    object::{ObjectKey, StaticKind},
};

/// A server that has what is at these paths, behind a proxy that answers for all others.
fn server(has: Value) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = if let Some(found) = has.get(request.uri().path()) {
            Response::new(Body::from(found.to_string().into_bytes()))
        } else {
            let page = Body::from(b"<html>no backend</html>".to_vec());
            Response::builder().status(404).body(page).expect("a response")
        };
        async move { Ok::<_, Infallible>(answer) }
    });
    Client::new(kube_client::Client::new(service, "default")).expect("a ready client")
}

fn groups(of: &[(&str, &str)]) -> Value {
    let group = |(group, version): &(&str, &str)| {
        let versions = json!([{"groupVersion": format!("{group}/{version}"), "version": version}]);
        json!({"name": group, "versions": versions})
    };
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": of.iter().map(group).collect::<Vec<_>>()})
}

/// By name, kind and verbs.
fn resources(group_version: &str, of: &[(&str, &str, &[&str])]) -> Value {
    let resource = |(name, kind, verbs): &(&str, &str, &[&str])| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
    let resources: Vec<_> = of.iter().map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

fn is_absent<T>(answer: &Result<T>) -> bool {
    answer.as_ref().is_err_and(|error| error.is_absent() && !error.is_not_found())
}

/// That nothing is known: neither that there is no such object, nor that there is no such kind.
fn is_refused<T>(answer: &Result<T>) -> bool {
    let refused = |error: &Error| matches!(error, Error::Refused(said) if said.code == 404);
    answer.as_ref().is_err_and(|error| refused(error) && !error.is_absent() && !error.is_not_found())
}

#[tokio::test]
async fn a_proxy_that_has_lost_its_server_says_nothing_of_what_there_is() {
    let client = server(json!({}));
    let (key, door) = (ObjectKey::new("shop", "door"), map("shop", "door", "blue"));
    let dynamic = client.dynamic(&Deployment::static_gvk());
    for (called, answer) in [
        ("get", client.get::<ConfigMap>(&key).await.map(drop)),
        ("list", client.list(&Query::<ConfigMap>::default()).await.map(drop)),
        ("create", client.create(&door).await.map(drop)),
        ("patch", client.patch::<ConfigMap>(&key, &Patch::Merge(json!({}))).await.map(drop)),
        ("delete", client.delete::<ConfigMap>(&key).await.map(drop)),
        ("ignored", client.delete::<ConfigMap>(&key).await.ignore_not_found().map(drop)),
        ("create_or_patch", client.create_or_patch(door, |_| Ok(())).await.map(drop)),
        ("status", client.status().get::<Deployment>(&key).await.map(drop)),
        ("scale", client.subresource_of::<Deployment>(&key, "scale").get::<Value>().await.map(drop)),
        ("cluster-scoped", client.get::<Namespace>(&ObjectKey::cluster_scoped("shop")).await.map(drop)),
        ("dynamic get", dynamic.get(&key).await.map(drop)),
        ("dynamic delete", dynamic.delete(&key).await.map(drop)),
        ("discover", client.discover(&Deployment::static_gvk()).await.map(drop)),
        ("discover core", client.discover(&ConfigMap::static_gvk()).await.map(drop)),
    ] {
        assert!(is_refused(&answer), "{called}: {answer:?}");
    }
}

#[tokio::test]
async fn a_kind_is_missing_only_if_the_server_has_listed_what_it_has() {
    let (kind, key) = (Deployment::static_gvk(), ObjectKey::new("shop", "web"));
    let listed = groups(&[("apps", "v1")]);
    let others = resources("apps/v1", &[("daemonsets", "DaemonSet", &["get"])]);
    for (has, what) in [
        (json!({"/apis": groups(&[])}), "no such group"),
        (json!({"/apis": groups(&[("apps", "v2")])}), "no such version"),
        (json!({"/apis": listed, "/apis/apps/v1": others}), "others of that group"),
    ] {
        let client = server(has);
        assert!(matches!(client.discover(&kind).await, Ok(None)), "{what}");
        let typed = client.get::<Deployment>(&key).await;
        assert!(is_absent(&typed), "{what}: {typed:?}");
        let dynamic = client.dynamic(&kind).delete(&key).await;
        assert!(is_absent(&dynamic), "{what}: {dynamic:?}");
    }

    let client = server(json!({"/apis": listed}));
    let listed_only = client.discover(&kind).await;
    assert!(is_refused(&listed_only), "it is listed, and not there: {listed_only:?}");
    let there = resources("apps/v1", &[("deployments", "Deployment", &["get"])]);
    let client = server(json!({"/apis/apps/v1": there}));
    assert!(matches!(client.discover(&kind).await, Ok(Some(_))));
    let object = client.get::<Deployment>(&key).await;
    assert!(is_refused(&object), "the kind is there, and nobody has spoken of the object: {object:?}");
    let part = client.status().get::<Deployment>(&key).await;
    assert!(is_absent(&part), "the kind has no such part: {part:?}");
    assert!(part.expect_err("absent").to_string().contains("apps/v1 Deployment/status"));
}

#[tokio::test]
async fn a_kind_of_the_core_is_missing_only_if_its_versions_are_listed() {
    let later = GroupVersionKind::gvk("", "v2", "ConfigMap");
    let versions = json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []});
    let client = server(json!({"/api": versions}));
    assert!(matches!(client.discover(&later).await, Ok(None)));
    let listed_only = client.discover(&ConfigMap::static_gvk()).await;
    assert!(is_refused(&listed_only), "{listed_only:?}");
}

/// As it is in `OpenShift`, whose `processedtemplates` can be made and nothing else.
#[tokio::test]
async fn of_several_resources_of_a_kind_the_one_that_can_be_read_is_meant() -> anyhow::Result<()> {
    const GROUP: &str = "template.openshift.io/v1";
    type Listed<'a> = (&'a str, &'a str, &'a [&'a str]);
    const MADE: Listed<'_> = ("processedtemplates", "Template", &["create"]);
    const THERE: Listed<'_> = ("templates", "Template", &["create", "delete", "get", "list", "watch"]);
    const TOO: Listed<'_> = ("moretemplates", "Template", &["get"]);
    const UNREAD: Listed<'_> = ("othertemplates", "Template", &["create"]);
    let kind = GroupVersionKind::gvk("template.openshift.io", "v1", "Template");
    let found = async |of: &[Listed<'_>]| {
        let client = server(json!({"/apis/template.openshift.io/v1": resources(GROUP, of)}));
        client.discover(&kind).await.map(|found| found.map(|found| found.resource.plural))
    };
    for of in [[MADE, THERE], [THERE, MADE]] {
        assert_eq!(found(&of).await?.as_deref(), Some("templates"));
    }
    assert_eq!(found(&[MADE]).await?.as_deref(), Some("processedtemplates"), "it is the only one");
    for (of, named) in
        [(&[MADE, THERE, TOO][..], "templates, moretemplates"), (&[MADE, UNREAD], "processedtemplates, othertemplates")]
    {
        let error = found(of).await.expect_err("which one?");
        assert!(matches!(error, Error::AmbiguousKind { .. }) && !error.is_absent(), "{error}");
        assert!(error.to_string().contains(named) && error.to_string().contains(GROUP), "{error}");
    }

    let object = json!({"apiVersion": GROUP, "kind": "Template", "metadata": {"namespace": "shop", "name": "web"}});
    let client = server(json!({
        "/apis/template.openshift.io/v1": resources(GROUP, &[MADE, THERE]),
        "/apis/template.openshift.io/v1/namespaces/shop/templates/web": object,
    }));
    assert!(client.dynamic(&kind).get(&ObjectKey::new("shop", "web")).await?.is_some());
    Ok(())
}
