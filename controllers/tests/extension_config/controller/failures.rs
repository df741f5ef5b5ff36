//! Failures of discovery.

use super::{
    fixture::{Fixture, Running, discovered, handlers},
    proxy::Proxy,
};
use crate::{
    client::{
        certificates::{Ca, Validity},
        raw_server::{RawServer, Reply},
    },
    support::{Answer, Endpoint, Extension, FakeExtension},
};
use serde_json::json;
use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};
use steersman::testing::Env;

/// Registers a handler `one` of the object `mine`.
async fn registered(env: &Env, proxy: &Proxy) -> anyhow::Result<(Fixture, FakeExtension, Running)> {
    let fixture = Fixture::new(env).await?;
    let extension =
        FakeExtension::start(Answer::handlers(&[("one", "BeforeClusterCreate")])).await?;
    let running = fixture.start_behind(env, proxy).await?;
    fixture.create("mine", &extension.endpoint()).await?;
    running.until_settled(&fixture, "mine", "one").await?;
    Ok((fixture, extension, running))
}

fn endpoint(server: &RawServer) -> Endpoint {
    Endpoint {
        url: server.url(),
        ca_pem: server.ca.clone(),
    }
}

/// Answers a discovery with the handler `one`.
fn one_handler() -> Reply {
    let hook = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": "BeforeClusterCreate",
    });
    Reply::handlers(json!([{"name": "one", "requestHook": hook}]))
}

steersman::env_test! {
    async fn an_unreachable_extension_is_reported_and_keeps_its_handlers(env: Env) -> anyhow::Result<()> {
        let (fixture, mut extension) = (Fixture::new(&env).await?, Extension::start().await?);
        let running = fixture.start(&env).await?;
        fixture.create("mine", &extension.endpoint()).await?;
        let handler = fixture.handler("create", "mine");
        running.until_registered(&handler, true).await?;
        extension.stop().await;
        fixture.touch("mine", "1").await?;
        let config = fixture.until_reason("mine", "NotDiscovered").await?;
        let (status, message) = discovered(&config);
        assert_eq!(status, "False");
        let start = format!("Error in discovery: failed to discover extension \"{}\": ", fixture.name("mine"));
        assert!(message.starts_with(&start), "{message}");
        assert_eq!(handlers(&config), [handler.as_str()]);
        assert!(running.is_registered(&handler));
        running.until_more("error", 0).await?;
        running.stop().await
    }

    async fn invalid_handlers_are_reported_and_the_earlier_ones_stay(env: Env) -> anyhow::Result<()> {
        let (fixture, extension, running) = registered(&env, &Proxy::default()).await?;
        extension.set_answer(Answer::handlers(&[
            ("two", "BeforeClusterCreate"), ("two", "BeforeClusterDelete"), ("Bad_Name", "BeforeClusterCreate"), ("odd", "Unknown"),
        ]));
        fixture.touch("mine", "1").await?;
        let config = fixture.until_reason("mine", "NotDiscovered").await?;
        let (_, message) = discovered(&config);
        for text in ["duplicate name for handler two found", "handler name Bad_Name is not valid", "is not in the Runtime SDK catalog"] {
            assert!(message.contains(text), "{text} in {message}");
        }
        let handler = fixture.handler("one", "mine");
        assert_eq!(handlers(&config), [handler.as_str()]);
        assert!(running.is_registered(&handler) && !running.is_registered(&fixture.handler("two", "mine")));
        running.stop().await
    }

    async fn time_limits_are_accepted_from_0_to_30_seconds(env: Env) -> anyhow::Result<()> {
        let (fixture, extension, running) = registered(&env, &Proxy::default()).await?;
        for (seconds, reason, stored) in [(31, "NotDiscovered", Some(10)), (30, "Discovered", Some(30)), (0, "Discovered", None)] {
            let hook = json!({"apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": "BeforeClusterCreate"});
            let handler = json!({"name": "one", "requestHook": hook, "timeoutSeconds": seconds});
            extension.set_answer(Answer::json(&json!({"status": "Success", "handlers": [handler]})));
            fixture.touch("mine", &seconds.to_string()).await?;
            let has_time = |config: &steersman_controllers::extension_config::ExtensionConfig| {
                config.status.as_ref().is_some_and(|it| it.handlers[0].timeout_seconds == stored)
            };
            fixture.until("mine", has_time).await?;
            let config = fixture.until_reason("mine", reason).await?;
            assert!(has_time(&config), "{seconds}");
            assert!(running.is_registered(&fixture.handler("one", "mine")));
        }
        running.stop().await
    }

    async fn a_failure_response_is_reported_with_its_message(env: Env) -> anyhow::Result<()> {
        let (fixture, extension, running) = registered(&env, &Proxy::default()).await?;
        extension.set_answer(Answer::json(&json!({"status": "Failure", "message": "the disk is full"})));
        fixture.touch("mine", "1").await?;
        let config = fixture.until_reason("mine", "NotDiscovered").await?;
        let expected = format!(
            "Error in discovery: failed to discover extension \"{}\": got failure response with message: the disk is full",
            fixture.name("mine")
        );
        assert_eq!(discovered(&config), ("False".into(), expected));
        assert!(running.is_registered(&fixture.handler("one", "mine")));
        running.stop().await
    }

    async fn every_answer_that_is_not_valid_is_reported_and_keeps_the_handlers(env: Env) -> anyhow::Result<()> {
        let (fixture, server) = (Fixture::new(&env).await?, RawServer::start(one_handler()).await?);
        let running = fixture.start(&env).await?;
        fixture.create("mine", &endpoint(&server)).await?;
        let handler = fixture.handler("one", "mine");
        running.until_settled(&fixture, "mine", "one").await?;
        let other_hook = json!({"kind": "BeforeClusterCreateResponse", "status": "Success"});
        let redirect = format!("location: {}/other\r\n", server.url());
        for (index, (reply, text)) in [
            (Reply::with_headers(302, &redirect, ""), "status code 302 != 200"),
            (Reply::status(204, ""), "status code 204 != 200"),
            (Reply::Endless { status: 200 }, "response body is larger than 20971520 bytes"),
            (Reply::status(200, "{"), "failed to decode response: EOF while parsing an object"),
            (Reply::status(200, ""), "failed to decode response: EOF while parsing a value"),
            (Reply::json(&json!({})), "got unknown response status \"\""),
            (Reply::json(&other_hook), "got a response of kind \"BeforeClusterCreateResponse\""),
            (Reply::BytesAndClose(b"SSH-2.0\r\n\r\n".to_vec()), "http call failed: Post"),
            (Reply::Hang, "no complete response within 10s"),
        ]
        .into_iter()
        .enumerate()
        {
            server.set_reply(reply);
            fixture.touch("mine", &index.to_string()).await?;
            let config = fixture.until("mine", |it| discovered(it).1.contains(text)).await?;
            assert_eq!(discovered(&config).0, "False", "{text}");
            assert_eq!(handlers(&config), [handler.as_str()], "{text}");
            assert!(running.is_registered(&handler), "{text}");
        }
        server.set_reply(one_handler());
        fixture.touch("mine", "last").await?;
        fixture.until_reason("mine", "Discovered").await?;
        running.stop().await
    }

    async fn every_certificate_that_is_not_valid_is_reported_and_keeps_the_handlers(env: Env) -> anyhow::Result<()> {
        let (fixture, server) = (Fixture::new(&env).await?, RawServer::start(one_handler()).await?);
        let running = fixture.start(&env).await?;
        fixture.create("mine", &endpoint(&server)).await?;
        let handler = fixture.handler("one", "mine");
        running.until_settled(&fixture, "mine", "one").await?;
        let (ca, other) = (Ca::new()?, Ca::new()?);
        for (signed, text) in [
            (other.sign(&["127.0.0.1"], Validity::Now)?, "signed by an unknown authority"),
            (ca.sign(&["127.0.0.1"], Validity::Past)?, "it has expired"),
            (ca.sign(&["127.0.0.2"], Validity::Now)?, "certificate not valid for name"),
        ] {
            let invalid = RawServer::with_certificate(ca.pem(), &signed, one_handler()).await?;
            let (url, ca_bundle) = (invalid.url(), endpoint(&invalid).ca_bundle());
            let client_config = json!({"url": url, "caBundle": ca_bundle});
            fixture.patch("mine", json!({"spec": {"clientConfig": client_config}})).await?;
            let config = fixture.until("mine", |it| discovered(it).1.contains(text)).await?;
            assert_eq!(discovered(&config).0, "False", "{text}");
            assert_eq!(handlers(&config), [handler.as_str()], "{text}");
            let registered = running.runtime.registry().get(&handler)?;
            assert_eq!(registered.client_config.url, Some(server.url()), "{text}");
            assert_eq!(invalid.counts().requests, 0, "{text}");
        }
        running.stop().await
    }

    async fn a_failure_whose_message_changes_is_retried_with_backoff(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let (server, calls) = (RawServer::start(Reply::success()).await?, AtomicUsize::new(0));
        server.set_reply_fn(move |_| {
            let message = format!("call {}", calls.fetch_add(1, Relaxed));
            Reply::json(&json!({"status": "Failure", "message": message}))
        });
        let running = fixture.start(&env).await?;
        let begun = Instant::now();
        fixture.create("mine", &endpoint(&server)).await?;
        server.until(|counts| counts.requests > 3).await?;
        // The first call and three retries, each after at least 1 s.
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(3), "4 calls in {took:?}");
        let (status, message) = discovered(&fixture.get("mine").await?);
        assert_eq!(status, "False");
        assert!(message.contains("got failure response with message: call "), "{message}");
        running.stop().await
    }

    async fn an_invalid_object_is_reported_without_a_call_and_is_not_retried(env: Env) -> anyhow::Result<()> {
        let (fixture, extension, running) = registered(&env, &Proxy::default()).await?;
        let before = extension.requests();
        let url = extension.endpoint().url.replace("https", "http");
        fixture.patch("mine", json!({"spec": {"clientConfig": {"url": url}}})).await?;
        let config = fixture.until_reason("mine", "NotDiscovered").await?;
        let (_, message) = discovered(&config);
        assert!(message.contains("'https' is the only allowed URL scheme"), "{message}");
        // If the request were retried, it would be in the queue.
        steersman::testing::eventually(async || {
            let queue = running.manager.queue("extension-config", 10, None).expect("a queue");
            let is_ended = queue.entries.is_empty() && !queue.terminal.is_empty();
            anyhow::Ok(is_ended.then_some(()))
        })
        .await?;
        assert_eq!(extension.requests(), before);
        assert!(running.is_registered(&fixture.handler("one", "mine")));

        fixture.patch("mine", json!({"spec": {"clientConfig": {"url": extension.endpoint().url}}})).await?;
        fixture.until_reason("mine", "Discovered").await?;
        running.stop().await
    }

    async fn an_error_of_the_api_server_is_retried(env: Env) -> anyhow::Result<()> {
        let proxy = Proxy::default();
        let (fixture, extension, running) = registered(&env, &proxy).await?;
        proxy.reject_writes(true);
        extension.set_answer(Answer::handlers(&[("two", "BeforeClusterCreate")]));
        fixture.touch("mine", "1").await?;
        running.until_more("error", 0).await?;
        assert!(running.is_registered(&fixture.handler("one", "mine")));
        proxy.reject_writes(false);
        running.until_registered(&fixture.handler("two", "mine"), true).await?;
        running.stop().await
    }

    async fn unreachable_extensions_do_not_delay_others(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let hanging = FakeExtension::start(Answer::handlers(&[]).hanging()).await?;
        let mut dead = Extension::start().await?;
        let healthy = Extension::start().await?;
        dead.stop().await;
        let running = fixture.start(&env).await?;
        for index in 0..5 {
            fixture.create(&format!("hanging{index}"), &hanging.endpoint()).await?;
            fixture.create(&format!("dead{index}"), &dead.endpoint()).await?;
        }
        let is_called = async || anyhow::Ok((hanging.requests() > 0).then_some(()));
        steersman::testing::eventually(is_called).await?;
        fixture.create("healthy", &healthy.endpoint()).await?;
        // One after another, the hanging extensions would take 50 s: longer than this wait.
        running.until_registered(&fixture.handler("create", "healthy"), true).await?;
        fixture.until_reason("dead0", "NotDiscovered").await?;
        running.stop().await
    }

    async fn an_extension_that_comes_back_is_discovered_again(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let mut extension = Extension::start().await?;
        fixture.write_secret("ca", &[("ca.crt", extension.endpoint().ca_pem.as_bytes())]).await?;
        let running = fixture.start(&env).await?;
        fixture.create_annotated("ca", &extension.endpoint()).await?;
        fixture.until_reason("ca", "Discovered").await?;
        extension.stop().await;
        fixture.touch("ca", "1").await?;
        fixture.until_reason("ca", "NotDiscovered").await?;
        extension.restart().await?;
        fixture.write_secret("ca", &[("ca.crt", extension.endpoint().ca_pem.as_bytes())]).await?;
        fixture.until_reason("ca", "Discovered").await?;
        running.stop().await
    }
}
