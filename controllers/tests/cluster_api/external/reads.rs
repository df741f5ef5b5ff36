//! Reads and deletions, live and cached.

use super::{CURRENT, Provider};
use crate::support::from;
use serde_json::json;
use steersman::{
    cache::Namespaces,
    client::{self, Patch},
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_apiserver::Fault;
use steersman_controllers::{
    cluster_api::{ContractVersionedObjectReference, ObjectReference},
    external::{
        self, Error, RequestError, delete, failures_from, get, get_from_contract_versioned_ref,
        is_ready,
    },
};

steersman::env_test! {
    async fn get_returns_the_object_of_a_reference(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "get").await?;
        let created = provider.create("a", json!({"spec": {"size": 3}})).await?;
        let read = get(&provider.client, Some(&provider.reference("a"))).await?;
        assert_eq!(*read, created);
        Ok(())
    }

    async fn get_without_a_reference_is_an_error(env: Env) -> anyhow::Result<()> {
        let client = Client::new(env.client()?)?;
        let error = get(&client, None).await.expect_err("no reference");
        assert!(matches!(error, Error::NothingToGet) && !error.is_not_found());
        assert_eq!(error.to_string(), "cannot get object - object reference not set");
        Ok(())
    }

    async fn get_of_a_missing_object_is_a_not_found_with_kind_and_key(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "get-missing").await?;
        let error = get(&provider.client, Some(&provider.reference("a"))).await;
        let error = error.expect_err("no object");
        assert!(error.is_not_found(), "{error}");
        let expected = format!(
            "failed to retrieve {}: sheds.{} \"a\" not found", provider.described("a"), provider.group,
        );
        assert_eq!(error.to_string(), expected);
        let status = error.request().and_then(client::Error::status).expect("a status");
        assert_eq!((status.code, &*status.reason), (404, "NotFound"));
        Ok(())
    }

    async fn get_of_a_missing_kind_is_not_a_not_found(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "get-absent").await?;
        let error = get(&provider.client, Some(&provider.reference("a"))).await;
        let error = error.expect_err("no kind");
        assert!(!error.is_not_found(), "{error}");
        assert!(error.request().is_some_and(client::Error::is_kind_not_found), "{error}");
        let start = format!("failed to retrieve {}: the API server does not serve ", provider.described("a"));
        assert!(error.to_string().starts_with(&start), "{error}");
        Ok(())
    }

    async fn get_takes_the_namespace_from_the_reference_only(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "get-namespace").await?;
        provider.create("a", json!({})).await?;
        let reference = ObjectReference { namespace: None, ..provider.reference("a") };
        let client = provider.client.namespace(&provider.namespace);
        let error = get(&client, Some(&reference)).await.expect_err("no namespace");
        assert!(!error.is_not_found(), "{error}");
        assert!(error.to_string().starts_with("failed to retrieve Shed a: "), "{error}");
        Ok(())
    }

    async fn get_of_a_cluster_scoped_object_ignores_the_namespace(env: Env) -> anyhow::Result<()> {
        let client = Client::new(env.client()?)?;
        for namespace in [None, Some("shop")] {
            let reference: ObjectReference = from(json!({
                "apiVersion": "v1", "kind": "Namespace", "name": "default", "namespace": namespace,
            }));
            assert_eq!(get(&client, Some(&reference)).await?.metadata.name.as_deref(), Some("default"));
        }
        let missing: ObjectReference = from(json!({"apiVersion": "v1", "kind": "Namespace", "name": "none"}));
        let error = get(&client, Some(&missing)).await.expect_err("no namespace");
        assert_eq!(error.to_string(), "failed to retrieve Namespace none: namespaces \"none\" not found");
        Ok(())
    }

    async fn a_contract_versioned_reference_is_read_in_the_latest_version(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "contract-get").await?;
        let labels = [("cluster.x-k8s.io/v1beta1", "v1"), ("cluster.x-k8s.io/v1beta2", "v2beta1_v2alpha1")];
        provider.install(&env, &["v1", "v2alpha1", "v2beta1"], &labels).await?;
        provider.create("a", json!({})).await?;
        let reference = provider.contract_reference("a");
        let read = get_from_contract_versioned_ref(&provider.client, &reference, &provider.namespace).await?;
        let types = read.types.clone().expect("types");
        assert_eq!(types.api_version, format!("{}/v2beta1", provider.group));
        Ok(())
    }

    async fn an_undefined_contract_versioned_reference_is_an_error(env: Env) -> anyhow::Result<()> {
        let client = Client::new(env.client()?)?;
        let undefined = ContractVersionedObjectReference::default();
        let error = get_from_contract_versioned_ref(&client, &undefined, "default").await;
        let error = error.expect_err("no reference").to_string();
        assert_eq!(error, "cannot get object - object reference not set");
        Ok(())
    }

    async fn a_missing_object_of_a_contract_versioned_reference_is_a_not_found(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "contract-missing").await?;
        let reference = provider.contract_reference("a");
        let error = get_from_contract_versioned_ref(&provider.client, &reference, &provider.namespace).await;
        let error = error.expect_err("no object");
        assert!(error.is_not_found(), "{error}");
        let expected = format!(
            "failed to retrieve {}: sheds.{} \"a\" not found", provider.described("a"), provider.group,
        );
        assert_eq!(error.to_string(), expected);
        Ok(())
    }

    async fn a_missing_crd_of_a_contract_versioned_reference_is_not_a_not_found(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "contract-absent").await?;
        let reference = provider.contract_reference("a");
        let error = get_from_contract_versioned_ref(&provider.client, &reference, &provider.namespace).await;
        let error = error.expect_err("no CRD");
        assert!(matches!(error, Error::NoDefinition(_)) && !error.is_not_found(), "{error}");
        assert!(std::error::Error::source(&error).is_none());
        let expected = format!(
            "failed to get object from ref: failed to get CustomResourceDefinition metadata: \
             customresourcedefinitions.apiextensions.k8s.io \"sheds.{}\" not found", provider.group,
        );
        assert_eq!(error.to_string(), expected);
        Ok(())
    }

    async fn a_crd_without_contract_labels_is_an_error(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "contract-unlabelled").await?;
        provider.install(&env, &["v1"], &[]).await?;
        let reference = provider.contract_reference("a");
        let error = get_from_contract_versioned_ref(&provider.client, &reference, &provider.namespace).await;
        let error = error.expect_err("no label").to_string();
        let expected = format!(
            "failed to get object from ref: cannot find any versions matching contract versions \
             [\"v1beta2\" \"v1beta1\"] for CRD sheds.{} as contract version label(s) are either missing or \
             empty (see https://cluster-api.sigs.k8s.io/developer/providers/contracts/overview.html\
             #api-version-labels)", provider.group,
        );
        assert_eq!(error, expected);
        Ok(())
    }

    /// The user may discover kinds, and read nothing.
    async fn a_forbidden_read_of_a_crd_keeps_its_class(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "contract-forbidden").await?;
        if let Env::Embedded(embedded) = &env {
            embedded.server().faults().add(Fault::on("get customresourcedefinitions").status(403));
        }
        let client = Client::new(env.client_as("external-nobody", &[])?)?;
        let reference = provider.contract_reference("a");
        let error = get_from_contract_versioned_ref(&client, &reference, &provider.namespace).await;
        let error = error.expect_err("forbidden");
        let status = error.request().and_then(client::Error::status).expect("a status");
        assert_eq!((status.code, &*status.reason), (403, "Forbidden"));
        let start = "failed to get object from ref: failed to get CustomResourceDefinition metadata: ";
        assert!(error.to_string().starts_with(start) && !error.is_not_found(), "{error}");
        Ok(())
    }

    async fn delete_deletes_the_object_of_a_reference(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "delete").await?;
        provider.create("a", json!({})).await?;
        let reference = provider.reference("a");
        delete(&provider.client, Some(&reference)).await?;
        let error = get(&provider.client, Some(&reference)).await.expect_err("the object is deleted");
        assert!(error.is_not_found(), "{error}");
        Ok(())
    }

    async fn delete_of_an_object_with_finalizers_only_marks_it(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "delete-finalizer").await?;
        provider.create("a", json!({"metadata": {"finalizers": ["example.com/wait"]}})).await?;
        let reference = provider.reference("a");
        delete(&provider.client, Some(&reference)).await?;
        let marked = get(&provider.client, Some(&reference)).await?;
        assert!(marked.metadata.deletion_timestamp.is_some());
        delete(&provider.client, Some(&reference)).await?;
        let sheds = provider.client.dynamic(&provider.kind("v1"));
        let unfinalized = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        sheds.patch(&provider.key("a"), &unfinalized).await?;
        Ok(())
    }

    async fn delete_reports_a_missing_object(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "delete-missing").await?;
        let error = delete(&provider.client, Some(&provider.reference("a"))).await;
        let error = error.expect_err("no object");
        assert!(error.is_not_found(), "{error}");
        let expected = format!(
            "failed to delete {}: sheds.{} \"a\" not found", provider.described("a"), provider.group,
        );
        assert_eq!(error.to_string(), expected);
        Ok(())
    }

    async fn delete_without_a_reference_is_an_error(env: Env) -> anyhow::Result<()> {
        let client = Client::new(env.client()?)?;
        let error = delete(&client, None).await.expect_err("no reference");
        assert!(matches!(error, Error::NothingToDelete) && !error.is_not_found());
        assert_eq!(error.to_string(), "cannot delete object - object reference not set");
        Ok(())
    }

    async fn failures_and_readiness_are_read_from_the_status(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "status").await?;
        provider.create("a", json!({})).await?;
        let new = get(&provider.client, Some(&provider.reference("a"))).await?;
        assert_eq!(failures_from(&new)?, (String::new(), String::new()));
        assert!(!is_ready(&new)?);
        let status = json!({"ready": true, "failureReason": "Broken", "failureMessage": "no disk"});
        let sheds = provider.client.status().dynamic(&provider.kind("v1"));
        sheds.patch(&provider.key("a"), &Patch::Merge(json!({ "status": status }))).await?;
        let failed = get(&provider.client, Some(&provider.reference("a"))).await?;
        assert_eq!(failures_from(&failed)?, ("Broken".to_owned(), "no disk".to_owned()));
        assert!(is_ready(&failed)?);
        Ok(())
    }

    /// The informer has a transform that marks its objects.
    async fn a_declared_kind_is_read_from_the_cache(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "cached").await?;
        provider.create("a", json!({"spec": {"size": 3}})).await?;
        let cache = Cache::new(env.client()?, CacheOptions::default())?;
        tokio::spawn(cache.clone().run_until(std::future::pending()));
        let client = provider.client.with_cache(cache.clone());
        let reference = provider.reference("a");
        let live = get(&client, Some(&reference)).await?;
        assert_eq!(live.data["marked"], json!(null), "the kind is not declared");

        let select = Select::dynamic(provider.kind("v1")).namespaces(Namespaces::All);
        let sheds = cache.informer_of(select.transform(|shed| shed.data["marked"] = json!(true)))?;
        sheds.await_synced().await?;
        let cached = get(&client, Some(&reference)).await?;
        assert_eq!(cached.data["marked"], json!(true));
        let versionless = provider.contract_reference("a");
        let cached = get_from_contract_versioned_ref(&client, &versionless, &provider.namespace).await?;
        assert_eq!(cached.data["marked"], json!(true));

        let error = get(&client, Some(&provider.reference("b"))).await.expect_err("no object");
        let expected = format!(
            "failed to retrieve {}: sheds.{} \"b\" not found", provider.described("b"), provider.group,
        );
        assert!(error.is_not_found() && error.to_string() == expected, "{error}");
        Ok(())
    }

    async fn a_kind_of_which_only_metadata_is_cached_is_read_live(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "cached-metadata").await?;
        provider.create("a", json!({"spec": {"size": 3}})).await?;
        let cache = Cache::new(env.client()?, CacheOptions::default())?;
        tokio::spawn(cache.clone().run_until(std::future::pending()));
        let metadata = cache.informer_of(Select::dynamic_metadata(provider.kind("v1")))?;
        metadata.await_synced().await?;
        let client = provider.client.with_cache(cache);
        let read = get(&client, Some(&provider.reference("a"))).await?;
        assert_eq!(read.data["spec"]["size"], json!(3));
        Ok(())
    }

    /// An informer of a removed version has no objects, and they still exist in another version.
    async fn an_object_in_a_version_that_is_not_served_any_more_does_not_count_as_missing(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "unserved").await?;
        provider.install(&env, &["v2", "v1"], &[CURRENT]).await?;
        provider.create("a", json!({})).await?;
        let cache = Cache::new(env.client()?, CacheOptions::default())?;
        tokio::spawn(cache.clone().run_until(std::future::pending()));
        let sheds = cache.informer_of(Select::dynamic(provider.kind("v1")))?;
        sheds.await_synced().await?;
        let client = provider.client.with_cache(cache);
        get(&client, Some(&provider.reference("a"))).await?;

        provider.install(&env, &["v2"], &[CURRENT]).await?;
        let error = eventually(async || {
            match get(&client, Some(&provider.reference("a"))).await {
                Ok(_) => Ok(None),
                Err(error) if error.is_not_found() => Err(error),
                Err(error) => Ok(Some(error)),
            }
        });
        let error = error.await?;
        assert!(error.request().is_some_and(client::Error::is_kind_not_found), "{error}");
        Ok(())
    }
}

#[tokio::test]
async fn a_cached_read_sends_no_request() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let Env::Embedded(embedded) = &env else {
        unreachable!("it is embedded")
    };
    let provider = Provider::new(&env, "requests").await?;
    provider.create("a", json!({})).await?;
    let cache = Cache::new(env.client()?, CacheOptions::default())?;
    tokio::spawn(cache.clone().run_until(std::future::pending()));
    let sheds = cache.informer_of(Select::dynamic(provider.kind("v1")))?;
    let crds = cache.informer::<external::contract::CrdMetadata>()?;
    sheds.await_synced().await?;
    crds.await_synced().await?;
    let client = Client::new(env.client()?)?.with_cache(cache);
    let reference = provider.contract_reference("a");
    let read = || get_from_contract_versioned_ref(&client, &reference, &provider.namespace);
    read().await?;
    embedded.server().journal().clear();
    for _ in 0..10 {
        read().await?;
        get(&client, Some(&provider.reference("a"))).await?;
        let missing = get(&client, Some(&provider.reference("b"))).await;
        assert!(missing.is_err_and(|error| error.is_not_found()));
    }
    assert_eq!(embedded.server().journal().count("* *"), 0);
    Ok(())
}

#[tokio::test]
async fn a_request_that_fails_is_an_error_with_its_class() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let Env::Embedded(embedded) = &env else {
        unreachable!("it is embedded")
    };
    let provider = Provider::new(&env, "class").await?;
    provider.create("a", json!({})).await?;
    let faults = embedded.server().faults();
    let reference = provider.reference("a");
    for (verb, code, reason) in [("get", 500, "InternalError"), ("delete", 409, "Conflict")] {
        faults.add(Fault::on(&format!("{verb} sheds")).status(code));
        let error = match verb {
            "get" => get(&provider.client, Some(&reference)).await.map(drop),
            _ => delete(&provider.client, Some(&reference)).await,
        };
        let error = error.expect_err("a fault");
        let status = error
            .request()
            .and_then(client::Error::status)
            .expect("a status");
        assert_eq!((status.code, &*status.reason), (code, reason));
        let (Error::Retrieve(failed) | Error::Delete(failed)) = &error else {
            panic!("{error}")
        };
        assert!(matches!(failed.cause(), RequestError::Client(_)));
        let text = anyhow::Error::new(error);
        assert_eq!(
            format!("{text:#}"),
            format!("{text}: {reason}"),
            "the cause is printed once"
        );
        faults.clear();
    }
    Ok(())
}
