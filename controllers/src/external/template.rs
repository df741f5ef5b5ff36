//! Objects that are cloned from templates.

use super::{
    Error, Failed, FieldError, GroupKind,
    field::{decode, map_if_set},
    get,
    group_kind::parse_gvk,
    status::describe,
};
use crate::cluster_api::{
    ContractVersionedObjectReference, ObjectReference, TEMPLATE_SUFFIX, annotations, generate_name,
    labels,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{DynamicObject, TypeMeta};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use steersman::prelude::*;

/// Path of the content of the objects that are cloned from a template.
const CONTENT: [&str; 2] = ["spec", "template"];
const METADATA: [&str; 3] = ["spec", "template", "metadata"];

/// Input of [`create_from_template`].
#[derive(Clone, Debug)]
pub struct CreateFromTemplate<'a> {
    /// Client that reads the template and creates the object.
    pub client: &'a Client,
    /// Template to clone.
    pub template_ref: Option<&'a ObjectReference>,
    /// Namespace of the object.
    pub namespace: &'a str,
    /// Name of the object. Empty: the name of the template with a random suffix.
    pub name: &'a str,
    /// Name of the Cluster that the object belongs to.
    pub cluster_name: &'a str,
    /// Owner of the object. Default: the owners in the content of the template.
    pub owner_ref: Option<OwnerReference>,
    /// Labels to add.
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    pub annotations: BTreeMap<String, String>,
}

impl<'a> CreateFromTemplate<'a> {
    /// Creates the input for a template and a namespace. The other fields are empty.
    ///
    /// ```
    /// # use steersman::client::Client;
    /// # use steersman_controllers::{cluster_api::ObjectReference, external::CreateFromTemplate};
    /// # fn example(client: &Client, template: &ObjectReference) {
    /// let input = CreateFromTemplate {
    ///     name: "worker-1",
    ///     cluster_name: "shop",
    ///     ..CreateFromTemplate::new(client, Some(template), "default")
    /// };
    /// # }
    /// ```
    pub fn new(
        client: &'a Client,
        template_ref: Option<&'a ObjectReference>,
        namespace: &'a str,
    ) -> Self {
        Self {
            client,
            template_ref,
            namespace,
            name: "",
            cluster_name: "",
            owner_ref: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

/// Creates an object from a template. Returns it with a reference to it.
///
/// Reads the template with [`get`], and the object is that of [`generate_template`].
///
/// # Errors
/// The template cannot be read or cloned, or the API server rejects the object.
/// [`is_not_found`](Error::is_not_found) is true if the template does not exist.
pub async fn create_from_template(
    input: &CreateFromTemplate<'_>,
) -> Result<(DynamicObject, ContractVersionedObjectReference), Error> {
    let template = get(input.client, input.template_ref).await?;
    let template_ref = input.template_ref.ok_or(Error::NothingToGet)?;
    let object = generate_template(&GenerateTemplate {
        template: &template,
        template_ref,
        namespace: input.namespace,
        name: input.name,
        cluster_name: input.cluster_name,
        owner_ref: input.owner_ref.clone(),
        labels: input.labels.clone(),
        annotations: input.annotations.clone(),
    })?;
    let created = input.client.create(&object).await.map_err(|error| {
        let kind = object.types.as_ref().map(|types| &*types.kind);
        let key = ObjectKey::of(&object);
        let context = format!("failed to create {} {key}", kind.unwrap_or_default());
        Error::Create(Failed::new(context, error))
    })?;
    let reference = ContractVersionedObjectReference::to(&created);
    Ok((created, reference))
}

/// Input of [`generate_template`].
#[derive(Clone, Debug)]
pub struct GenerateTemplate<'a> {
    /// Template to clone.
    pub template: &'a DynamicObject,
    /// Reference to the template, which annotations of the object record.
    pub template_ref: &'a ObjectReference,
    /// Namespace of the object.
    pub namespace: &'a str,
    /// Name of the object. Empty: the name of the template with a random suffix.
    pub name: &'a str,
    /// Name of the Cluster that the object belongs to.
    pub cluster_name: &'a str,
    /// Owner of the object. Default: the owners in the content of the template.
    pub owner_ref: Option<OwnerReference>,
    /// Labels to add.
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    pub annotations: BTreeMap<String, String>,
}

/// Returns the object that a template describes, without creating it.
///
/// The object has the content of `spec.template`, which may be missing, with these changes:
///
/// | field | value |
/// |---|---|
/// | name, namespace | those of the input; a name is generated from that of the template |
/// | resource version, uid, self link, finalizers | none |
/// | owner references | that of the input, if it has one |
/// | annotations | of the content, then of the input, then name, kind and group of the template |
/// | labels | of the content, then of the input, then the name of the Cluster |
/// | `apiVersion` | of the content, or of the template |
/// | `kind` | of the content, or of the template without the suffix `Template` |
///
/// ```
/// use serde_json::json;
/// use steersman_controllers::external::{GenerateTemplate, generate_template};
/// # use std::collections::BTreeMap;
///
/// let template = serde_json::from_value(json!({
///     "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "DockerMachineTemplate",
///     "metadata": {"name": "workers"},
///     "spec": {"template": {"spec": {"customImage": "node"}}},
/// }))?;
/// let template_ref = serde_json::from_value(json!({
///     "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "DockerMachineTemplate",
///     "name": "workers",
/// }))?;
/// let machine = generate_template(&GenerateTemplate {
///     template: &template,
///     template_ref: &template_ref,
///     namespace: "default",
///     name: "",
///     cluster_name: "shop",
///     owner_ref: None,
///     labels: BTreeMap::new(),
///     annotations: BTreeMap::new(),
/// })?;
/// assert_eq!(machine.types.unwrap().kind, "DockerMachine");
/// assert!(machine.metadata.name.unwrap().starts_with("workers-"));
/// assert_eq!(machine.data["spec"]["customImage"], "node");
/// # Ok::<_, anyhow::Error>(())
/// ```
///
/// # Errors
/// `spec.template` or its metadata is not what the metadata of an object is.
pub fn generate_template(input: &GenerateTemplate<'_>) -> Result<DynamicObject, Error> {
    let mut object = content(input.template).map_err(|error| {
        let (kind, name) = describe(input.template);
        let context = format!("failed to retrieve Spec.Template map on {kind} {name}");
        Error::Field(Failed::new(context, error))
    })?;
    let template_types = input.template.types.clone().unwrap_or_default();
    let types = object.types.get_or_insert_default();
    if types.api_version.is_empty() {
        types.api_version = template_types.api_version;
    }
    if types.kind.is_empty() {
        let kind = &template_types.kind;
        types.kind = kind.strip_suffix(TEMPLATE_SUFFIX).unwrap_or(kind).into();
    }
    set_metadata(&mut object.metadata, input);
    Ok(object)
}

fn set_metadata(metadata: &mut ObjectMeta, input: &GenerateTemplate<'_>) {
    metadata.resource_version = None;
    metadata.finalizers = None;
    metadata.uid = None;
    metadata.self_link = None;
    metadata.name = Some(if input.name.is_empty() {
        let template = input.template.metadata.name.as_deref().unwrap_or_default();
        generate_name(&format!("{template}-"))
    } else {
        input.name.to_owned()
    });
    metadata.namespace = Some(input.namespace.to_owned()).filter(|name| !name.is_empty());
    if let Some(owner) = &input.owner_ref {
        metadata.owner_references = Some(vec![owner.clone()]);
    }

    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let reference = input.template_ref;
    let kind = parse_gvk(&text(&reference.api_version), &text(&reference.kind));
    let kind = GroupKind::from(&kind).to_string();
    let all = metadata.annotations.get_or_insert_default();
    all.extend(input.annotations.clone());
    all.insert(annotations::CLONED_FROM_NAME.into(), text(&reference.name));
    all.insert(annotations::CLONED_FROM_GROUP_KIND.into(), kind);

    let all = metadata.labels.get_or_insert_default();
    all.extend(input.labels.clone());
    all.insert(labels::CLUSTER_NAME.into(), input.cluster_name.to_owned());
}

/// Returns the content of `spec.template` as an object, empty if it is missing or null.
fn content(template: &DynamicObject) -> Result<DynamicObject, FieldError> {
    let mut content = map_if_set(template, &CONTENT)?.cloned().unwrap_or_default();
    let types = TypeMeta {
        api_version: take_text(&mut content, "apiVersion"),
        kind: take_text(&mut content, "kind"),
    };
    content.remove("metadata");
    let metadata = match map_if_set(template, &METADATA)? {
        Some(metadata) => decode(&METADATA, Value::Object(metadata.clone()))?,
        None => ObjectMeta::default(),
    };
    Ok(DynamicObject {
        types: Some(types),
        metadata,
        data: Value::Object(content),
    })
}

/// Removes a field. Returns an empty text if it is missing or not a string.
fn take_text(content: &mut Map<String, Value>, field: &str) -> String {
    match content.remove(field) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
