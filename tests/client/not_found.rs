//! Tests of 404 responses and of ambiguous kinds.
//!
//! A missing object, a missing kind and a proxy without a server are distinguished.

use super::support::config_map;
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

/// Returns a client of a server with these paths, behind a proxy.
///
/// The proxy answers all other paths.
fn server(responses: Value) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let result = if let Some(plural) = responses.get(request.uri().path()) {
            Response::new(Body::from(plural.to_string().into_bytes()))
        } else {
            let page = Body::from(b"<html>no backend</html>".to_vec());
            Response::builder()
                .status(404)
                .body(page)
                .expect("a response")
        };
        async move { Ok::<_, Infallible>(result) }
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

/// Returns a discovery response with resources by name, kind and verbs.
fn resources(group_version: &str, of: &[(&str, &str, &[&str])]) -> Value {
    let resource = |(name, kind, verbs): &(&str, &str, &[&str])| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
    let resources: Vec<_> = of.iter().map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

fn is_kind_missing<T>(result: &Result<T>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.is_kind_not_found() && !error.is_not_found())
}

/// Returns whether the 404 proves neither a missing object nor a missing kind.
fn is_plain_404<T>(result: &Result<T>) -> bool {
    let rejected = |error: &Error| matches!(error, Error::Api(status) if status.code == 404);
    result
        .as_ref()
        .is_err_and(|error| rejected(error) && !error.is_kind_not_found() && !error.is_not_found())
}

#[tokio::test]
async fn a_404_of_a_proxy_means_neither_a_missing_object_nor_a_missing_kind() {
    let client = server(json!({}));
    let (key, color) = (
        ObjectKey::new("shop", "color"),
        config_map("shop", "color", "blue"),
    );
    let dynamic = client.dynamic(&Deployment::static_gvk());
    for (method, result) in [
        ("get", client.get::<ConfigMap>(&key).await.map(drop)),
        (
            "list",
            client.list(&Query::<ConfigMap>::default()).await.map(drop),
        ),
        ("create", client.create(&color).await.map(drop)),
        (
            "patch",
            client
                .patch::<ConfigMap>(&key, &Patch::Merge(json!({})))
                .await
                .map(drop),
        ),
        ("delete", client.delete::<ConfigMap>(&key).await.map(drop)),
        (
            "ignored",
            client
                .delete::<ConfigMap>(&key)
                .await
                .ignore_not_found()
                .map(drop),
        ),
        (
            "create_or_patch",
            client.create_or_patch(color, |_| Ok(())).await.map(drop),
        ),
        (
            "status",
            client.status().get::<Deployment>(&key).await.map(drop),
        ),
        (
            "scale",
            client
                .subresource_of::<Deployment>(&key, "scale")
                .get::<Value>()
                .await
                .map(drop),
        ),
        (
            "cluster-scoped",
            client
                .get::<Namespace>(&ObjectKey::cluster_scoped("shop"))
                .await
                .map(drop),
        ),
        ("dynamic get", dynamic.get(&key).await.map(drop)),
        ("dynamic delete", dynamic.delete(&key).await.map(drop)),
        (
            "discover",
            client.discover(&Deployment::static_gvk()).await.map(drop),
        ),
        (
            "discover core",
            client.discover(&ConfigMap::static_gvk()).await.map(drop),
        ),
    ] {
        assert!(is_plain_404(&result), "{method}: {result:?}");
    }
}

#[tokio::test]
async fn a_kind_is_missing_only_if_discovery_lists_the_others() {
    let (kind, key) = (Deployment::static_gvk(), ObjectKey::new("shop", "web"));
    let listed = groups(&[("apps", "v1")]);
    let others = resources("apps/v1", &[("daemonsets", "DaemonSet", &["get"])]);
    for (responses, what) in [
        (json!({"/apis": groups(&[])}), "no such group"),
        (
            json!({"/apis": groups(&[("apps", "v2")])}),
            "no such version",
        ),
        (
            json!({"/apis": listed, "/apis/apps/v1": others}),
            "others of that group",
        ),
    ] {
        let client = server(responses);
        assert!(matches!(client.discover(&kind).await, Ok(None)), "{what}");
        let typed = client.get::<Deployment>(&key).await;
        assert!(is_kind_missing(&typed), "{what}: {typed:?}");
        let dynamic = client.dynamic(&kind).delete(&key).await;
        assert!(is_kind_missing(&dynamic), "{what}: {dynamic:?}");
    }

    let client = server(json!({"/apis": listed}));
    let result = client.discover(&kind).await;
    assert!(
        is_plain_404(&result),
        "the group is listed, but its resources return 404: {result:?}"
    );
    let resources = resources("apps/v1", &[("deployments", "Deployment", &["get"])]);
    let client = server(json!({"/apis/apps/v1": resources}));
    assert!(matches!(client.discover(&kind).await, Ok(Some(_))));
    let object = client.get::<Deployment>(&key).await;
    assert!(
        is_plain_404(&object),
        "the kind exists, and the 404 does not name the object: {object:?}"
    );
    let subresource = client.status().get::<Deployment>(&key).await;
    assert!(
        is_kind_missing(&subresource),
        "the kind has no such subresource: {subresource:?}"
    );
    assert!(
        subresource
            .expect_err("missing")
            .to_string()
            .contains("apps/v1 Deployment/status")
    );
}

#[tokio::test]
async fn a_core_kind_is_missing_only_if_discovery_lists_the_versions() {
    let later = GroupVersionKind::gvk("", "v2", "ConfigMap");
    let versions =
        json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []});
    let client = server(json!({"/api": versions}));
    assert!(matches!(client.discover(&later).await, Ok(None)));
    let result = client.discover(&ConfigMap::static_gvk()).await;
    assert!(is_plain_404(&result), "{result:?}");
}

/// `OpenShift` has such a resource: `processedtemplates` supports only `create`.
#[tokio::test]
async fn discovery_prefers_the_resource_that_can_be_read() -> anyhow::Result<()> {
    const GROUP: &str = "template.openshift.io/v1";
    type Listed<'a> = (&'a str, &'a str, &'a [&'a str]);
    const CREATE_ONLY: Listed<'_> = ("processedtemplates", "Template", &["create"]);
    const READABLE: Listed<'_> = (
        "templates",
        "Template",
        &["create", "delete", "get", "list", "watch"],
    );
    const ALSO_READABLE: Listed<'_> = ("moretemplates", "Template", &["get"]);
    const ALSO_CREATE_ONLY: Listed<'_> = ("othertemplates", "Template", &["create"]);
    let kind = GroupVersionKind::gvk("template.openshift.io", "v1", "Template");
    let plural = async |of: &[Listed<'_>]| {
        let client = server(json!({"/apis/template.openshift.io/v1": resources(GROUP, of)}));
        client
            .discover(&kind)
            .await
            .map(|plural| plural.map(|plural| plural.resource.plural))
    };
    for of in [[CREATE_ONLY, READABLE], [READABLE, CREATE_ONLY]] {
        assert_eq!(plural(&of).await?.as_deref(), Some("templates"));
    }
    assert_eq!(
        plural(&[CREATE_ONLY]).await?.as_deref(),
        Some("processedtemplates"),
        "the only resource of the kind"
    );
    for (of, named) in [
        (
            &[CREATE_ONLY, READABLE, ALSO_READABLE][..],
            "templates, moretemplates",
        ),
        (
            &[CREATE_ONLY, ALSO_CREATE_ONLY],
            "processedtemplates, othertemplates",
        ),
    ] {
        let error = plural(of).await.expect_err("ambiguous");
        assert!(
            matches!(error, Error::AmbiguousKind { .. }) && !error.is_kind_not_found(),
            "{error}"
        );
        assert!(
            error.to_string().contains(named) && error.to_string().contains(GROUP),
            "{error}"
        );
    }

    let object = json!({"apiVersion": GROUP, "kind": "Template", "metadata": {"namespace": "shop", "name": "web"}});
    let client = server(json!({
        "/apis/template.openshift.io/v1": resources(GROUP, &[CREATE_ONLY, READABLE]),
        "/apis/template.openshift.io/v1/namespaces/shop/templates/web": object,
    }));
    assert!(
        client
            .dynamic(&kind)
            .get(&ObjectKey::new("shop", "web"))
            .await?
            .is_some()
    );
    Ok(())
}
