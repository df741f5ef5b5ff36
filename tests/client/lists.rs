//! Tests of live lists and of `delete_collection`.

use super::support::{config_map, live};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::client::Body;
use serde_json::json;
use std::sync::{Arc, Mutex};
use steersman::{
    cache::{Cache, CacheOptions, Query},
    client::{Client, Error},
    object::{Metadata, ObjectKey},
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;

const LISTS: &str = "list configmaps";

fn names(maps: &[Arc<ConfigMap>]) -> Vec<&str> {
    maps.iter()
        .filter_map(|map| map.metadata.name.as_deref())
        .collect()
}

async fn create_all(client: &Client, namespace: &str, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        client.create(&config_map(namespace, name, "blue")).await?;
    }
    Ok(())
}

steersman::env_test! {
    async fn a_live_list_applies_the_query(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        create_all(&client, &namespace, &["c", "a", "b"]).await?;
        let query = || Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app in (a,b,c)").expect("labels");
        let all = client.list(&query().sorted()).await?;
        assert_eq!(names(&all), ["a", "b", "c"]);
        assert_eq!(*all[1], *client.get(&ObjectKey::new(&namespace, "b")).await?.expect("exists"));
        assert_eq!(names(&client.list(&query().sorted().limit(2)).await?), ["a", "b"]);
        assert!(client.list(&query().limit(0)).await?.is_empty());
        assert_eq!(names(&client.list(&query().labels("app=c")?).await?), ["c"]);
        let everywhere = client.list(&Query::<ConfigMap>::default().labels("app=c")?).await?;
        assert!(everywhere.iter().any(|map| map.metadata.namespace.as_deref() == Some(&namespace)));
        let metadata = Query::<Metadata<ConfigMap>>::default().namespace(Some(&namespace)).labels("app=a")?;
        let metadata = client.list(&metadata).await?;
        assert_eq!(metadata[0].types.as_ref().map(|types| &*types.kind), Some("ConfigMap"));
        Ok(())
    }

    async fn delete_collection_deletes_the_selected_objects(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        create_all(&client, &namespace, &["a", "b", "c"]).await?;
        let query = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app in (a,b,c)")?;
        client.dry_run().delete_collection(&query.clone()).await?;
        assert_eq!(client.list(&query).await?.len(), 3, "a dry run deletes nothing");
        client.delete_collection(&query.clone().labels("app!=b,app")?).await?;
        assert_eq!(names(&client.list(&query).await?), ["b"]);

        let nowhere = client.delete_collection(&Query::<ConfigMap>::default()).await;
        assert!(matches!(nowhere, Err(Error::NoNamespace { .. })), "{nowhere:?}: deletion in all namespaces is not allowed");
        let some = client.delete_collection(&query.clone().limit(1)).await;
        assert!(matches!(some, Err(Error::Unsupported { .. })), "{some:?}: a deletion cannot have a limit");
        assert_eq!(client.list(&query).await?.len(), 1);
        client.namespace(&namespace).delete_collection(&Query::<ConfigMap>::default().labels("app")?).await?;
        assert!(client.list(&query).await?.is_empty());
        client.delete_collection(&Query::<Node>::default().labels("app=none-of-these")?).await?;
        Ok(())
    }
}

fn embedded() -> anyhow::Result<(Embedded, Client)> {
    let server = Embedded::start()?;
    let client = Client::new(server.client()?)?.namespace("default");
    Ok((server, client))
}

#[tokio::test]
async fn a_long_list_is_read_in_pages() -> anyhow::Result<()> {
    let (server, client) = embedded()?;
    let names: Vec<_> = (0..1001).map(|number| format!("map-{number}")).collect();
    create_all(
        &client,
        "default",
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await?;
    let (journal, query) = (
        server.server().journal(),
        Query::<ConfigMap>::default().labels("app")?,
    );
    assert_eq!(client.list(&query).await?.len(), 1001);
    assert_eq!(journal.count(LISTS), 3);
    assert_eq!(client.list(&query.clone().limit(501)).await?.len(), 501);
    assert_eq!(journal.count(LISTS), 5, "no pages beyond the limit");

    let rule = server
        .server()
        .faults()
        .add(Fault::on(LISTS).after(1).status(410).times(1));
    let list = client.list(&query.sorted()).await?;
    assert_eq!((rule.hits(), journal.count(LISTS)), (1, 8));
    let keys: Vec<_> = list.iter().map(|map| ObjectKey::of(&**map)).collect();
    assert!(
        keys.len() == 1001 && keys.is_sorted_by(|a, b| a < b),
        "a restarted list has no duplicates"
    );
    Ok(())
}

/// The server returns a continue token with every list and rejects all of them.
#[tokio::test]
async fn rejected_continue_tokens_fall_back_to_one_unpaged_list() -> anyhow::Result<()> {
    let queries = Arc::new(Mutex::new(Vec::new()));
    let service = tower::service_fn({
        let queries = queries.clone();
        move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let (code, body) = match &query {
                next if next.contains("continue=") => {
                    (410, json!({"code": 410, "message": "too old"}))
                }
                _ => (200, json!({"metadata": {"continue": "x"}, "items": []})),
            };
            let mut queries = queries.lock().expect("not poisoned");
            queries.push(query);
            assert!(queries.len() < 100, "the list does not end");
            let response = http::Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()));
            async { response }
        }
    });
    let client = Client::new(kube::Client::new(service, "default"))?;
    let error = client
        .list(&Query::<ConfigMap>::default())
        .await
        .expect_err("the list does not end");
    assert_eq!(error.to_string(), "too old");
    let queries = queries.lock().expect("not poisoned");
    assert_eq!(
        *queries,
        ["limit=500", "limit=500&continue=x", "", "continue=x"]
    );
    Ok(())
}

/// Returns the result of a live list, and the queries that the server received.
///
/// `page` is called with the number of the request and its query.
async fn list_from(
    page: impl Fn(usize, &str) -> serde_json::Value + Send + 'static,
) -> (Result<Vec<String>, Error>, Vec<String>) {
    let queries = Arc::new(Mutex::new(Vec::new()));
    let service = tower::service_fn({
        let queries = queries.clone();
        move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let mut queries = queries.lock().expect("not poisoned");
            assert!(queries.len() < 1000, "the list does not end");
            let response = http::Response::new(Body::from(
                page(queries.len(), &query).to_string().into_bytes(),
            ));
            queries.push(query);
            async { Ok::<_, std::convert::Infallible>(response) }
        }
    });
    let client = Client::new(kube::Client::new(service, "default")).expect("a ready client");
    let listed = client.list(&Query::<ConfigMap>::default()).await;
    let queries = queries.lock().expect("not poisoned").clone();
    (
        listed.map(|maps| names(&maps).into_iter().map(str::to_owned).collect()),
        queries,
    )
}

fn assert_endless(listed: Result<Vec<String>, Error>, expected: &str) {
    let error = listed.expect_err("the list does not end");
    assert!(
        matches!(error, Error::EndlessList { reason, .. } if reason.contains(expected)),
        "{error}"
    );
}

fn page_of(token: &str, names: &[&str]) -> serde_json::Value {
    let item = |name: &&str| json!({"metadata": {"namespace": "default", "name": name}});
    json!({"metadata": {"continue": token}, "items": names.iter().map(item).collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_live_list_whose_continue_token_repeats_is_an_error() {
    let (listed, queries) = list_from(|number, _| page_of("x", &[&format!("map-{number}")])).await;
    assert_endless(listed, "repeats its continue token");
    assert_eq!(
        queries,
        ["limit=500", "limit=500&continue=x", "", "continue=x"]
    );
}

#[tokio::test]
async fn a_live_list_whose_pages_repeat_is_an_error() {
    let (listed, queries) =
        list_from(|number, _| page_of(&format!("token-{number}"), &["a", "b"])).await;
    assert_endless(listed, "sends the same page again");
    assert_eq!(queries.len(), 4);
}

#[tokio::test]
async fn a_live_list_of_empty_pages_is_an_error() {
    let (listed, queries) = list_from(|number, _| page_of(&format!("token-{number}"), &[])).await;
    assert_endless(listed, "without objects");
    assert_eq!(queries.len(), 2 * 101);
}

#[tokio::test]
async fn a_live_list_that_does_not_end_is_requested_once_without_pages() -> anyhow::Result<()> {
    let (listed, queries) = list_from(|_, query| match query {
        "" => page_of("", &["a", "b"]),
        _ => page_of("x", &["a"]),
    })
    .await;
    assert_eq!(listed?, ["a", "b"]);
    assert_eq!(queries, ["limit=500", "limit=500&continue=x", ""]);
    Ok(())
}

#[tokio::test]
async fn a_live_list_by_index_is_an_error() -> anyhow::Result<()> {
    let (server, client) = embedded()?;
    let maps = Cache::new(server.client()?, CacheOptions::default())?.informer::<ConfigMap>()?;
    let index = maps.index(|map: &ConfigMap| map.metadata.name.iter().cloned().collect());
    let query = Query::default().index(&index, "colors".to_owned());
    for result in [
        client.list(&query).await.map(drop),
        client.delete_collection(&query).await,
    ] {
        assert!(
            result
                .expect_err("unsupported")
                .to_string()
                .contains("only a cache lists by an index")
        );
    }
    assert_eq!(server.server().journal().count("* *"), 0);
    Ok(())
}
