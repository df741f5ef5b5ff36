//! Warmup of the registry at the start.

use super::{
    fixture::{Fixture, Running, discovered},
    proxy::Proxy,
};
use crate::support::{Answer, Extension, FakeExtension, RequestGroup};
use std::time::Duration;
use steersman::testing::{Env, TestServer};
use steersman_controllers::extension_config::{Options, WarmupPolicy};
use tokio::time::timeout;

fn start(fixture: &Fixture, env: &Env, warmup: WarmupPolicy) -> anyhow::Result<Running> {
    let options = Options {
        warmup,
        ..Options::default()
    };
    fixture.start_with(env.client()?, options)
}

steersman::env_test! {
    async fn the_registry_has_all_handlers_when_it_becomes_ready(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let [one, two] = [Extension::start().await?, Extension::start().await?];
        fixture.write_secret("two", &[("ca.crt", two.endpoint().ca_pem.as_bytes())]).await?;
        fixture.create("one", &one.endpoint()).await?;
        fixture.create_annotated("two", &two.endpoint()).await?;
        let running = start(&fixture, &env, WarmupPolicy::Strict)?;
        running.until_ready().await?;
        for name in ["one", "two"] {
            assert!(running.is_registered(&fixture.handler("create", name)), "{name}");
            assert_eq!(discovered(&fixture.get(name).await?), ("True".into(), String::new()));
        }
        running.stop().await
    }

    async fn a_strict_warmup_ends_the_process_with_the_error_of_the_extension(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let [healthy, mut dead] = [Extension::start().await?, Extension::start().await?];
        dead.stop().await;
        fixture.create("healthy", &healthy.endpoint()).await?;
        fixture.create("dead", &dead.endpoint()).await?;
        let options = Options {
            warmup_timeout: Some(Duration::from_secs(5)),
            ..Options::default()
        };
        let running = fixture.start_with(env.client()?, options)?;
        let runtime = running.runtime.clone();
        let ended = timeout(Duration::from_secs(30), running.task).await??;
        let error = format!("{:#}", ended.expect_err("the warmup fails"));
        for text in ["registry warmup timed out after 5s", "failed to discover extension", &fixture.name("dead")] {
            assert!(error.contains(text), "{text} in {error}");
        }
        assert!(!error.contains(&fixture.name("healthy")), "{error}");
        assert!(!runtime.registry().is_ready());
        assert_eq!(discovered(&fixture.get("healthy").await?).0, "True");
        assert_eq!(discovered(&fixture.get("dead").await?).0, "False");
        Ok(())
    }

    async fn a_strict_warmup_succeeds_once_the_extension_is_reachable(env: Env) -> anyhow::Result<()> {
        let (fixture, proxy) = (Fixture::new(&env).await?, Proxy::default());
        let late = FakeExtension::start(Answer { status: 503, ..Answer::handlers(&[]) }).await?;
        fixture.create("late", &late.endpoint()).await?;
        let running = fixture.start_with(proxy.client(env.client()?), Options::default())?;
        fixture.until_reason("late", "NotDiscovered").await?;
        assert!(!running.runtime.registry().is_ready());
        late.set_answer(Answer::handlers(&[("one", "BeforeClusterCreate")]));
        running.until_ready().await?;
        assert!(running.is_registered(&fixture.handler("one", "late")));
        running.stop().await
    }

    async fn a_lenient_warmup_leaves_the_failed_extensions_to_the_controller(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let healthy = Extension::start().await?;
        let late = FakeExtension::start(Answer { status: 503, ..Answer::handlers(&[]) }).await?;
        fixture.create("healthy", &healthy.endpoint()).await?;
        fixture.create("late", &late.endpoint()).await?;
        let running = start(&fixture, &env, WarmupPolicy::Lenient)?;
        running.until_ready().await?;
        let handler = fixture.handler("one", "late");
        assert!(running.is_registered(&fixture.handler("create", "healthy")));
        assert!(!running.is_registered(&handler));
        assert_eq!(discovered(&fixture.get("late").await?).0, "False");
        late.set_answer(Answer::handlers(&[("one", "BeforeClusterCreate")]));
        running.until_registered(&handler, true).await?;
        running.stop().await
    }

    async fn a_hundred_extensions_are_discovered_at_the_same_time(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let answer = Answer::handlers(&[("one", "BeforeClusterCreate")]).with(RequestGroup::new(100));
        let extensions = FakeExtension::start_many(100, &answer).await?;
        for (index, extension) in extensions.iter().enumerate() {
            fixture.create(&format!("extension{index}"), &extension.endpoint()).await?;
        }
        let running = fixture.start_with(env.client()?, Options::default())?;
        // A discovery fails after ten seconds, and a warmup after one minute: no extension answers
        // unless most of them are called at the same time.
        running.until_ready().await?;
        for index in 0..100 {
            let name = format!("extension{index}");
            assert!(running.is_registered(&fixture.handler("one", &name)));
            assert_eq!(discovered(&fixture.get(&name).await?).0, "True");
        }
        running.stop().await
    }
}
