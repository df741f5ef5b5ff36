//! Successful calls across implementations.

use super::{
    fixture::{Fixture, PAIRS, Side},
    handler,
    hooks::HOOKS,
    success,
};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn responses_have_the_message_and_the_delay_of_the_handler() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let ready = json!({"status": "Success", "message": "ready"});
    let delayed = json!({"status": "Success", "message": "not yet", "retryAfterSeconds": 15});
    let handlers = [
        handler("ready", ready, json!({})),
        handler("delayed", delayed, json!({})),
    ];
    for (client, server) in PAIRS {
        let served = both.serve(server, &handlers).await?;
        both.discover_and_register(client, &served, json!({}))
            .await?;
        for (name, message, seconds) in [("ready", "ready", 0), ("delayed", "not yet", 15)] {
            let name = format!("{name}.config");
            let response = both
                .call(client, "BeforeClusterCreate", Some(&name), json!({}))
                .await?;
            let expected =
                json!({"status": "Success", "message": message, "retryAfterSeconds": seconds});
            assert_eq!(response, Ok(expected), "{client:?} {server:?} {name}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_of_all_handlers_are_aggregated() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let handlers: Vec<_> = [("a", 0), ("b", 20), ("c", 10)]
        .into_iter()
        .map(|(name, seconds)| {
            let response =
                json!({"status": "Success", "message": name, "retryAfterSeconds": seconds});
            handler(name, response, json!({}))
        })
        .collect();
    for (client, server) in PAIRS {
        let served = both.serve(server, &handlers).await?;
        both.discover_and_register(client, &served, json!({}))
            .await?;
        let response = both
            .call(client, "BeforeClusterCreate", None, json!({}))
            .await?;
        let mut response = response.map_err(anyhow::Error::msg)?;
        // Cluster API calls the handlers in random order.
        let messages = response["message"].take();
        let mut messages: Vec<_> = messages.as_str().unwrap_or_default().split(", ").collect();
        messages.sort_unstable();
        assert_eq!(messages, ["a", "b", "c"], "{client:?} {server:?}");
        assert_eq!(
            response,
            json!({"status": "Success", "message": null, "retryAfterSeconds": 10}),
            "{client:?} {server:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_receive_the_same_request_from_both_clients() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let request = json!({
        "settings": {"color": "red"},
        "cluster": {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": {"namespace": "shop", "name": "web", "labels": {"tier": "gold"}},
            "spec": {"paused": true, "topology": {"classRef": {"name": "small"}, "version": "v1.37.1"}},
        },
    });
    let handlers = [handler("records", success(), json!({}))];
    let spec = json!({"settings": {"color": "blue", "size": "4"}});
    for server in [Side::Go, Side::Rust] {
        let mut received = Vec::new();
        for client in [Side::Go, Side::Rust] {
            let served = both.serve(server, &handlers).await?;
            both.discover_and_register(client, &served, spec.clone())
                .await?;
            let response = both
                .call(
                    client,
                    "BeforeClusterCreate",
                    Some("records.config"),
                    request.clone(),
                )
                .await?;
            assert!(response.is_ok(), "{client:?} {server:?}: {response:?}");
            let mut requests = both.take_requests(server)?;
            assert_eq!(requests.len(), 1, "{client:?} {server:?}: {requests:?}");
            let (name, mut request) = requests.remove(0);
            assert_eq!(name, "records");
            assert_eq!(
                request["settings"],
                json!({"color": "red", "size": "4"}),
                "{client:?} {server:?}"
            );
            // Go's types add empty fields, which a Cluster in JSON does not have.
            remove_empty(&mut request);
            received.push(request);
        }
        assert_eq!(received[0], received[1], "{server:?}");
        assert_eq!(
            received[1]["cluster"]["spec"]["topology"]["classRef"]["name"], "small",
            "{server:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hook_is_called_across_implementations() -> anyhow::Result<()> {
    let Some(mut both) = Fixture::new()? else {
        return Ok(());
    };
    let name = |hook: &str| hook.to_lowercase();
    let handlers: Vec<_> = HOOKS
        .iter()
        .map(|hook| {
            let response = json!({"status": "Success", "message": hook.name});
            json!({"name": name(hook.name), "hook": hook.name, "response": response})
        })
        .collect();
    for (client, server) in PAIRS {
        let served = both.serve(server, &handlers).await?;
        both.discover_and_register(client, &served, json!({}))
            .await?;
        for hook in &HOOKS {
            let extension = format!("{}.config", name(hook.name));
            let request = json!({"settings": {"hook": hook.name}});
            let response = both
                .call(client, hook.name, Some(&extension), request)
                .await?;
            let response = response.map_err(anyhow::Error::msg)?;
            assert_eq!(response["message"], hook.name, "{client:?} {server:?}");
        }
        let received = both.take_requests(server)?;
        let names: Vec<_> = received
            .iter()
            .map(|(handler, _)| handler.clone())
            .collect();
        assert_eq!(names, HOOKS.each_ref().map(|hook| name(hook.name)));
        for ((_, request), hook) in received.iter().zip(&HOOKS) {
            assert_eq!(request["settings"]["hook"], hook.name);
        }
    }
    Ok(())
}

/// Removes fields that are null or empty, recursively.
fn remove_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(remove_empty);
            fields.retain(|_, field| match field {
                Value::Null => false,
                Value::Object(fields) => !fields.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::String(text) => !text.is_empty(),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(remove_empty),
        _ => {}
    }
}
