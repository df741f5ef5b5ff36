//! URLs of hooks.

use crate::extension_config::{ClientConfig, ServiceReference, catalog::GroupVersionHook};
use form_urlencoded::Serializer;
use http::{Uri, uri::Authority};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::time::Duration;

/// Port of a URL or a Service without one.
const HTTPS_PORT: u16 = 443;

/// Characters of a path that are percent-encoded, as by Go.
const ESCAPED_IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Error of computing a URL from the `clientConfig` of an `ExtensionConfig`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Neither `url` nor `service` is set.
    #[error("failed to compute URL: at least one of service and url should be defined in config")]
    Missing,
    /// `url` is not a URL.
    #[error("failed to compute URL: failed to parse url from clientConfig: {0}")]
    Invalid(String),
    /// The scheme of `url` is not `https`.
    #[error("failed to compute URL: expected https scheme, got {0}")]
    Scheme(String),
    /// `url` contains user info, which error messages would disclose.
    #[error("failed to compute URL: url from clientConfig contains user info; remove it")]
    UserInfo,
    /// `service` has a name, a namespace or a port that is not valid.
    #[error(
        "failed to compute URL: service {namespace}/{name} with port {port} is not valid; \
         correct it in clientConfig"
    )]
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
        /// Port of the Service.
        port: i32,
    },
}

/// Address of an extension server.
#[derive(Clone, Debug)]
pub(super) struct ExtensionUrl {
    authority: Authority,
    /// Service, if the `clientConfig` names one.
    pub(super) service: Option<ServiceReference>,
    /// Path prefix of all hooks. It can be percent-encoded.
    prefix: Vec<u8>,
    query: Vec<(String, String)>,
}

impl ExtensionUrl {
    /// Returns the address in `config`. `service` has precedence over `url`.
    pub(super) fn new(config: &ClientConfig) -> Result<Self, UrlError> {
        let service = config.service.as_ref();
        match service.filter(|service| **service != ServiceReference::default()) {
            Some(service) => Self::of_service(service),
            None => Self::parse(config.url.as_deref().unwrap_or_default()),
        }
    }

    fn of_service(service: &ServiceReference) -> Result<Self, UrlError> {
        let ServiceReference {
            namespace, name, ..
        } = service;
        let host = format!("{name}.{namespace}.svc");
        let port = service.port.map(u16::try_from).transpose();
        let authority = match port {
            Ok(None) => host.parse(),
            Ok(Some(port)) if port > 0 => format!("{host}:{port}").parse(),
            _ => "".parse(),
        };
        let is_plain = |authority: &Authority| authority.host() == host;
        let authority = authority.ok().filter(is_plain);
        let authority = authority.ok_or_else(|| UrlError::Service {
            namespace: namespace.clone(),
            name: name.clone(),
            port: service.port.unwrap_or(i32::from(HTTPS_PORT)),
        })?;
        Ok(Self {
            authority,
            service: Some(service.clone()),
            prefix: service.path.clone().unwrap_or_default().into(),
            query: Vec::new(),
        })
    }

    fn parse(url: &str) -> Result<Self, UrlError> {
        if url.is_empty() {
            return Err(UrlError::Missing);
        }
        let invalid = |reason: &dyn ToString| UrlError::Invalid(reason.to_string());
        let uri: Uri = url.parse().map_err(|error| invalid(&error))?;
        let scheme = uri.scheme_str().unwrap_or_default();
        if scheme != "https" {
            return Err(UrlError::Scheme(scheme.into()));
        }
        let authority = uri.authority().ok_or_else(|| invalid(&"missing host"))?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        if authority.host().is_empty() {
            return Err(invalid(&"missing host"));
        }
        // `Authority` accepts ports above 65535, for which it returns no port.
        let has_port = authority.as_str().len() > authority.host().len() + 1;
        if has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(invalid(&"invalid port"));
        }
        let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        Ok(Self {
            authority: authority.clone(),
            service: None,
            prefix: percent_decode_str(uri.path()).collect(),
            query: query.into_owned().collect(),
        })
    }

    /// Returns host and port as in the URL.
    pub(super) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Returns the host, an IPv6 address without brackets.
    pub(super) fn host(&self) -> &str {
        let host = self.authority.host();
        let address = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        address.unwrap_or(host)
    }

    pub(super) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(HTTPS_PORT)
    }

    /// Returns path and query of a call. `handler` is empty for a hook without handlers.
    pub(super) fn path_and_query(
        &self,
        hook: &GroupVersionHook,
        handler: &str,
        timeout: Duration,
    ) -> String {
        let GroupVersionHook {
            group,
            version,
            hook,
        } = hook;
        let (hook, handler) = (hook.to_lowercase(), handler.to_lowercase());
        let hook_path = format!("/{group}/{version}/{hook}/{handler}");
        let path = clean_path(&[&self.prefix, hook_path.as_bytes()].concat());
        let mut query = self.query.clone();
        query.push(("timeout".into(), go_duration(timeout)));
        query.sort_by(|one, other| one.0.cmp(&other.0));
        let query = Serializer::new(String::new()).extend_pairs(query).finish();
        format!("{}?{query}", percent_encode(&path, ESCAPED_IN_PATHS))
    }
}

/// Removes duplicate slashes and dot segments.
fn clean_path(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut clean = Vec::with_capacity(path.len());
    for segment in segments {
        clean.push(b'/');
        clean.extend_from_slice(segment);
    }
    clean
}

/// Formats a duration in whole seconds as Go does: `10s`, `1m30s`, `1h0m0s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension_config::catalog::{
        Hook,
        hooks::{BeforeClusterCreate, Discovery},
    };

    const TEN: Duration = Duration::from_secs(10);
    const PATH: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery?timeout=10s";

    fn of_url(url: &str) -> Result<ExtensionUrl, UrlError> {
        ExtensionUrl::new(&ClientConfig {
            url: Some(url.into()),
            ..ClientConfig::default()
        })
    }

    fn service(path: Option<&str>, port: Option<i32>) -> ClientConfig {
        ClientConfig {
            service: Some(ServiceReference {
                namespace: "shop".into(),
                name: "ext".into(),
                path: path.map(Into::into),
                port,
            }),
            ..ClientConfig::default()
        }
    }

    fn path(url: &ExtensionUrl) -> String {
        url.path_and_query(&Discovery::group_version_hook(), "", TEN)
    }

    #[test]
    fn a_service_has_a_name_in_the_cluster() {
        let url = ExtensionUrl::new(&service(None, None)).expect("valid");
        assert_eq!((url.authority(), url.port()), ("ext.shop.svc", 443));
        assert_eq!(path(&url), PATH);
        let url = ExtensionUrl::new(&service(Some("/a//b/../c d?x"), Some(8443))).expect("valid");
        assert_eq!((url.authority(), url.port()), ("ext.shop.svc:8443", 8443));
        assert_eq!(url.host(), "ext.shop.svc");
        assert_eq!(path(&url), format!("/a/c%20d%3Fx{PATH}"));
    }

    #[test]
    fn a_service_has_precedence_over_a_url() {
        let config = ClientConfig {
            url: Some("https://other".into()),
            ..service(None, None)
        };
        assert_eq!(
            ExtensionUrl::new(&config).expect("valid").host(),
            "ext.shop.svc"
        );
    }

    #[test]
    fn a_handler_is_the_last_segment_in_lower_case() {
        let url = of_url("https://host").expect("valid");
        let hook = BeforeClusterCreate::group_version_hook();
        assert_eq!(
            url.path_and_query(&hook, "Quota", Duration::from_secs(90)),
            "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclustercreate/quota?timeout=1m30s"
        );
    }

    #[test]
    fn the_query_of_a_url_is_kept_and_sorted() {
        let url = of_url("https://host:9443/pre%20fix/./?z=1&a=2+3").expect("valid");
        assert_eq!(url.authority(), "host:9443");
        let path_only = PATH.strip_suffix("?timeout=10s").expect("a suffix");
        assert_eq!(
            path(&url),
            format!("/pre%20fix{path_only}?a=2+3&timeout=10s&z=1")
        );
    }

    #[test]
    fn an_ipv6_address_has_brackets_only_in_the_url() {
        let url = of_url("https://[::1]:9443").expect("valid");
        assert_eq!(
            (url.authority(), url.host(), url.port()),
            ("[::1]:9443", "::1", 9443)
        );
    }

    #[test]
    fn invalid_addresses_are_errors() {
        let text = |config: &ClientConfig| {
            let error = ExtensionUrl::new(config).expect_err("invalid");
            error.to_string()
        };
        let of_text = |url: &str| of_url(url).expect_err(url).to_string();
        let missing =
            "failed to compute URL: at least one of service and url should be defined in config";
        assert_eq!(text(&ClientConfig::default()), missing);
        assert_eq!(
            of_text("http://host"),
            "failed to compute URL: expected https scheme, got http"
        );
        assert_eq!(
            of_text("/path"),
            "failed to compute URL: expected https scheme, got "
        );
        let parse = "failed to compute URL: failed to parse url from clientConfig: ";
        for url in [
            "https://",
            "https://a b",
            "https://host:70000",
            "https://host:0",
        ] {
            assert!(of_text(url).starts_with(parse), "{url}: {}", of_text(url));
        }
        let secret = of_text("https://admin:hunter2@host");
        assert!(secret.contains("user info") && !secret.contains("hunter2"));
        for port in [0, -1, 65536] {
            let expected = format!("service shop/ext with port {port} is not valid");
            let text = text(&service(None, Some(port)));
            assert!(text.contains(&expected), "{text}");
        }
        let mut injected = service(None, None);
        if let Some(service) = &mut injected.service {
            service.name = "evil.example.com:1/".into();
        }
        assert!(text(&injected).contains("is not valid"));
    }
}
