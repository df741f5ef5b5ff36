//! Who answers in the server's place, or keeps its answer to himself.

use super::support::{Running, door, live, map, of};
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

/// Notes every call, and fails the second write.
#[derive(Clone, Default)]
struct SecondWriteFails(Arc<Mutex<Vec<String>>>);

impl Interceptor for SecondWriteFails {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        let is_second = {
            let mut calls = self.0.lock().expect("nobody panics");
            calls.push(call.to_string());
            let writes = calls.iter().filter(|call| !call.starts_with("Get") && !call.starts_with("List")).count();
            writes == 2 && !matches!(call.verb, Verb::Get | Verb::List)
        };
        if is_second {
            return Err(Status::failure("not now", reason::CONFLICT).with_code(409).into());
        }
        next.run().await
    }
}

/// Writes through another client before each update.
struct SomebodyElse(Client);

impl Interceptor for SomebodyElse {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        if call.verb == Verb::Update {
            let label = Patch::Merge(serde_json::json!({"metadata": {"labels": {"by": "somebody"}}}));
            self.0.patch::<ConfigMap>(call.key, &label).await?;
        }
        next.run().await
    }
}

/// Loses the answers to writes.
struct Deaf;

impl Interceptor for Deaf {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        let answer = next.run().await?;
        match call.verb {
            Verb::Get | Verb::List => Ok(answer),
            _ => Err(Status::failure("nothing was heard", reason::TIMEOUT).with_code(504).into()),
        }
    }
}

/// Answers everything by itself: there is a green door.
struct Painted;

impl Interceptor for Painted {
    async fn intercept(&self, call: &Call<'_>, _: Next<'_>) -> Result<Answer> {
        let door = json!({"metadata": {"namespace": "n", "name": "door"}, "data": {"door": "green"}});
        Ok(match call.verb {
            Verb::Get if call.subresource == Some("scale") => json!({"spec": {"replicas": 7}}).into(),
            Verb::Get if call.key.name() == "window" => Value::Null.into(),
            Verb::List => json!([door]).into(),
            Verb::Delete => json!({}).into(),
            _ => door.into(),
        })
    }
}

/// Paints what comes out of the server, and notes what goes in.
#[derive(Clone, Default)]
struct Painter(Arc<Mutex<Vec<Value>>>);

impl Interceptor for Painter {
    async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
        self.0.lock().expect("nobody panics").push(call.body["data"]["door"].clone());
        let mut answer = next.run().await?.json();
        match answer.as_array_mut() {
            Some(items) => items.iter_mut().for_each(|item| item["data"]["door"] = json!("red")),
            None => answer["data"]["door"] = json!("red"),
        }
        Ok(answer.into())
    }
}

steersman::env_test! {
    async fn an_interceptor_sees_every_call_and_may_answer_it(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let cache = Running::new(&env, of(&[&namespace]))?;
        let _maps = cache.cache.informer::<ConfigMap>()?;
        cache.cache.await_synced().await?;
        let seen = SecondWriteFails::default();
        let client = client.intercepted(seen.clone()).with_cache(cache.cache.clone()).namespace(&namespace);
        let key = ObjectKey::cluster_scoped("colors");
        let made = client.create(&map("", "colors", "blue")).await?;
        let error = client.dry_run().update(&made).await.expect_err("it is the second");
        assert!(error.is_conflict() && error.to_string() == "not now", "{error}");
        client.status().patch::<ConfigMap>(&key, &Patch::Merge(serde_json::json!({}))).await.ok();
        client.get::<ConfigMap>(&key).await?;
        client.live().list(&Query::<ConfigMap>::default()).await?;
        assert!(client.delete::<ConfigMap>(&key).await?);
        client.delete_collection(&Query::<ConfigMap>::default()).await?;
        let expected = ["Create {}/colors", "Update {}/colors", "Patch {}/colors status", "Get {}/colors", "List {}/",
            "Delete {}/colors", "DeleteCollection {}/"].map(|call| call.replacen(' ', " ConfigMap ", 1).replace("{}", &namespace));
        assert_eq!(*seen.0.lock().expect("nobody panics"), expected);
        cache.stop().await
    }

    async fn an_interceptor_may_do_something_first(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let made = client.create(&map(&namespace, "colors", "blue")).await?;
        let error = client.intercepted(SomebodyElse(client.clone())).update(&made).await.expect_err("it is late");
        assert!(error.is_conflict(), "{error}");
        Ok(())
    }

    async fn an_interceptor_may_lose_the_answer_of_what_was_done(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let deaf = client.intercepted(Deaf);
        let error = deaf.create(&map(&namespace, "colors", "blue")).await.expect_err("it is not heard");
        assert_eq!(error.to_string(), "nothing was heard");
        let key = ObjectKey::new(&namespace, "colors");
        assert!(deaf.get::<ConfigMap>(&key).await?.is_some(), "it was made all the same");
        let again = deaf.create(&map(&namespace, "colors", "blue")).await.expect_err("it is there");
        assert!(again.is_already_exists(), "{again}");
        deaf.delete::<ConfigMap>(&key).await.expect_err("it is not heard");
        assert!(!client.delete::<ConfigMap>(&key).await?, "it was deleted all the same");
        Ok(())
    }

    async fn an_interceptor_sees_what_is_sent_and_may_change_what_comes_back(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let cache = Running::new(&env, of(&[&namespace]))?;
        let maps = cache.cache.informer::<ConfigMap>()?;
        cache.cache.await_synced().await?;
        let painter = Painter::default();
        let painted = client.with_cache(cache.cache.clone()).intercepted(painter.clone());
        let made = painted.create(&map(&namespace, "colors", "blue")).await?;
        let key = ObjectKey::of(&made);
        let query = Query::<ConfigMap>::default().namespace(Some(&namespace)).labels("app")?;
        assert_eq!(door(&made), Some("red"));
        for reader in [painted.clone(), painted.live()] {
            let got = reader.get::<ConfigMap>(&key).await?.expect("it was made");
            assert_eq!((door(&got), &got.metadata.uid), (Some("red"), &made.metadata.uid));
            assert_eq!(reader.list(&query).await?.iter().map(|map| door(map)).collect::<Vec<_>>(), [Some("red")]);
        }
        let kept = maps.get(&key)?.expect("the client has waited for it");
        assert_eq!(door(&kept), Some("blue"), "only the answer was changed");
        assert_eq!(painter.0.lock().expect("nobody panics")[..3], [json!("blue"), Value::Null, Value::Null]);
        let seen = client.with_cache(cache.cache.clone()).intercepted(SecondWriteFails::default());
        assert!(Arc::ptr_eq(&kept, &seen.get::<ConfigMap>(&key).await?.expect("it is there")), "as it was, it is shared");
        cache.stop().await
    }
}

#[tokio::test]
async fn an_interceptor_may_answer_everything_by_itself() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let client = Client::new(server.client()?)?.intercepted(Painted);
    let key = ObjectKey::new("n", "door");
    let is_green = |map: &ConfigMap| door(map) == Some("green");
    assert!(is_green(&client.create(&map("n", "door", "blue")).await?));
    assert!(is_green(&client.update(&map("n", "door", "blue")).await?));
    assert!(is_green(&client.patch(&key, &Patch::Merge(json!({}))).await?));
    assert!(client.get::<ConfigMap>(&key).await?.is_some_and(|map| is_green(&map)));
    assert!(client.get::<ConfigMap>(&ObjectKey::new("n", "window")).await?.is_none());
    assert_eq!(client.list(&Query::<ConfigMap>::default()).await?.len(), 1);
    let metadata = client.get::<Metadata<ConfigMap>>(&key).await?.expect("there is one");
    assert_eq!(metadata.metadata.name.as_deref(), Some("door"));
    let scale = client.subresource_of::<Deployment>(&key, "scale").get::<Scale>().await?.expect("there is one");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(7));
    assert!(client.delete::<ConfigMap>(&key).await?);
    let error = client.intercepted(Odd).list(&Query::<ConfigMap>::default()).await.expect_err("it is no list");
    assert!(error.to_string().contains("an array"), "{error}");
    assert_eq!(server.server().journal().count("* *"), 0, "nobody was asked");
    Ok(())
}

/// Says of everything that there is none.
struct Empty;

impl Interceptor for Empty {
    async fn intercept(&self, _: &Call<'_>, _: Next<'_>) -> Result<Answer> {
        Err(Status::failure("there is none", reason::NOT_FOUND).with_code(404).into())
    }
}

#[tokio::test]
async fn an_interceptor_that_answers_404_says_that_there_is_none() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let cache = Running::new(&env, of(&["default"]))?;
    let _maps = cache.cache.informer::<ConfigMap>()?;
    cache.cache.await_synced().await?;
    let client = Client::new(env.client()?)?;
    client.create(&map("default", "door", "blue")).await?;
    let key = ObjectKey::new("default", "door");
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let live = client.intercepted(Empty);
    for client in [live.clone(), live.with_cache(cache.cache.clone())] {
        assert!(client.get::<ConfigMap>(&key).await?.is_none());
        assert!(client.dynamic(&kind).get(&key).await?.is_none());
        assert!(!client.delete::<ConfigMap>(&key).await?);
    }
    assert!(live.subresource_of::<Deployment>(&key, "scale").get::<Scale>().await?.is_none());
    assert!(live.update(&map("default", "door", "red")).await.is_err_and(|error| error.is_not_found()));
    assert!(client.get::<ConfigMap>(&key).await?.is_some(), "it is there all the same");
    cache.stop().await
}

/// Answers a list with something else.
struct Odd;

impl Interceptor for Odd {
    async fn intercept(&self, _: &Call<'_>, _: Next<'_>) -> Result<Answer> {
        Ok(json!({"items": []}).into())
    }
}

/// As it is on a bad day: the read does not wait for a write that nobody knows of, and whoever tries again finds it.
#[tokio::test(start_paused = true)]
async fn a_read_does_not_wait_for_a_write_whose_answer_was_lost() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let Env::Embedded(server) = &env else { unreachable!("it is embedded") };
    server.server().faults().add(Fault::on("watch configmaps").drop_watch_after(1).times(1));
    server.server().faults().add(Fault::on("watch configmaps").delay(Duration::from_secs(3)));
    let cache = Running::new(&env, of(&["default"]))?;
    let _maps = cache.cache.informer::<ConfigMap>()?;
    cache.cache.await_synced().await?;
    let client = Client::new(env.client()?)?.with_cache(cache.cache.clone());
    let key = ObjectKey::new("default", "colors");
    client.intercepted(Deaf).create(&map("default", "colors", "blue")).await.expect_err("it is not heard");
    let begun = Instant::now();
    assert!(client.get::<ConfigMap>(&key).await?.is_none());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    client.update(&map("default", "colors", "red")).await?;
    assert_eq!(client.get::<ConfigMap>(&key).await?.as_deref().and_then(door), Some("red"));
    assert!(begun.elapsed() > Duration::ZERO, "it has waited for what it knows of");
    cache.stop().await
}
