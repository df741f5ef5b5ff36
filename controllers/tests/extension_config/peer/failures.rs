//! Calls that fail, across implementations.

use super::{
    fixture::{Fixture, PAIRS},
    handler, success,
};
use serde_json::{Value, json};
use steersman_apiserver::Authority;

const HOOK: &str = "BeforeClusterCreate";

#[tokio::test(flavor = "multi_thread")]
async fn responses_without_success_are_errors_with_both_failure_policies() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let failure = json!({"status": "Failure", "message": "quota exceeded"});
    let other = json!({"status": "Later", "message": "queued"});
    let ignore = json!({"failurePolicy": "Ignore"});
    let handlers = [
        handler("failing", failure.clone(), json!({})),
        handler("failing-ignored", failure, ignore.clone()),
        handler("other", other.clone(), json!({})),
        handler("other-ignored", other, ignore),
    ];
    for (client, server) in PAIRS {
        let served = both.serve(server, &handlers).await?;
        both.discover_and_register(client, &served, json!({}))
            .await?;
        for (name, reason) in [
            ("failing", "failure response with message: quota exceeded"),
            (
                "other",
                "unknown response status \"Later\" with message: queued",
            ),
        ] {
            for name in [format!("{name}.config"), format!("{name}-ignored.config")] {
                let result = both.call(client, HOOK, Some(&name), json!({})).await?;
                let expected = format!("failed to call extension handler \"{name}\": got {reason}");
                assert_eq!(result, Err(expected), "{client:?} {server:?}");
            }
        }
    }
    Ok(())
}

/// Returns a handler that takes longer than its time limit.
fn slow(name: &str, failure_policy: &str) -> Value {
    let late = json!({"status": "Success", "message": "late"});
    let options =
        json!({"timeoutSeconds": 1, "milliseconds": 20000, "failurePolicy": failure_policy});
    handler(name, late, options)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handler_is_an_error() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    for (client, server) in PAIRS {
        let served = both.serve(server, &[slow("slow", "Fail")]).await?;
        both.discover_and_register(client, &served, json!({}))
            .await?;
        let result = both
            .call(client, HOOK, Some("slow.config"), json!({}))
            .await?;
        let error = result.expect_err("too slow");
        assert_eq!(
            served.normalize(&error),
            "failed to call extension handler \"slow.config\": http call failed: Post \
             https://ADDRESS/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclustercreate/slow?timeout=1s",
            "{client:?} {server:?}: {error}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handler_is_ignored_with_the_policy_ignore() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    for (client, server) in PAIRS {
        let served = both.serve(server, &[slow("slow", "Ignore")]).await?;
        both.discover_and_register(client, &served, json!({}))
            .await?;
        let result = both
            .call(client, HOOK, Some("slow.config"), json!({}))
            .await?;
        assert_eq!(result, Ok(ignored_response()), "{client:?} {server:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_the_server_does_not_have_is_not_found() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let ignore = json!({"failurePolicy": "Ignore"});
    let before = [
        handler("gone", success(), json!({})),
        handler("gone-ignored", success(), ignore),
    ];
    for (client, server) in PAIRS {
        let with_handlers = both.serve(server, &before).await?;
        let mut config = both
            .discover_and_register(client, &with_handlers, json!({}))
            .await?;
        let without = both.serve(server, &[]).await?;
        config.spec = without.config("config", json!({})).spec;
        both.register(client, &config)?;
        let result = both
            .call(client, HOOK, Some("gone.config"), json!({}))
            .await?;
        let error = result.expect_err("not found");
        let expected = "failed to call extension handler \"gone.config\": http call failed: got \
                        response with status code 404 != 200: response : \"";
        assert!(
            error.starts_with(expected),
            "{client:?} {server:?}: {error}"
        );
        let result = both
            .call(client, HOOK, Some("gone-ignored.config"), json!({}))
            .await?;
        assert_eq!(result, Ok(ignored_response()), "{client:?} {server:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_of_another_authority_is_not_called() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let other = Authority::generate()?.ca_pem();
    let ignore = json!({"failurePolicy": "Ignore"});
    let handlers = [
        handler("ready", success(), json!({})),
        handler("ready-ignored", success(), ignore),
    ];
    for (client, server) in PAIRS {
        let served = both.serve(server, &handlers).await?;
        let mut config = both
            .discover_and_register(client, &served, json!({}))
            .await?;
        config.spec = served.config_with_ca("config", &other, json!({})).spec;
        both.register(client, &config)?;
        let result = both
            .call(client, HOOK, Some("ready.config"), json!({}))
            .await?;
        let error = result.expect_err("another authority");
        assert_eq!(
            served.normalize(&error),
            "failed to call extension handler \"ready.config\": http call failed: Post \
             https://ADDRESS/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclustercreate/ready?timeout=10s",
            "{client:?} {server:?}: {error}"
        );
        let result = both
            .call(client, HOOK, Some("ready-ignored.config"), json!({}))
            .await?;
        assert_eq!(result, Ok(ignored_response()), "{client:?} {server:?}");
        assert!(
            both.take_requests(server)?.is_empty(),
            "{client:?} {server:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_can_require_a_certificate_of_the_client() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let (own, other) = (Authority::generate()?, Authority::generate()?);
    for (identity, accepted) in [
        (None, false),
        (Some(other.client_certificate("manager", &[])?), false),
        (Some(own.client_certificate("manager", &[])?), true),
    ] {
        if let Some(identity) = &identity {
            both.identify(identity)?;
        }
        for (client, server) in PAIRS {
            let served = both.serve_clients_of(server, Some(&own), &[]).await?;
            let config = served.config("config", json!({}));
            let result = both.discover(client, &config).await?;
            let result = result.map_err(|error| served.normalize(&error));
            let expected = if accepted {
                Ok(vec![])
            } else {
                Err(
                    "failed to discover extension \"config\": http call failed: Post \
                     https://ADDRESS/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery?timeout=10s"
                        .to_owned(),
                )
            };
            assert_eq!(result, expected, "{client:?} {server:?} {accepted}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_are_called_for_their_hook_and_selected_namespaces() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    both.create_namespace(json!({"tier": "gold"})).await?;
    let handlers = [handler("ready", success(), json!({}))];
    let selecting = |tier: &str| json!({"namespaceSelector": {"matchLabels": {"tier": tier}}});
    for (client, server) in PAIRS {
        let served = both.serve(server, &handlers).await?;
        both.discover_and_register(client, &served, selecting("gold"))
            .await?;
        let name = Some("ready.config");
        let result = both.call(client, HOOK, name, json!({})).await?;
        assert!(result.is_ok(), "{client:?} {server:?}: {result:?}");

        for (hook, name, reason) in [
            (
                "BeforeClusterDelete",
                "ready.config",
                "handler does not match GroupHook \"BeforeClusterDelete.hooks.runtime.cluster.x-k8s.io\"",
            ),
            (
                HOOK,
                "absent.config",
                "failed to get extension handler \"absent.config\" from registry: handler with name \
                 \"absent.config\" has not been registered",
            ),
        ] {
            let result = both.call(client, hook, Some(name), json!({})).await?;
            let expected = format!("failed to call extension handler \"{name}\": {reason}");
            assert_eq!(result, Err(expected), "{client:?} {server:?}");
        }

        both.discover_and_register(client, &served, selecting("silver"))
            .await?;
        let result = both.call(client, HOOK, name, json!({})).await?;
        let expected = "failed to call extension handler \"ready.config\": namespaceSelector did \
                        not match object shop/web";
        assert_eq!(result, Err(expected.to_owned()), "{client:?} {server:?}");
        let result = both.call(client, HOOK, None, json!({})).await?;
        assert_eq!(result, Ok(ignored_response()), "{client:?} {server:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_failing_handler_fails_a_call_of_all_handlers() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let failure = json!({"status": "Failure", "message": "quota exceeded"});
    let handlers = [handler("failing", failure, json!({}))];
    for (client, server) in PAIRS {
        let served = both.serve(server, &handlers).await?;
        both.discover_and_register(client, &served, json!({}))
            .await?;
        let result = both.call(client, HOOK, None, json!({})).await?;
        let expected = "failed to call extension handlers for hook \
                        \"BeforeClusterCreate.hooks.runtime.cluster.x-k8s.io\": failed to call \
                        extension handler \"failing.config\": got failure response with message: \
                        quota exceeded";
        assert_eq!(result, Err(expected.to_owned()), "{client:?} {server:?}");
    }
    Ok(())
}

/// Returns the response to an ignored failure, which is also that of a hook without handlers.
fn ignored_response() -> Value {
    json!({"status": "Success", "retryAfterSeconds": 0})
}
