//! Protects a server without authentication from web pages of other sites.
//!
//! A browser on the same machine can reach a server on loopback, and any web page can make the
//! browser send requests. [`BrowserGuard`] rejects the requests that such a page can cause:
//!
//! | attack | check |
//! |---|---|
//! | DNS rebinding: the page's own host name resolves to the server | the host is loopback or configured |
//! | cross-site `fetch` or form | `Origin` is the server's own, `Sec-Fetch-Site` is not `cross-site` |
//! | body without a content type, which browsers send without a preflight | a browser's body has a content type |
//!
//! `Sec-Fetch-Site: same-site` is accepted: a link from another port of localhost is harmless, and
//! every request that could read or change something carries an `Origin`.
//!
//! ```
//! use steersman_browser_guard::{BrowserGuard, Rejection};
//!
//! let guard = BrowserGuard::new(["metrics.example.com"])?;
//! let head = |host| http::Request::get("/metrics").header("host", host).body(()).unwrap().into_parts().0;
//! assert_eq!(guard.check(&head("127.0.0.1:8080"), false), Ok(()));
//! assert_eq!(guard.check(&head("metrics.example.com"), false), Ok(()));
//! assert_eq!(guard.check(&head("evil.example"), false), Err(Rejection::Host("evil.example".into())));
//! # Ok::<_, steersman_browser_guard::InvalidHost>(())
//! ```

use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_TYPE, HOST, ORIGIN},
    request::Parts,
    uri::Authority,
};
use std::{error::Error, fmt, net::IpAddr};

const SEC_FETCH_SITE: &str = "sec-fetch-site";
/// Health pages: the kubelet requests them with the pod's address as the host.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

/// Decides whether a request can come from a web page of another site.
///
/// Use it where requests are not authenticated. Tokens make it superfluous: a browser does not send
/// them by itself.
#[derive(Clone, Debug, Default)]
pub struct BrowserGuard {
    hosts: Vec<Host>,
}

impl BrowserGuard {
    /// Creates a guard that accepts `hosts` besides loopback.
    ///
    /// A host is a DNS name or an IP address, without a port. Each is accepted with every port.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Result<Self, InvalidHost> {
        let hosts = hosts.into_iter().map(|host| {
            let host = host.into();
            Host::configured(&host).ok_or(InvalidHost(host))
        });
        Ok(Self {
            hosts: hosts.collect::<Result<_, _>>()?,
        })
    }

    /// Checks the head of a request. `has_body` is whether a body follows.
    ///
    /// Health pages (`/healthz`, `/readyz` and below) accept every host, also a missing one. The
    /// host is the authority of the request's target (`:authority` in HTTP/2) and that of each
    /// `Host` header: all have to be accepted.
    pub fn check(&self, request: &Parts, has_body: bool) -> Result<(), Rejection> {
        let hosts: Vec<String> = hosts(request).collect();
        if !is_health(request.uri.path()) {
            if hosts.is_empty() {
                return Err(Rejection::NoHost);
            }
            if let Some(unknown) = hosts.iter().find(|host| !self.accepts(host)) {
                return Err(Rejection::Host(unknown.clone()));
            }
        }
        let headers = &request.headers;
        for origin in headers.get_all(ORIGIN) {
            let origin = text(origin);
            if !hosts
                .first()
                .is_some_and(|host| is_origin_of(&origin, host))
            {
                return Err(Rejection::Origin(origin));
            }
        }
        if headers
            .get_all(SEC_FETCH_SITE)
            .iter()
            .any(|site| site == "cross-site")
        {
            return Err(Rejection::CrossSite);
        }
        let is_untyped = headers.get(CONTENT_TYPE).is_none_or(HeaderValue::is_empty);
        if has_body && is_untyped && is_browser(headers) {
            return Err(Rejection::NoContentType);
        }
        Ok(())
    }

    fn accepts(&self, host: &str) -> bool {
        Host::requested(host).is_some_and(|host| host.is_loopback() || self.hosts.contains(&host))
    }
}

/// Host of a request or of the configuration, without the port.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    /// In lower case, without the dot that ends a fully qualified name.
    Name(String),
}

impl Host {
    /// Parses `host:port` of a request.
    fn requested(text: &str) -> Option<Self> {
        // Browsers send no user here.
        if text.contains('@') {
            return None;
        }
        let authority: Authority = text.parse().ok()?;
        let host = authority.host();
        match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(address) => address.parse().ok().map(Self::address),
            None => Self::named(host),
        }
    }

    /// Parses a configured host. An IPv6 address may have brackets.
    fn configured(text: &str) -> Option<Self> {
        let address = text.trim_start_matches('[').trim_end_matches(']');
        address
            .parse()
            .ok()
            .map(Self::address)
            .or_else(|| Self::named(text))
    }

    fn named(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        is_name.then(|| Self::Name(name.to_ascii_lowercase()))
    }

    fn address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

fn hosts(request: &Parts) -> impl Iterator<Item = String> {
    let target = request.uri.authority().map(ToString::to_string);
    target
        .into_iter()
        .chain(request.headers.get_all(HOST).iter().map(text))
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Compares the host and port of an origin. The scheme may differ: a proxy before the server may
/// terminate TLS.
fn is_origin_of(origin: &str, host: &str) -> bool {
    origin
        .split_once("://")
        .is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
}

fn is_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN)
        || headers
            .keys()
            .any(|name| name.as_str().starts_with("sec-fetch-"))
}

fn is_health(path: &str) -> bool {
    HEALTH.iter().any(|page| {
        path.strip_prefix(page)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Reason why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// The host is neither loopback nor configured.
    Host(String),
    /// The request names no host.
    NoHost,
    /// A page of this other origin sends the request.
    Origin(String),
    /// The browser reports that a page of another site sends the request.
    CrossSite,
    /// A browser sends a body without a content type.
    NoContentType,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(
                f,
                "cannot serve host {host:?}: it is neither loopback nor configured"
            ),
            Self::NoHost => f.write_str("cannot serve a request without a host"),
            Self::Origin(origin) => write!(
                f,
                "cannot serve pages of origin {origin:?}: it is not this server's"
            ),
            Self::CrossSite => f.write_str("cannot serve pages of another site"),
            Self::NoContentType => {
                f.write_str("cannot read a body without a content type from a browser")
            }
        }
    }
}

impl Error for Rejection {}

/// A configured host is neither a DNS name nor an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHost(
    /// Rejected text.
    pub String,
);

impl fmt::Display for InvalidHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid host `{}`; use a DNS name or an IP address, without scheme and port",
            self.0
        )
    }
}

impl Error for InvalidHost {}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn head(target: &str, headers: &[(&str, &str)]) -> Parts {
        let request = headers
            .iter()
            .fold(Request::post(target), |request, (name, value)| {
                request.header(*name, *value)
            });
        request.body(()).unwrap().into_parts().0
    }

    fn check(target: &str, headers: &[(&str, &str)]) -> Result<(), Rejection> {
        BrowserGuard::new(["Ops.example.com.", "10.1.2.3", "[fd00::1]"])
            .unwrap()
            .check(&head(target, headers), true)
    }

    #[test]
    fn loopback_and_configured_hosts_are_accepted_with_any_port() {
        for host in [
            "localhost",
            "LocalHost.:8080",
            "127.0.0.1",
            "127.8.9.10:1",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
            "ops.example.com",
            "OPS.example.com.:9443",
            "10.1.2.3:8080",
            "[fd00:0::1]:1",
        ] {
            assert_eq!(check("/metrics", &[("host", host)]), Ok(()), "{host}");
        }
    }

    #[test]
    fn other_hosts_are_rejected() {
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "127.1",
            "localhost@evil.example",
            "evil.example@localhost",
            "0.0.0.0",
            "10.1.2.4:8080",
            "[::2]",
            "example.com",
            "local host",
        ] {
            assert_eq!(
                check("/metrics", &[("host", host)]),
                Err(Rejection::Host(host.into()))
            );
        }
        assert_eq!(check("/metrics", &[]), Err(Rejection::NoHost));
    }

    #[test]
    fn the_authority_of_the_target_and_every_host_header_have_to_be_accepted() {
        let rejected = Err(Rejection::Host("evil.example".into()));
        assert_eq!(check("http://evil.example/metrics", &[]), rejected);
        assert_eq!(
            check("http://evil.example/metrics", &[("host", "localhost")]),
            rejected
        );
        assert_eq!(
            check("http://localhost/metrics", &[("host", "evil.example")]),
            rejected
        );
        assert_eq!(
            check(
                "/metrics",
                &[("host", "localhost"), ("host", "evil.example")]
            ),
            rejected
        );
        assert_eq!(check("https://localhost/metrics", &[]), Ok(()));
    }

    #[test]
    fn health_pages_accept_any_host_and_nothing_else_does() {
        for path in ["/healthz", "/healthz/", "/readyz/cache"] {
            assert_eq!(check(path, &[("host", "10.9.9.9:8080")]), Ok(()));
            assert_eq!(check(path, &[]), Ok(()));
            assert_eq!(
                check(path, &[("host", "x"), ("sec-fetch-site", "cross-site")]),
                Err(Rejection::CrossSite)
            );
        }
        for path in ["/", "/livez", "/healthzz", "//healthz", "/debug/healthz"] {
            assert_eq!(
                check(path, &[("host", "x")]),
                Err(Rejection::Host("x".into()))
            );
        }
    }

    #[test]
    fn only_the_servers_own_origin_is_accepted() {
        let own = [
            ("host", "localhost:8080"),
            ("content-type", "application/json"),
        ];
        let with = |origin| check("/", &[own[0], own[1], ("origin", origin)]);
        assert_eq!(
            (
                with("http://localhost:8080"),
                with("https://LOCALHOST:8080")
            ),
            (Ok(()), Ok(()))
        );
        for foreign in [
            "http://evil.example",
            "http://localhost:3000",
            "http://localhost",
            "null",
            "",
            "localhost:8080",
        ] {
            assert_eq!(with(foreign), Err(Rejection::Origin(foreign.into())));
        }
        let both = [
            own[0],
            own[1],
            ("origin", "http://localhost:8080"),
            ("origin", "http://evil.example"),
        ];
        assert_eq!(
            check("/", &both),
            Err(Rejection::Origin("http://evil.example".into()))
        );
    }

    #[test]
    fn only_requests_of_other_sites_are_rejected_by_fetch_metadata() {
        let from = |site| {
            check(
                "/",
                &[
                    ("host", "localhost"),
                    ("sec-fetch-site", site),
                    ("content-type", "text/plain"),
                ],
            )
        };
        assert_eq!(from("cross-site"), Err(Rejection::CrossSite));
        for site in ["same-origin", "same-site", "none"] {
            assert_eq!(from(site), Ok(()));
        }
    }

    #[test]
    fn a_body_without_a_content_type_is_rejected_from_browsers_only() {
        let host = ("host", "localhost");
        for sign in [
            ("origin", "http://localhost"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-mode", "cors"),
        ] {
            assert_eq!(check("/", &[host, sign]), Err(Rejection::NoContentType));
            assert_eq!(
                check("/", &[host, sign, ("content-type", "")]),
                Err(Rejection::NoContentType)
            );
            assert_eq!(
                check("/", &[host, sign, ("content-type", "application/json")]),
                Ok(())
            );
            assert_eq!(
                BrowserGuard::default().check(&head("/", &[host, sign]), false),
                Ok(()),
                "there is no body"
            );
        }
        assert_eq!(check("/", &[host]), Ok(()), "curl and others");
    }

    #[test]
    fn a_configured_host_has_neither_scheme_nor_port() {
        for host in [
            "",
            "https://ops.example.com",
            "ops.example.com:8080",
            "10.1.2.3:80",
            "a b",
            "user@host",
            "*",
        ] {
            let error = BrowserGuard::new([host]).unwrap_err();
            assert!(
                error == InvalidHost(host.into())
                    && error.to_string().contains("without scheme and port"),
                "{error}"
            );
        }
    }
}
