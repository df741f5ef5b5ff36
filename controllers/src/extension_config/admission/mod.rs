//! Admission rules of the kind `ExtensionConfig`, with the error texts of Cluster API.
//!
//! Use them in a webhook. The reconciler checks them too, because the cluster may have no webhook.
//! The errors of an object always have the same order and text, so the reconciler can write them to
//! a condition.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | [`validate`] and [`default`] |
//! | `field_error.rs` | [`FieldError`] and [`Invalid`] |
//! | `dns.rs` | DNS labels and subdomains |
//! | `labels.rs` | label keys and values |
//! | `request_uri.rs` | URLs and absolute paths |

pub(super) mod dns;
mod field_error;
pub(super) mod labels;
mod request_uri;

pub use self::field_error::{FieldError, FieldErrorKind, Invalid};

use super::{
    ClientConfig, ExtensionConfig, NamespaceSelector, ServiceReference,
    go::{json, quoted},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;
use std::collections::BTreeMap;

/// Port of a `ServiceReference` without `port`.
pub const DEFAULT_PORT: i32 = 443;

/// Checks an `ExtensionConfig` that is created or updated.
///
/// Errors: [`Invalid`] has the errors of all fields.
///
/// ```
/// use steersman_controllers::extension_config::{admission, ExtensionConfig};
///
/// let config: ExtensionConfig = serde_json::from_value(serde_json::json!({
///     "metadata": {"name": "quota"},
///     "spec": {"clientConfig": {"url": "http://quota.example.com"}, "namespaceSelector": {}},
/// }))?;
/// let error = admission::validate(&config).unwrap_err();
/// assert_eq!(error.errors()[0].field, "spec.clientConfig.url");
/// assert!(error.to_string().ends_with("'https' is the only allowed URL scheme, e.g. https://example.com"));
/// # Ok::<_, serde_json::Error>(())
/// ```
pub fn validate(config: &ExtensionConfig) -> Result<(), Invalid> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let mut errors = Vec::new();
    let texts = dns::label_1123(name);
    if !texts.is_empty() {
        let texts = texts.join(" ");
        let detail =
            format!("ExtensionConfig name should be a valid DNS1123 label name: [{texts}]");
        errors.push(FieldError::invalid("metadata.name", quoted(name), detail));
    }
    client_config(&config.spec.client_config, &mut errors);
    namespace_selector(config.spec.namespace_selector.as_ref(), &mut errors);
    Invalid::from_errors(name, errors)
}

/// Sets the defaults of Cluster API's webhook: all namespaces, and port 443 of the Service.
///
/// Use it in a webhook. The CRD of [`definitions()`](super::definitions()) has the same defaults.
pub fn default(config: &mut ExtensionConfig) {
    config.spec.namespace_selector.get_or_insert_default();
    if let Some(service) = &mut config.spec.client_config.service
        && is_defined(service)
    {
        service.port.get_or_insert(DEFAULT_PORT);
    }
}

/// Returns whether any field is set. Cluster API treats an empty Service as absent.
fn is_defined(service: &ServiceReference) -> bool {
    *service != ServiceReference::default()
}

fn client_config(config: &ClientConfig, errors: &mut Vec<FieldError>) {
    let url = config.url.as_deref().filter(|url| !url.is_empty());
    let service = config
        .service
        .as_ref()
        .filter(|service| is_defined(service));
    match (url, service) {
        (None, None) => errors.push(FieldError::required(
            "spec.clientConfig",
            "either url or service must be defined",
        )),
        (Some(_), Some(_)) => errors.push(FieldError::forbidden(
            "spec.clientConfig",
            "only one of url or service can be defined",
        )),
        _ => {}
    }
    if let Some(text) = url {
        let detail = match request_uri::scheme(text) {
            Ok(scheme) if scheme.eq_ignore_ascii_case("https") => None,
            Ok(_) => {
                Some("'https' is the only allowed URL scheme, e.g. https://example.com".into())
            }
            Err(error) => Some(format!(
                "must be a valid URL, e.g. https://example.com: {error}"
            )),
        };
        errors.extend(
            detail.map(|detail| FieldError::invalid("spec.clientConfig.url", quoted(text), detail)),
        );
    }
    if let Some(service) = service {
        service_reference(service, errors);
    }
}

fn service_reference(service: &ServiceReference, errors: &mut Vec<FieldError>) {
    let names = [
        ("name", &service.name, dns::label_1035(&service.name)),
        (
            "namespace",
            &service.namespace,
            dns::label_1123(&service.namespace),
        ),
    ];
    for (field, value, texts) in names {
        let field = format!("spec.clientConfig.service.{field}");
        if value.is_empty() {
            errors.push(FieldError::required(&field, "must not be empty"));
        }
        let texts = texts.into_iter();
        errors.extend(texts.map(|text| FieldError::invalid(&field, quoted(value), text)));
    }
    if let Some(path) = service.path.as_ref().filter(|path| !path.is_empty()) {
        let field = "spec.clientConfig.service.path";
        if let Err(error) = request_uri::scheme(path) {
            let detail = format!("must be a valid URL path e.g. /path/to/hook: {error}");
            errors.push(FieldError::invalid(field, quoted(path), detail));
        }
        if !path.starts_with('/') {
            let detail = "must start with \"/\" to be a valid URL path";
            errors.push(FieldError::invalid(field, quoted(path), detail));
        }
    }
    if let Some(port) = service.port
        && !(1..=65535).contains(&port)
    {
        let field = "spec.clientConfig.service.port";
        let detail = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(field, port.to_string(), detail));
    }
}

fn namespace_selector(selector: Option<&LabelSelector>, errors: &mut Vec<FieldError>) {
    let field = "spec.namespaceSelector";
    let Some(present) = selector else {
        errors.push(FieldError::required(field, "must be defined"));
        return;
    };
    if let Err(error) = NamespaceSelector::try_from(selector) {
        let value = json(&PrintedSelector::from(present));
        errors.push(FieldError::invalid(field, value, error.to_string()));
    }
}

/// [`LabelSelector`] with the JSON of Go: another order of fields, and no empty lists.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedSelector<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    match_labels: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<PrintedRequirement<'a>>,
}

#[derive(Serialize)]
struct PrintedRequirement<'a> {
    key: &'a str,
    operator: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    values: &'a [String],
}

impl<'a> From<&'a LabelSelector> for PrintedSelector<'a> {
    fn from(selector: &'a LabelSelector) -> Self {
        let labels = selector.match_labels.as_ref();
        let requirements = selector.match_expressions.iter().flatten();
        Self {
            match_labels: labels.filter(|labels| !labels.is_empty()),
            match_expressions: requirements
                .map(|requirement| PrintedRequirement {
                    key: &requirement.key,
                    operator: &requirement.operator,
                    values: requirement.values.as_deref().unwrap_or_default(),
                })
                .collect(),
        }
    }
}
