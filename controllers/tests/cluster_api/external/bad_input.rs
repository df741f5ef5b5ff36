//! Invalid references, templates, labels and statuses: the stated error, and nothing created.

use super::{CURRENT, Provider, templates::Templates};
use crate::support::{dynamic, from, provider_crd};
use serde_json::{Value, json};
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::{
    cluster_api::{ContractVersionedObjectReference, ObjectReference},
    external::{
        CreateFromTemplate, contract::contract_version, create_from_template, delete,
        failures_from, get, get_from_contract_versioned_ref, is_ready,
    },
};

/// Labels of a CRD.
type Labels<'a> = &'a [(&'a str, &'a str)];

steersman::env_test! {
    async fn a_half_empty_reference_is_an_error_and_nothing_is_deleted(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "half-empty").await?;
        provider.create("a", json!({})).await?;
        let whole = provider.reference("a");
        let key = format!("{}/a", provider.namespace);
        let half = [
            (ObjectReference { kind: None, ..whole.clone() }, format!(" {key}"), "kind"),
            (ObjectReference { kind: Some(String::new()), ..whole.clone() }, format!(" {key}"), "kind"),
            (ObjectReference { api_version: None, ..whole.clone() }, format!("Shed {key}"), "apiVersion"),
            (ObjectReference { name: None, ..whole.clone() }, format!("Shed {}/", provider.namespace), "name"),
            (ObjectReference::default(), " ".to_owned(), "kind"),
        ];
        for (reference, described, missing) in half {
            let cause = format!("object reference has no {missing}; set it");
            let read = get(&provider.client, Some(&reference)).await.expect_err("a half-empty reference");
            assert_eq!(read.to_string(), format!("failed to retrieve {described}: {cause}"));
            let deleted = delete(&provider.client, Some(&reference)).await.expect_err("a half-empty reference");
            assert_eq!(deleted.to_string(), format!("failed to delete {described}: {cause}"));
            let input = CreateFromTemplate::new(&provider.client, Some(&reference), &provider.namespace);
            let created = create_from_template(&input).await.expect_err("a half-empty reference");
            assert_eq!(created.to_string(), read.to_string());
            assert!(!read.is_not_found() && !deleted.is_not_found() && !created.is_not_found());
        }
        get(&provider.client, Some(&whole)).await?;
        Ok(())
    }

    async fn an_invalid_api_version_is_an_error(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "api-version").await?;
        for version in ["a/b/c", "..", "../../api/v1", "example.com/v1?limit=1", "example.com/", "/"] {
            let api_version = Some(version.to_owned());
            let reference = ObjectReference { api_version, ..provider.reference("a") };
            let error = get(&provider.client, Some(&reference)).await.expect_err("an invalid version");
            let start = format!("failed to retrieve {}: invalid apiVersion `{version}`", provider.described("a"));
            assert!(error.to_string().starts_with(&start), "{error}");
        }
        for name in [".", "..", "a/b", "a%2fb"] {
            let error = get(&provider.client, Some(&provider.reference(name))).await;
            let error = error.expect_err("an invalid name");
            assert!(error.to_string().contains("invalid name"), "{error}");
        }
        Ok(())
    }

    async fn a_half_empty_contract_versioned_reference_is_an_error(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "half-empty-contract").await?;
        let whole = provider.contract_reference("a");
        let read = async |reference: ContractVersionedObjectReference| {
            let read = get_from_contract_versioned_ref(&provider.client, &reference, &provider.namespace).await;
            let error = read.expect_err("a half-empty reference");
            assert!(!error.is_not_found(), "{error}");
            error.to_string()
        };
        let crd = "failed to get object from ref: failed to get CustomResourceDefinition metadata: ";
        let no_group = read(ContractVersionedObjectReference { api_group: String::new(), ..whole.clone() }).await;
        assert!(no_group.starts_with(crd) && no_group.ends_with("\"sheds.\" not found"), "{no_group}");
        let no_kind = read(ContractVersionedObjectReference { kind: String::new(), ..whole.clone() }).await;
        assert!(no_kind.starts_with(crd), "{no_kind}");
        let only_name = from(json!({"name": "a"}));
        assert!(read(only_name).await.starts_with(crd));
        let no_name = read(ContractVersionedObjectReference { name: String::new(), ..whole }).await;
        let expected = format!(
            "failed to retrieve Shed {}/: object reference has no name; set it", provider.namespace,
        );
        assert_eq!(no_name, expected);
        Ok(())
    }

    async fn create_without_a_reference_is_an_error(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "no-template").await?;
        let provider = &templates.provider;
        let input = CreateFromTemplate::new(&provider.client, None, &provider.namespace);
        let error = create_from_template(&input).await.expect_err("no reference");
        assert_eq!(error.to_string(), "cannot get object - object reference not set");
        assert_eq!(templates.count().await?, 0);
        Ok(())
    }

    async fn a_template_without_or_with_empty_content_is_cloned(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "empty-content").await?;
        let reference = templates.reference();
        let contents = [json!({}), json!({"spec": {}}), json!({"spec": {"template": {}}})];
        let count = contents.len();
        for content in contents {
            let template = templates.create(content).await?;
            let (created, _) = create_from_template(&templates.input(&reference)).await?;
            assert_eq!(created.data, json!({}), "no spec");
            delete(&templates.provider.client, Some(&reference)).await?;
            drop(template);
        }
        assert_eq!(templates.count().await?, count);
        Ok(())
    }

    async fn a_template_with_malformed_content_is_an_error_and_nothing_is_created(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "malformed").await?;
        let reference = templates.reference();
        let malformed = [
            (json!({"spec": {"template": "a"}}), ".spec.template accessor error: a is of the type string, expected map[string]interface{}"),
            (json!({"spec": {"template": [1]}}), ".spec.template accessor error: [1] is of the type []interface {}, expected map[string]interface{}"),
            (json!({"spec": 1.5}), ".spec.template accessor error: 1.5 is of the type float64, expected map[string]interface{}"),
            (json!({"spec": {"template": {"metadata": true}}}), ".spec.template.metadata accessor error: true is of the type bool, expected map[string]interface{}"),
        ];
        for (content, cause) in malformed {
            templates.create(content).await?;
            let error = create_from_template(&templates.input(&reference)).await;
            let expected = format!(
                "failed to retrieve Spec.Template map on {}/v1, Kind=ShedTemplate \"workers\": {cause}",
                templates.provider.group,
            );
            assert_eq!(error.expect_err("malformed content").to_string(), expected);
            delete(&templates.provider.client, Some(&reference)).await?;
        }
        assert_eq!(templates.count().await?, 0);
        Ok(())
    }

    /// The API server accepts longer names of objects, but not as values of labels.
    async fn names_at_the_limit_of_63_are_created(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "limit").await?;
        let longest = "a".repeat(63);
        let mut template = dynamic(
            &format!("{}/v1", templates.provider.group), "ShedTemplate", &longest, json!({}),
        );
        template.metadata.namespace = Some(templates.provider.namespace.clone());
        templates.provider.client.create(&template).await?;
        let reference = ObjectReference { name: Some(longest.clone()), ..templates.reference() };
        let input = CreateFromTemplate { cluster_name: &longest, ..templates.input(&reference) };
        let (generated, _) = create_from_template(&input).await?;
        let name = generated.metadata.name.expect("a name");
        assert!(name.len() == 63 && name.starts_with(&longest[..58]), "{name}");
        let named = CreateFromTemplate { name: &longest, ..templates.input(&reference) };
        create_from_template(&named).await?;

        let too_long = "a".repeat(64);
        let rejected = CreateFromTemplate { cluster_name: &too_long, ..templates.input(&reference) };
        let error = create_from_template(&rejected).await.expect_err("a label that is too long");
        assert!(error.to_string().starts_with("failed to create Shed "), "{error}");
        assert!(error.request().is_some_and(steersman::client::Error::is_invalid), "{error}");
        assert_eq!(templates.count().await?, 2);
        Ok(())
    }

    async fn missing_empty_and_unordered_contract_labels_are_handled(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "labels").await?;
        let (old, new) = ("cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2");
        let cases: [(Labels, Option<&str>); 6] = [
            (&[], None),
            (&[(new, "")], None),
            (&[("cluster.x-k8s.io/v1alpha4", "v1")], None),
            (&[(new, ""), (old, "v1")], Some("v1beta1")),
            (&[(new, "v1alpha1_v1_v1beta1")], Some("v1beta2")),
            (&[(old, "v1"), CURRENT], Some("v1beta2")),
        ];
        for (index, (labels, expected)) in cases.into_iter().enumerate() {
            let kind = format!("Shed{index}");
            let plural = format!("shed{index}s");
            env.install([provider_crd(&provider.group, &kind, &plural, &["v1"], labels)]).await?;
            let kind = steersman_controllers::external::GroupKind::new(&provider.group, kind);
            let found = contract_version(&provider.client, &kind).await;
            if let Some(contract) = expected {
                assert_eq!(found?, contract);
            } else {
                let error = found.expect_err("no label").to_string();
                assert!(error.contains("contract version label(s) are either missing or empty"), "{error}");
            }
        }
        Ok(())
    }

    async fn a_status_that_is_not_a_map_is_an_error(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "status-text").await?;
        let (provider, reference) = (&templates.provider, templates.reference());
        let statuses = [
            (json!("up"), "up is of the type string, expected map[string]interface{}"),
            (json!([]), "[] is of the type []interface {}, expected map[string]interface{}"),
        ];
        for (status, described) in statuses {
            templates.create(json!({})).await?;
            let kind = GroupVersionKind::gvk(&provider.group, "v1", "ShedTemplate");
            let patch = json!([{"op": "add", "path": "/status", "value": status}]);
            let patch: Patch<Value> = Patch::Json(from(patch));
            provider.client.status().dynamic(&kind).patch(&provider.key("workers"), &patch).await?;
            let object = get(&provider.client, Some(&reference)).await?;
            let on = format!("{}/v1, Kind=ShedTemplate \"workers\"", provider.group);
            assert_eq!(
                failures_from(&object).expect_err("an invalid status").to_string(),
                format!("failed to determine failureReason on {on}: .status.failureReason accessor error: {described}")
            );
            assert_eq!(
                is_ready(&object).expect_err("an invalid status").to_string(),
                format!("failed to determine {on} readiness: .status.ready accessor error: {described}")
            );
            delete(&provider.client, Some(&reference)).await?;
        }
        Ok(())
    }
}
