//! Health pages in the format of Kubernetes and controller-runtime.
//!
//! Invariant: the reason of a failed check is logged. It is on the page only if the client may see
//! debug pages and requests that single check.

use crate::manager::{CheckReport, Probe};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use std::{fmt::Write, sync::Arc};

/// Parameters of a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HealthQuery {
    verbose: bool,
    exclude: Vec<String>,
}

impl HealthQuery {
    /// Parses `?verbose&exclude=a&exclude=b,c`.
    pub(super) fn from_query(query: &str) -> Self {
        let mut parsed = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "verbose" => parsed.verbose = true,
                "exclude" => parsed.exclude.extend(
                    value
                        .split(',')
                        .filter(|name| !name.is_empty())
                        .map(str::to_owned),
                ),
                _ => {}
            }
        }
        parsed
    }

    pub(super) fn excludes(&self, check: &str) -> bool {
        self.exclude.iter().any(|name| name == check)
    }
}

pub(super) fn name(probe: Probe) -> &'static str {
    match probe {
        Probe::Health => "healthz",
        Probe::Ready => "readyz",
    }
}

/// Formats the results of all checks, and the names of the excluded ones.
pub(super) fn all(
    probe: Probe,
    reports: Vec<CheckReport>,
    excluded: Vec<Arc<str>>,
    query: &HealthQuery,
) -> (StatusCode, String) {
    let page = name(probe);
    let known = |name: &&String| excluded.iter().any(|excluded| **excluded == ***name);
    let unknown: Vec<_> = query
        .exclude
        .iter()
        .filter(|name| !known(name))
        .map(|name| format!("{name:?}"))
        .collect();
    let results = reports
        .into_iter()
        .map(|report| (report.name, Some(report.failure)));
    let mut checks: Vec<_> = results
        .chain(excluded.into_iter().map(|name| (name, None)))
        .collect();
    checks.sort();
    let (mut failed, mut lines) = (false, String::new());
    for (name, result) in checks {
        // Writing to a `String` does not fail.
        let _ = match result {
            None => writeln!(lines, "[+]{name} excluded: ok"),
            Some(None) => writeln!(lines, "[+]{name} ok"),
            Some(Some(failure)) => {
                failed = true;
                tracing::info!(page, check = &*name, error = failure, "health check failed");
                writeln!(lines, "[-]{name} failed: reason withheld")
            }
        };
    }
    if !failed && !query.verbose {
        return (StatusCode::OK, "ok".into());
    }
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        let _ = writeln!(
            lines,
            "warn: some health checks cannot be excluded: no matches for {unknown}"
        );
    }
    let (code, ended) = if failed {
        (StatusCode::INTERNAL_SERVER_ERROR, "failed")
    } else {
        (StatusCode::OK, "passed")
    };
    let _ = writeln!(lines, "{page} check {ended}");
    (code, lines)
}

/// Formats the results of the checks with one name; `None` if there are none.
pub(super) fn single(
    probe: Probe,
    reports: Vec<CheckReport>,
    check: &str,
    shows_reason: bool,
) -> Option<(StatusCode, String)> {
    let mut named = reports
        .into_iter()
        .filter(|report| &*report.name == check)
        .peekable();
    named.peek()?;
    let Some(failure) = named.find_map(|report| report.failure) else {
        return Some((StatusCode::OK, "ok".into()));
    };
    tracing::info!(
        page = name(probe),
        check,
        error = failure,
        "health check failed"
    );
    let reason = if shows_reason {
        &*failure
    } else {
        "reason withheld"
    };
    Some((
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("internal server error: {reason}\n"),
    ))
}

/// Adds headers that prevent caching and content sniffing.
pub(super) fn respond((code, text): (StatusCode, String)) -> Response {
    let mut response = (code, text).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
