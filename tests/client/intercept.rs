//! Tests of interceptors that replace or drop responses.

use super::support::{Running, cache_options, color, config_map, live};
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v1::Scale, core::v1::ConfigMap};
use kube_core::{GroupVersionKind, Status, response::reason};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use steersman::{
    cache::Query,
    client::{Answer, Call, Client, Interceptor, Next, Patch, Result, Verb},
    object::{Metadata, ObjectKey},
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;
use tokio::time::Instant;

/// Records every call, and fails the second write.
#[derive(Clone, Default)]
struct RecordCallsAndFailSecondWrite(Arc<Mutex<Vec<String>>>);

impl Interceptor for RecordCallsAndFailSecondWrite {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        let is_second = {
            let mut calls = self.0.lock().expect("not poisoned");
            calls.push(call.to_string());
            let writes = calls
                .iter()
                .filter(|call| !call.starts_with("Get") && !call.starts_with("List"))
                .count();
            writes == 2 && !matches!(call.verb, Verb::Get | Verb::List)
        };
        if is_second {
            return Err(Status::failure("not now", reason::CONFLICT)
                .with_code(409)
                .into());
        }
        next.run().await
    }
}

/// Writes with another client before each update.
struct WriteBeforeUpdate(Client);

impl Interceptor for WriteBeforeUpdate {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        if call.verb == Verb::Update {
            let label = Patch::Merge(serde_json::json!({"metadata": {"labels": {"by": "other"}}}));
            self.0.patch::<ConfigMap>(call.key, &label).await?;
        }
        next.run().await
    }
}

/// Drops the responses to writes.
struct DropWriteResponses;

impl Interceptor for DropWriteResponses {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        let answer = next.run().await?;
        match call.verb {
            Verb::Get | Verb::List => Ok(answer),
            _ => Err(Status::failure("response dropped", reason::TIMEOUT)
                .with_code(504)
                .into()),
        }
    }
}

/// Answers every call without the server. The color is green.
struct AnswerEveryCall;

impl Interceptor for AnswerEveryCall {
    async fn intercept(&self, call: &Call<'_>, _: Next<'_>) -> Result<Answer> {
        let color =
            json!({"metadata": {"namespace": "n", "name": "color"}, "data": {"color": "green"}});
        Ok(match call.verb {
            Verb::Get if call.subresource == Some("scale") => {
                json!({"spec": {"replicas": 7}}).into()
            }
            Verb::Get if call.key.name() == "missing" => Value::Null.into(),
            Verb::List => json!([color]).into(),
            Verb::Delete => json!({}).into(),
            _ => color.into(),
        })
    }
}

/// Changes responses, and records what is sent.
#[derive(Clone, Default)]
struct ChangeResponses(Arc<Mutex<Vec<Value>>>);

impl Interceptor for ChangeResponses {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        self.0
            .lock()
            .expect("not poisoned")
            .push(call.body["data"]["color"].clone());
        let mut answer = next.run().await?.json();
        match answer.as_array_mut() {
            Some(items) => items
                .iter_mut()
                .for_each(|item| item["data"]["color"] = json!("red")),
            None => answer["data"]["color"] = json!("red"),
        }
        Ok(answer.into())
    }
}

steersman::env_test! {
    async fn an_interceptor_receives_every_call_and_can_answer_it(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let cache = Running::new(&env, cache_options(&[&namespace]))?;
        let _maps = cache.cache.informer::<ConfigMap>()?;
        cache.cache.await_synced().await?;
        let seen = RecordCallsAndFailSecondWrite::default();
        let client = client.intercepted(seen.clone()).with_cache(cache.cache.clone()).namespace(&namespace);
        let key = ObjectKey::cluster_scoped("colors");
        let made = client.create(&config_map("", "colors", "blue")).await?;
        let error = client.dry_run().update(&made).await.expect_err("the second call fails");
        assert!(error.is_conflict() && error.to_string() == "not now", "{error}");
        client.status().patch::<ConfigMap>(&key, &Patch::Merge(serde_json::json!({}))).await.ok();
        client.get::<ConfigMap>(&key).await?;
        client.live().list(&Query::<ConfigMap>::default()).await?;
        assert!(client.delete::<ConfigMap>(&key).await?);
        client.delete_collection(&Query::<ConfigMap>::default()).await?;
        let expected = ["Create {}/colors", "Update {}/colors", "Patch {}/colors status", "Get {}/colors", "List {}/",
            "Delete {}/colors", "DeleteCollection {}/"].map(|call| call.replacen(' ', " ConfigMap ", 1).replace("{}", &namespace));
        assert_eq!(*seen.0.lock().expect("not poisoned"), expected);
        cache.stop().await
    }

    async fn an_interceptor_can_write_before_the_call(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let made = client.create(&config_map(&namespace, "colors", "blue")).await?;
        let error = client.intercepted(WriteBeforeUpdate(client.clone())).update(&made).await.expect_err("a stale resource version");
        assert!(error.is_conflict(), "{error}");
        Ok(())
    }

    async fn an_interceptor_can_drop_the_response_of_a_write(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let client_without_responses = client.intercepted(DropWriteResponses);
        let error = client_without_responses.create(&config_map(&namespace, "colors", "blue")).await.expect_err("the response is dropped");
        assert_eq!(error.to_string(), "response dropped");
        let key = ObjectKey::new(&namespace, "colors");
        assert!(client_without_responses.get::<ConfigMap>(&key).await?.is_some(), "the object was created");
        let again = client_without_responses.create(&config_map(&namespace, "colors", "blue")).await.expect_err("the object exists already");
        assert!(again.is_already_exists(), "{again}");
        client_without_responses.delete::<ConfigMap>(&key).await.expect_err("the response is dropped");
        assert!(!client.delete::<ConfigMap>(&key).await?, "the object was deleted");
        Ok(())
    }

    async fn an_interceptor_can_change_responses(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let cache = Running::new(&env, cache_options(&[&namespace]))?;
        let maps = cache.cache.informer::<ConfigMap>()?;
        cache.cache.await_synced().await?;
        let painter = ChangeResponses::default();
        let painted = client.with_cache(cache.cache.clone()).intercepted(painter.clone());
        let made = painted.create(&config_map(&namespace, "colors", "blue")).await?;
        let key = ObjectKey::of(&made);
        let query = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app")?;
        assert_eq!(color(&made), Some("red"));
        for reader in [painted.clone(), painted.live()] {
            let got = reader.get::<ConfigMap>(&key).await?.expect("the object exists");
            assert_eq!((color(&got), &got.metadata.uid), (Some("red"), &made.metadata.uid));
            assert_eq!(reader.list(&query).await?.iter().map(|map| color(map)).collect::<Vec<_>>(), [Some("red")]);
        }
        let cached = maps.get(&key)?.expect("the client has waited for it");
        assert_eq!(color(&cached), Some("blue"), "only the response was changed");
        assert_eq!(painter.0.lock().expect("not poisoned")[..3], [json!("blue"), Value::Null, Value::Null]);
        let seen = client.with_cache(cache.cache.clone()).intercepted(RecordCallsAndFailSecondWrite::default());
        assert!(Arc::ptr_eq(&cached, &seen.get::<ConfigMap>(&key).await?.expect("exists")), "an unchanged response is shared");
        cache.stop().await
    }
}

#[tokio::test]
async fn an_interceptor_can_replace_the_server() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let client = Client::new(server.client()?)?.intercepted(AnswerEveryCall);
    let key = ObjectKey::new("n", "color");
    let is_green = |map: &ConfigMap| color(map) == Some("green");
    assert!(is_green(
        &client.create(&config_map("n", "color", "blue")).await?
    ));
    assert!(is_green(
        &client.update(&config_map("n", "color", "blue")).await?
    ));
    assert!(is_green(
        &client.patch(&key, &Patch::Merge(json!({}))).await?
    ));
    assert!(
        client
            .get::<ConfigMap>(&key)
            .await?
            .is_some_and(|map| is_green(&map))
    );
    assert!(
        client
            .get::<ConfigMap>(&ObjectKey::new("n", "missing"))
            .await?
            .is_none()
    );
    assert_eq!(client.list(&Query::<ConfigMap>::default()).await?.len(), 1);
    let metadata = client
        .get::<Metadata<ConfigMap>>(&key)
        .await?
        .expect("an answer");
    assert_eq!(metadata.metadata.name.as_deref(), Some("color"));
    let scale = client
        .subresource_of::<Deployment>(&key, "scale")
        .get::<Scale>()
        .await?
        .expect("an answer");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(7));
    assert!(client.delete::<ConfigMap>(&key).await?);
    let error = client
        .intercepted(AnswerListWithObject)
        .list(&Query::<ConfigMap>::default())
        .await
        .expect_err("not an array");
    assert!(error.to_string().contains("an array"), "{error}");
    assert_eq!(server.server().journal().count("* *"), 0, "no request");
    Ok(())
}

/// Answers every call with 404.
struct AnswerNotFound;

impl Interceptor for AnswerNotFound {
    async fn intercept(&self, _: &Call<'_>, _: Next<'_>) -> Result<Answer> {
        Err(Status::failure("not found", reason::NOT_FOUND)
            .with_code(404)
            .into())
    }
}

#[tokio::test]
async fn a_404_of_an_interceptor_means_that_the_object_is_missing() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let cache = Running::new(&env, cache_options(&["default"]))?;
    let _maps = cache.cache.informer::<ConfigMap>()?;
    cache.cache.await_synced().await?;
    let client = Client::new(env.client()?)?;
    client
        .create(&config_map("default", "color", "blue"))
        .await?;
    let key = ObjectKey::new("default", "color");
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let live = client.intercepted(AnswerNotFound);
    for client in [live.clone(), live.with_cache(cache.cache.clone())] {
        assert!(client.get::<ConfigMap>(&key).await?.is_none());
        assert!(client.dynamic(&kind).get(&key).await?.is_none());
        assert!(!client.delete::<ConfigMap>(&key).await?);
    }
    assert!(
        live.subresource_of::<Deployment>(&key, "scale")
            .get::<Scale>()
            .await?
            .is_none()
    );
    assert!(
        live.update(&config_map("default", "color", "red"))
            .await
            .is_err_and(|error| error.is_not_found())
    );
    assert!(
        client.get::<ConfigMap>(&key).await?.is_some(),
        "the object exists"
    );
    cache.stop().await
}

/// Answers a list with an object instead of an array.
struct AnswerListWithObject;

impl Interceptor for AnswerListWithObject {
    async fn intercept(&self, _: &Call<'_>, _: Next<'_>) -> Result<Answer> {
        Ok(json!({"items": []}).into())
    }
}

/// The read does not wait for a write without a response. A retry reads it.
#[tokio::test(start_paused = true)]
async fn a_read_does_not_wait_for_a_write_without_a_response() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let Env::Embedded(server) = &env else {
        unreachable!("it is embedded")
    };
    server
        .server()
        .faults()
        .add(Fault::on("watch configmaps").drop_watch_after(1).times(1));
    server
        .server()
        .faults()
        .add(Fault::on("watch configmaps").delay(Duration::from_secs(3)));
    let cache = Running::new(&env, cache_options(&["default"]))?;
    let _maps = cache.cache.informer::<ConfigMap>()?;
    cache.cache.await_synced().await?;
    let client = Client::new(env.client()?)?.with_cache(cache.cache.clone());
    let key = ObjectKey::new("default", "colors");
    client
        .intercepted(DropWriteResponses)
        .create(&config_map("default", "colors", "blue"))
        .await
        .expect_err("the response is dropped");
    let begun = Instant::now();
    assert!(client.get::<ConfigMap>(&key).await?.is_none());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    client
        .update(&config_map("default", "colors", "red"))
        .await?;
    assert_eq!(
        client
            .get::<ConfigMap>(&key)
            .await?
            .as_deref()
            .and_then(color),
        Some("red")
    );
    assert!(
        begun.elapsed() > Duration::ZERO,
        "the read waits for the acknowledged write"
    );
    cache.stop().await
}
