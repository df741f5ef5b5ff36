//! Objects from templates.

use super::Provider;
use crate::support::{dynamic, from, provider_crd};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use steersman::{
    cache::Query,
    testing::{Env, TestServer},
};
use steersman_controllers::{
    cluster_api::ObjectReference,
    external::{
        CreateFromTemplate, Error, GenerateTemplate, create_from_template, generate_template, get,
    },
};

/// A provider with the kinds `Shed` and `ShedTemplate`.
pub(super) struct Templates {
    pub(super) provider: Provider,
}

impl Templates {
    pub(super) async fn new(env: &Env, group: &str) -> anyhow::Result<Self> {
        let provider = Provider::new(env, group).await?;
        let mut crd = provider_crd(
            &provider.group,
            "ShedTemplate",
            "shedtemplates",
            &["v1"],
            &[super::CURRENT],
        );
        // Accepts content that a provider would not.
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        *schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        env.install([crd]).await?;
        Ok(Self { provider })
    }

    /// Creates the template `workers`.
    pub(super) async fn create(&self, content: Value) -> anyhow::Result<DynamicObject> {
        let api_version = format!("{}/v1", self.provider.group);
        let mut template = dynamic(&api_version, "ShedTemplate", "workers", content);
        template.metadata.namespace = Some(self.provider.namespace.clone());
        Ok(self.provider.client.create(&template).await?)
    }

    /// Returns a reference to the template `workers`.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            kind: Some("ShedTemplate".into()),
            ..self.provider.reference("workers")
        }
    }

    pub(super) fn input<'a>(&'a self, reference: &'a ObjectReference) -> CreateFromTemplate<'a> {
        CreateFromTemplate {
            cluster_name: "shop",
            ..CreateFromTemplate::new(
                &self.provider.client,
                Some(reference),
                &self.provider.namespace,
            )
        }
    }

    /// Returns the number of objects of the kind `Shed`.
    pub(super) async fn count(&self) -> anyhow::Result<usize> {
        let sheds = self.provider.client.dynamic(&self.provider.kind("v1"));
        let query = Query::default().namespace(Some(&self.provider.namespace));
        Ok(sheds.list(&query).await?.len())
    }
}

fn entries(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    entries.collect()
}

steersman::env_test! {
    async fn create_from_template_creates_the_object_and_returns_a_reference(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template").await?;
        templates.create(json!({"spec": {"template": {"spec": {"size": 3}}}})).await?;
        let reference = templates.reference();
        let owner = templates.provider.create("owner", json!({})).await?;
        let (api_version, uid) = (format!("{}/v1", templates.provider.group), owner.metadata.uid);
        let owner = json!({"apiVersion": api_version, "kind": "Shed", "name": "owner", "uid": uid});
        let input = CreateFromTemplate {
            name: "worker-1",
            owner_ref: Some(from(owner)),
            ..templates.input(&reference)
        };
        let (created, created_ref) = create_from_template(&input).await?;
        assert_eq!(created_ref, templates.provider.contract_reference("worker-1"));
        let read = get(&templates.provider.client, Some(&templates.provider.reference("worker-1"))).await?;
        assert_eq!(*read, created);
        assert_eq!(read.data["spec"], json!({"size": 3}));
        assert_eq!(read.metadata.owner_references.as_ref().expect("an owner")[0].name, "owner");
        assert!(read.metadata.uid.is_some() && read.metadata.resource_version.is_some());
        Ok(())
    }

    async fn the_annotations_name_the_template(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-annotations").await?;
        templates.create(json!({})).await?;
        let reference = templates.reference();
        let input = CreateFromTemplate {
            annotations: entries(&[("example.com/a", "b")]),
            ..templates.input(&reference)
        };
        let (created, _) = create_from_template(&input).await?;
        let kind = format!("ShedTemplate.{}", templates.provider.group);
        let expected = entries(&[
            ("example.com/a", "b"),
            ("cluster.x-k8s.io/cloned-from-name", "workers"),
            ("cluster.x-k8s.io/cloned-from-groupkind", &kind),
        ]);
        assert_eq!(created.metadata.annotations, Some(expected));
        Ok(())
    }

    async fn the_labels_name_the_cluster(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-labels").await?;
        templates.create(json!({})).await?;
        let reference = templates.reference();
        let input = CreateFromTemplate {
            labels: entries(&[("cluster.x-k8s.io/control-plane", "")]),
            ..templates.input(&reference)
        };
        let (created, _) = create_from_template(&input).await?;
        let expected = entries(&[
            ("cluster.x-k8s.io/cluster-name", "shop"),
            ("cluster.x-k8s.io/control-plane", ""),
        ]);
        assert_eq!(created.metadata.labels, Some(expected));
        Ok(())
    }

    async fn a_name_is_generated_from_that_of_the_template(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-name").await?;
        templates.create(json!({})).await?;
        let reference = templates.reference();
        let (created, created_ref) = create_from_template(&templates.input(&reference)).await?;
        let name = created.metadata.name.expect("a name");
        assert!(name.starts_with("workers-") && name.len() == 13, "{name}");
        assert_eq!(created_ref.name, name);
        Ok(())
    }

    async fn the_kind_is_that_of_the_template_without_its_suffix(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-kind").await?;
        templates.create(json!({})).await?;
        let reference = templates.reference();
        let (created, _) = create_from_template(&templates.input(&reference)).await?;
        let types = created.types.expect("types");
        assert_eq!(types.kind, "Shed");
        assert_eq!(types.api_version, format!("{}/v1", templates.provider.group));
        assert_eq!(created.metadata.namespace, Some(templates.provider.namespace.clone()));
        Ok(())
    }

    async fn a_kind_in_the_content_of_the_template_has_priority(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-content").await?;
        let content = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}});
        templates.create(json!({"spec": {"template": content}})).await?;
        let reference = templates.reference();
        let (created, created_ref) = create_from_template(&templates.input(&reference)).await?;
        assert_eq!((&*created_ref.api_group, &*created_ref.kind), ("", "ConfigMap"));
        assert_eq!(created.data["data"], json!({"a": "b"}));
        Ok(())
    }

    async fn fields_of_another_object_in_the_content_are_cleared(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-cleared").await?;
        let metadata = json!({
            "resourceVersion": "7", "uid": "1", "selfLink": "/a", "finalizers": ["example.com/a"],
            "name": "other", "namespace": "other",
        });
        templates.create(json!({"spec": {"template": {"metadata": metadata}}})).await?;
        let reference = templates.reference();
        let (created, _) = create_from_template(&templates.input(&reference)).await?;
        let metadata = created.metadata;
        assert_eq!((metadata.finalizers, metadata.self_link), (None, None));
        assert_ne!(metadata.uid.as_deref(), Some("1"));
        assert_ne!(metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(metadata.namespace, Some(templates.provider.namespace.clone()));
        Ok(())
    }

    async fn generate_template_tolerates_a_template_without_content(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-generate").await?;
        let template = templates.create(json!({"spec": {"other": 1}})).await?;
        let reference = templates.reference();
        let generated = generate_template(&GenerateTemplate {
            template: &template,
            template_ref: &reference,
            namespace: &templates.provider.namespace,
            name: "generated",
            cluster_name: "shop",
            owner_ref: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        })?;
        assert_eq!(templates.count().await?, 0, "no object is created");
        let created = templates.provider.client.create(&generated).await?;
        assert_eq!(created.metadata.name.as_deref(), Some("generated"));
        Ok(())
    }

    async fn a_missing_template_is_a_not_found(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-missing").await?;
        let reference = templates.reference();
        let error = create_from_template(&templates.input(&reference)).await.expect_err("no template");
        assert!(error.is_not_found(), "{error}");
        let group = &templates.provider.group;
        let expected = format!(
            "failed to retrieve ShedTemplate {}/workers: shedtemplates.{group} \"workers\" not found",
            templates.provider.namespace,
        );
        assert_eq!(error.to_string(), expected);
        Ok(())
    }

    async fn an_object_that_exists_is_an_error_with_its_class(env: Env) -> anyhow::Result<()> {
        let templates = Templates::new(&env, "template-exists").await?;
        templates.create(json!({})).await?;
        templates.provider.create("worker-1", json!({})).await?;
        let reference = templates.reference();
        let input = CreateFromTemplate { name: "worker-1", ..templates.input(&reference) };
        let error = create_from_template(&input).await.expect_err("the object exists");
        let start = format!("failed to create {}: ", templates.provider.described("worker-1"));
        assert!(error.to_string().starts_with(&start), "{error}");
        assert!(matches!(error, Error::Create(_)) && !error.is_not_found());
        assert!(error.request().is_some_and(steersman::client::Error::is_already_exists), "{error}");
        Ok(())
    }
}
