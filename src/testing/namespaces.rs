//! Namespaces of tests. The server generates their names, so they are unique.

use super::Error;
use kube_client::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};

fn api(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("", "v1", "Namespace");
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk_with_plural(&kind, "namespaces"),
    )
}

pub(super) async fn create(client: &Client, prefix: &str) -> Result<String, Error> {
    let api = api(client);
    let error = || Error::request(format!("create a namespace {prefix}-xxxxx"));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    let mut namespace = DynamicObject::new("", &kind);
    namespace.metadata.name = None;
    namespace.metadata.generate_name = Some(format!("{prefix}-"));
    let made = api
        .create(&PostParams::default(), &namespace)
        .await
        .map_err(error())?;
    Ok(made.metadata.name.unwrap_or_default())
}

pub(super) async fn delete(client: &Client, names: &[String]) -> Result<(), Error> {
    let api = api(client);
    for name in names {
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted
            .map(drop)
            .map_err(Error::request(format!("delete the namespace {name}")))?;
    }
    Ok(())
}
