//! Tests of the registry.

use super::from;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};
use steersman_controllers::extension_config::{
    ExtensionConfig, FailurePolicy, NamespaceSelector, Registry,
    catalog::{
        GroupHook, HOOKS_API_VERSION, Hook,
        hooks::{BeforeClusterCreate, BeforeClusterDelete},
    },
};

/// Returns an `ExtensionConfig` with handlers of [`BeforeClusterCreate`].
fn config(name: &str, handlers: &[&str]) -> ExtensionConfig {
    let handlers = handlers.iter().map(|handler| {
        let hook = json!({"apiVersion": HOOKS_API_VERSION, "hook": "BeforeClusterCreate"});
        json!({"name": format!("{handler}.{name}"), "requestHook": hook})
    });
    from(&json!({
        "metadata": {"name": name, "resourceVersion": "7"},
        "spec": {"clientConfig": {"url": "https://example.com"}, "namespaceSelector": {}},
        "status": {"handlers": handlers.collect::<Vec<_>>()},
    }))
}

fn hook() -> GroupHook {
    BeforeClusterCreate::group_version_hook().group_hook()
}

fn ready(configs: &[ExtensionConfig]) -> Registry {
    let registry = Registry::new();
    registry.warm_up(configs).expect("valid configs");
    registry
}

fn names(registry: &Registry) -> Vec<String> {
    let handlers = registry.list(&hook()).expect("a ready registry");
    handlers
        .iter()
        .map(|handler| handler.name.clone())
        .collect()
}

#[test]
fn a_registry_rejects_operations_before_its_warmup() {
    let registry = Registry::new();
    assert!(!registry.is_ready());
    let errors = [
        registry.add(&config("quota", &[])).unwrap_err(),
        registry.remove("quota").unwrap_err(),
        registry.list(&hook()).unwrap_err(),
        registry.get("check.quota").unwrap_err(),
    ];
    let texts = errors.map(|error| error.to_string());
    assert_eq!(
        texts,
        [
            "failed to add ExtensionConfig \"quota\" to registry: invalid operation: Add cannot be called on a registry which has not been warmed up",
            "failed to remove ExtensionConfig \"quota\" from registry: invalid operation: Remove cannot be called on a registry which has not been warmed up",
            "failed to list extension handlers for GroupHook \"BeforeClusterCreate.hooks.runtime.cluster.x-k8s.io\": invalid operation: List cannot be called on a registry which has not been warmed up",
            "failed to get extension handler \"check.quota\" from registry: invalid operation: Get cannot be called on a registry not yet ready",
        ]
    );
}

#[test]
fn a_registry_is_warmed_up_once() {
    let registry = ready(&[]);
    assert!(registry.is_ready());
    let error = registry.warm_up(&[]).expect_err("ready");
    assert_eq!(
        error.to_string(),
        "failed to warm up registry: invalid operation: WarmUp cannot be called on a registry which has already been warmed up"
    );
}

#[test]
fn list_rejects_a_hook_without_a_group_or_a_name() {
    for registry in [Registry::new(), ready(&[])] {
        let list = |group: &str, hook: &str| {
            let hook = GroupHook {
                group: group.into(),
                hook: hook.into(),
            };
            registry.list(&hook).expect_err("an empty text").to_string()
        };
        assert_eq!(
            list("", ""),
            "failed to list extension handlers: invalid argument: when calling List gh.Group must not be empty"
        );
        assert_eq!(
            list("g", ""),
            "failed to list extension handlers: invalid argument: when calling List gh.Hook must not be empty"
        );
    }
}

#[test]
fn an_unknown_handler_is_not_registered() {
    let error = ready(&[config("quota", &["check"])])
        .get("other.quota")
        .expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "failed to get extension handler \"other.quota\" from registry: handler with name \"other.quota\" has not been registered"
    );
}

#[test]
fn errors_and_hooks_are_those_of_cluster_api() {
    let fixtures: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/registry.json")).expect("JSON");
    for fixture in fixtures {
        let configs: Vec<ExtensionConfig> = from(&fixture["configs"]);
        let registry = Registry::new();
        let error = registry
            .warm_up(&configs)
            .err()
            .map(|error| error.to_string());
        assert_eq!(
            error.unwrap_or_default(),
            fixture["error"],
            "{}",
            fixture["configs"]
        );
        assert_eq!(registry.is_ready(), fixture["error"] == "");

        let registry = ready(&[]);
        let mut errors = Vec::new();
        let mut hooks = BTreeMap::new();
        for config in &configs {
            if let Err(error) = registry.add(config) {
                errors.push(error.to_string());
            }
            for handler in config.status.iter().flat_map(|status| &status.handlers) {
                if let Ok(registration) = registry.get(&handler.name) {
                    hooks.insert(handler.name.clone(), registration.hook.to_string());
                }
            }
        }
        assert_eq!(
            json!(errors),
            fixture["addErrors"],
            "{}",
            fixture["configs"]
        );
        assert_eq!(json!(hooks), fixture["hooks"], "{}", fixture["configs"]);
    }
}

#[test]
fn a_failed_warm_up_can_be_repeated() {
    let mut invalid = config("a", &["x"]);
    invalid.status.as_mut().expect("a status").handlers[0]
        .request_hook
        .api_version = "a/b/c".into();
    let registry = Registry::new();
    registry
        .warm_up(&[config("b", &["x"]), invalid])
        .expect_err("an invalid handler");
    assert!(!registry.is_ready());
    registry
        .warm_up(&[config("c", &["x"])])
        .expect("valid configs");
    assert_eq!(names(&registry), ["x.c"], "the failed warm up left nothing");
}

#[test]
fn handlers_are_listed_in_the_order_of_their_names() {
    let registry = ready(&[config("b", &["z", "a"]), config("a", &["m"])]);
    registry.add(&config("c", &["b"])).expect("a valid config");
    assert_eq!(names(&registry), ["a.b", "b.c", "m.a", "z.b"]);
}

#[test]
fn handlers_of_all_versions_of_a_hook_are_listed() {
    let mut other = config("b", &["x", "y"]);
    let handlers = &mut other.status.as_mut().expect("a status").handlers;
    handlers[0].request_hook.api_version = "hooks.runtime.cluster.x-k8s.io/v9".into();
    handlers[1].request_hook.api_version = "other.example.com/v1alpha1".into();
    let registry = ready(&[config("a", &["x"]), other]);
    assert_eq!(names(&registry), ["x.a", "x.b"]);
    let hook = BeforeClusterDelete::group_version_hook().group_hook();
    assert_eq!(registry.list(&hook).expect("a ready registry"), []);
}

#[test]
fn adding_a_config_again_replaces_its_handlers() {
    let registry = ready(&[config("a", &["x", "y"]), config("b", &["x"])]);
    registry
        .add(&config("a", &["y", "z"]))
        .expect("a valid config");
    assert_eq!(names(&registry), ["x.b", "y.a", "z.a"]);
}

#[test]
fn adding_an_invalid_config_removes_its_earlier_handlers() {
    let registry = ready(&[config("a", &["x"]), config("b", &["x"])]);
    let mut invalid = config("a", &["x", "y"]);
    invalid.status.as_mut().expect("a status").handlers[1]
        .request_hook
        .api_version = "a/b/c".into();
    registry.add(&invalid).expect_err("an invalid handler");
    assert_eq!(names(&registry), ["x.b"]);
}

#[test]
fn a_config_is_removed_by_its_name() {
    let registry = ready(&[config("a", &["x"]), config("b", &["x"])]);
    registry.remove("a").expect("a ready registry");
    registry
        .remove("unknown")
        .expect("unknown configs are ignored");
    assert_eq!(names(&registry), ["x.b"]);
}

#[test]
fn a_registration_has_the_values_of_its_config() {
    let config: ExtensionConfig = from(&json!({
        "metadata": {"name": "quota", "resourceVersion": "42"},
        "spec": {
            "clientConfig": {"service": {"name": "s", "namespace": "ns", "port": 8443}},
            "namespaceSelector": {"matchLabels": {"tier": "gold"}},
            "settings": {"limit": "3"},
        },
        "status": {"handlers": [
            {"name": "a.quota", "requestHook": {"apiVersion": HOOKS_API_VERSION, "hook": "BeforeClusterCreate"}},
            {"name": "b.quota", "requestHook": {"apiVersion": HOOKS_API_VERSION, "hook": "BeforeClusterCreate"},
             "timeoutSeconds": 5, "failurePolicy": "Ignore"},
            {"name": "c.quota", "requestHook": {"apiVersion": HOOKS_API_VERSION, "hook": "BeforeClusterCreate"},
             "timeoutSeconds": 0, "failurePolicy": "Fail"},
        ]},
    }));
    let registry = ready(std::slice::from_ref(&config));
    let registration = registry.get("b.quota").expect("registered");
    assert_eq!(registration.extension_config_name, "quota");
    assert_eq!(registration.extension_config_resource_version, "42");
    assert_eq!(registration.hook, BeforeClusterCreate::group_version_hook());
    assert_eq!(registration.client_config, config.spec.client_config);
    assert_eq!(registration.settings, config.spec.settings);
    assert_eq!(registration.timeout, Duration::from_secs(5));
    assert_eq!(registration.failure_policy, FailurePolicy::Ignore);
    for name in ["a.quota", "c.quota"] {
        let registration = registry.get(name).expect("registered");
        assert_eq!(registration.timeout, Duration::from_secs(10), "the default");
        assert_eq!(registration.failure_policy, FailurePolicy::Fail);
    }
}

fn selector(selector: &Value) -> NamespaceSelector {
    let selector: Option<_> = from(selector);
    NamespaceSelector::try_from(selector.as_ref()).expect("a valid selector")
}

#[test]
fn an_absent_selector_matches_nothing_and_an_empty_one_everything() {
    assert_eq!(selector(&json!(null)), NamespaceSelector::Nothing);
    assert_eq!(selector(&json!({})), NamespaceSelector::Everything);
    assert_eq!(
        selector(&json!({"matchLabels": {}, "matchExpressions": []})),
        NamespaceSelector::Everything
    );
    for labels in [BTreeMap::new(), BTreeMap::from([("a".into(), "b".into())])] {
        assert!(!NamespaceSelector::Nothing.matches(&labels));
        assert!(NamespaceSelector::Everything.matches(&labels));
    }
}

#[test]
fn all_requirements_of_a_selector_must_match() {
    let selector = selector(&json!({
        "matchLabels": {"tier": "gold"},
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "stage", "operator": "NotIn", "values": ["test"]},
            {"key": "owner", "operator": "Exists"},
            {"key": "locked", "operator": "DoesNotExist"},
        ],
    }));
    let labels = |changes: &[(&str, Option<&str>)]| {
        let mut labels = BTreeMap::from(
            [("tier", "gold"), ("zone", "a"), ("owner", "")].map(|(k, v)| (k.into(), v.into())),
        );
        for (key, value) in changes {
            match value {
                Some(value) => labels.insert((*key).into(), (*value).into()),
                None => labels.remove(*key),
            };
        }
        labels
    };
    assert!(selector.matches(&labels(&[])));
    assert!(selector.matches(&labels(&[("stage", Some("live")), ("zone", Some("b"))])));
    for change in [
        ("tier", None),
        ("tier", Some("iron")),
        ("zone", None),
        ("zone", Some("c")),
        ("stage", Some("test")),
        ("owner", None),
        ("locked", Some("")),
    ] {
        assert!(!selector.matches(&labels(&[change])), "{change:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_are_notified_when_the_registry_is_ready() {
    let registry = Registry::new();
    let waiter = tokio::spawn({
        let registry = registry.clone();
        async move { registry.ready().await }
    });
    let result = tokio::time::timeout(Duration::from_mins(1), registry.ready()).await;
    result.expect_err("a registry that is not ready");
    registry.warm_up(&[]).expect("valid configs");
    waiter.await.expect("no panic");
    registry.ready().await;
}

#[test]
fn readers_see_either_the_old_or_the_new_handlers() {
    let registry = ready(&[config("a", &["x", "y"])]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let names = names(&registry);
                    assert!(
                        names == ["x.a", "y.a"] || names == ["v.a", "w.a"],
                        "{names:?}"
                    );
                }
            });
        }
        for _ in 0..500 {
            registry
                .add(&config("a", &["v", "w"]))
                .expect("a valid config");
            registry
                .add(&config("a", &["x", "y"]))
                .expect("a valid config");
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn concurrent_writers_lose_no_change() {
    let registry = ready(&[]);
    thread::scope(|scope| {
        for writer in 0..8 {
            let registry = &registry;
            scope.spawn(move || {
                for index in 0..20 {
                    let config = config(&format!("c{writer}-{index}"), &["x"]);
                    registry.add(&config).expect("a valid config");
                }
            });
        }
    });
    assert_eq!(names(&registry).len(), 160);
}
