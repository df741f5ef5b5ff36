//! Whether all is well, as controller-runtime and Kubernetes itself say it.
//!
//! What holds: why a check fails is in the log, and not on the page, unless who asks may see debug pages, and asks for that one check.

use crate::manager::{CheckReport, Probe};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use std::{fmt::Write, sync::Arc};

/// What was asked for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Asked {
    verbose: bool,
    exclude: Vec<String>,
}

impl Asked {
    /// `?verbose&exclude=a&exclude=b,c`.
    pub(super) fn from_query(query: &str) -> Self {
        let mut asked = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "verbose" => asked.verbose = true,
                "exclude" => asked.exclude.extend(value.split(',').filter(|name| !name.is_empty()).map(str::to_owned)),
                _ => {}
            }
        }
        asked
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

/// All checks: what was said, and the names of those that were not asked.
pub(super) fn all(
    probe: Probe,
    reports: Vec<CheckReport>,
    excluded: Vec<Arc<str>>,
    asked: &Asked,
) -> (StatusCode, String) {
    let page = name(probe);
    let known = |name: &&String| excluded.iter().any(|excluded| **excluded == ***name);
    let unknown: Vec<_> = asked.exclude.iter().filter(|name| !known(name)).map(|name| format!("{name:?}")).collect();
    let said = reports.into_iter().map(|report| (report.name, Some(report.failure)));
    let mut checks: Vec<_> = said.chain(excluded.into_iter().map(|name| (name, None))).collect();
    checks.sort();
    let (mut failed, mut lines) = (false, String::new());
    for (name, said) in checks {
        // Writing to a string does not fail.
        let _ = match said {
            None => writeln!(lines, "[+]{name} excluded: ok"),
            Some(None) => writeln!(lines, "[+]{name} ok"),
            Some(Some(failure)) => {
                failed = true;
                tracing::info!(page, check = &*name, failure, "a check fails");
                writeln!(lines, "[-]{name} failed: reason withheld")
            }
        };
    }
    if !failed && !asked.verbose {
        return (StatusCode::OK, "ok".into());
    }
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        let _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for {unknown}");
    }
    let (code, ended) = if failed { (StatusCode::INTERNAL_SERVER_ERROR, "failed") } else { (StatusCode::OK, "passed") };
    let _ = writeln!(lines, "{page} check {ended}");
    (code, lines)
}

/// One check, or all of that name; `None` if there is none.
pub(super) fn one(
    probe: Probe,
    reports: Vec<CheckReport>,
    check: &str,
    tells_why: bool,
) -> Option<(StatusCode, String)> {
    let mut named = reports.into_iter().filter(|report| &*report.name == check).peekable();
    named.peek()?;
    let Some(failure) = named.find_map(|report| report.failure) else { return Some((StatusCode::OK, "ok".into())) };
    tracing::info!(page = name(probe), check, failure, "a check fails");
    let why = if tells_why { &*failure } else { "reason withheld" };
    Some((StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")))
}

/// Never to be kept, nor to be taken for something else.
pub(super) fn respond((code, text): (StatusCode, String)) -> Response {
    let mut response = (code, text).into_response();
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
