//! Number of writes of the controller.

use super::{
    fixture::{Fixture, discovered},
    proxy::{Call, Proxy},
};
use crate::support::{Answer, Extension, FakeExtension};
use serde_json::json;
use steersman::testing::Env;

fn texts(calls: &[Call]) -> Vec<String> {
    let text = |call: &Call| {
        let kind = if call.path.ends_with("/status") {
            "status"
        } else {
            "object"
        };
        format!("{} {kind}", call.method)
    };
    calls.iter().map(text).collect()
}

steersman::env_test! {
    async fn a_new_object_takes_three_writes_and_then_none(env: Env) -> anyhow::Result<()> {
        let (fixture, proxy) = (Fixture::new(&env).await?, Proxy::default());
        let extension = Extension::start().await?;
        fixture.write_secret("ca", &[("ca.crt", extension.endpoint().ca_pem.as_bytes())]).await?;
        let running = fixture.start_behind(&env, &proxy).await?;
        fixture.create_annotated("ca", &extension.endpoint()).await?;
        fixture.until_reason("ca", "Discovered").await?;
        running.manager.wait_queues_empty().await;
        let successes = running.reconciles("success");
        fixture.touch("ca", "1").await?;
        running.until_more("success", successes).await?;
        running.manager.wait_queues_empty().await;
        running.stop().await?;

        let writes = proxy.writes();
        assert_eq!(texts(&writes), ["PATCH status", "PATCH object", "PATCH status"], "{writes:?}");
        let conditions = |call: &Call| {
            let conditions = call.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().map(|it| it["type"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(conditions(&writes[0]), ["Paused"]);
        let injected = json!({"spec": {"clientConfig": {"caBundle": extension.endpoint().ca_bundle()}}});
        assert_eq!(writes[1].body, injected);
        assert_eq!(conditions(&writes[2]), ["Discovered", "Paused"]);
        let status = &writes[2].body["status"];
        assert_eq!(status["handlers"][0]["name"], fixture.handler("create", "ca"));
        assert_eq!(status["deprecated"]["v1beta1"]["conditions"][0]["type"], "Discovered");
        for condition in status["conditions"].as_array().expect("conditions") {
            assert_eq!(condition["observedGeneration"], 2, "{condition}");
        }
        Ok(())
    }

    async fn another_order_of_the_same_handlers_is_not_written(env: Env) -> anyhow::Result<()> {
        let (fixture, proxy) = (Fixture::new(&env).await?, Proxy::default());
        let (one, two) = (("one", "BeforeClusterCreate"), ("two", "BeforeClusterDelete"));
        let extension = FakeExtension::start(Answer::handlers(&[one, two])).await?;
        let running = fixture.start_behind(&env, &proxy).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        running.until_settled(&fixture, "mine", "one").await?;
        let (writes, successes) = (proxy.writes().len(), running.reconciles("success"));
        extension.set_answer(Answer::handlers(&[two, one]));
        fixture.touch("mine", "1").await?;
        running.until_more("success", successes).await?;
        running.manager.wait_queues_empty().await;
        running.stop().await?;
        assert_eq!(proxy.writes().len(), writes, "{:?}", proxy.writes());
        Ok(())
    }

    async fn an_unchanged_failure_is_written_once(env: Env) -> anyhow::Result<()> {
        let (fixture, proxy) = (Fixture::new(&env).await?, Proxy::default());
        let mut dead = Extension::start().await?;
        dead.stop().await;
        let refusing = FakeExtension::start(Answer { status: 500, ..Answer::handlers(&[]) }).await?;
        let untrusted = FakeExtension::start(Answer::handlers(&[])).await?;
        let mut endpoint = untrusted.endpoint();
        endpoint.ca_pem = refusing.endpoint().ca_pem;
        let running = fixture.start_behind(&env, &proxy).await?;
        fixture.create("dead", &dead.endpoint()).await?;
        fixture.create("refusing", &refusing.endpoint()).await?;
        fixture.create("untrusted", &endpoint).await?;
        fixture.create_annotated("no-secret", &endpoint).await?;
        let names = ["dead", "refusing", "untrusted", "no-secret"];
        let mut messages = Vec::new();
        for name in names {
            let config = fixture.until(name, |it| it.status.as_ref().is_some_and(|it| it.conditions.len() == 2)).await?;
            messages.push((discovered(&config), config.metadata.resource_version));
        }
        // Waits until each object was retried at least twice.
        let errors = running.reconciles("error");
        running.until_more("error", errors + 8).await?;
        running.stop().await?;
        for (name, (before, version)) in names.iter().zip(messages) {
            let config = fixture.get(name).await?;
            assert_eq!(discovered(&config), before);
            assert_eq!(config.metadata.resource_version, version, "{name}");
        }
        assert_eq!(texts(&proxy.writes()), ["PATCH status"; 8]);
        Ok(())
    }
}
