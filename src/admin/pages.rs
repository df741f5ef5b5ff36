//! Routes of the admin server.

use super::{
    debug::{json, limit, parameter},
    health::{self, HealthQuery},
};
use crate::manager::{ManagerHandle, Probe};
use axum::{
    Router,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderValue, StatusCode, Uri, header};
use tokio::task::spawn_blocking;

/// Content type of the metrics page.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
pub(super) struct Pages {
    pub(super) manager: ManagerHandle,
    pub(super) debug: bool,
    pub(super) shows_reason: bool,
}

impl Pages {
    pub(super) fn router(self, extra_routes: Option<Router>) -> Router {
        let debug = self.debug;
        let mut router = Router::new().route("/metrics", get(metrics));
        router = of_probe(router, "/healthz", Probe::Health);
        router = of_probe(router, "/readyz", Probe::Ready);
        if debug {
            router = router
                .route(
                    "/debug/controllers",
                    get(|State(pages): State<Self>| {
                        json(move || Some(pages.manager.controllers()))
                    }),
                )
                .route(
                    "/debug/queues",
                    get(|State(pages): State<Self>| json(move || Some(pages.manager.queues()))),
                )
                .route("/debug/queues/{*controller}", get(queue))
                .route(
                    "/debug/caches",
                    get(|State(pages): State<Self>| json(move || Some(pages.manager.caches()))),
                )
                .route(
                    "/debug/leases",
                    get(|State(pages): State<Self>| {
                        json(move || Some(Vec::from_iter(pages.manager.lease())))
                    }),
                )
                .route("/debug/checks", get(checks));
        } else {
            router = router.route("/debug/{*page}", get(hidden));
        }
        let router = router.with_state(self);
        match extra_routes {
            Some(routes) => router.fallback_service(routes),
            None => router,
        }
    }
}

fn of_probe(router: Router<Pages>, path: &str, probe: Probe) -> Router<Pages> {
    let all = move |State(pages): State<Pages>, uri: Uri| async move {
        let query = HealthQuery::from_query(uri.query().unwrap_or_default());
        let checks = pages.manager.checks();
        let excluded = checks
            .names(probe)
            .into_iter()
            .filter(|name| query.excludes(name))
            .collect();
        let reports = checks.run(probe, |name| !query.excludes(name)).await;
        health::respond(health::all(probe, reports, excluded, &query))
    };
    let one = move |State(pages): State<Pages>, Path(check): Path<String>| async move {
        let reports = pages
            .manager
            .checks()
            .run(probe, |name| name == check)
            .await;
        match health::single(probe, reports, &check, pages.shows_reason) {
            Some(response) => health::respond(response),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    };
    router
        .route(path, get(all))
        .route(&format!("{path}/"), get(all))
        .route(&format!("{path}/{{*check}}"), get(one))
}

async fn metrics(State(pages): State<Pages>) -> Response {
    match spawn_blocking(move || pages.manager.metrics_page()).await {
        Ok(page) => (
            [(header::CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS))],
            page,
        )
            .into_response(),
        // A collector panicked, which was logged.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn queue(State(pages): State<Pages>, Path(controller): Path<String>, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    let limit = limit(query);
    let key = parameter(query, "key");
    json(move || pages.manager.queue(&controller, limit, key.as_deref())).await
}

async fn checks(State(pages): State<Pages>) -> Response {
    let (health, ready) = tokio::join!(
        pages.manager.check(Probe::Health),
        pages.manager.check(Probe::Ready)
    );
    json(move || Some(serde_json::json!({ "healthz": health, "readyz": ready }))).await
}

async fn hidden() -> Response {
    let text = "cannot serve debug pages to other hosts: access is not configured; set \
                 `Admin::access` or `Admin::debug`\n";
    (StatusCode::FORBIDDEN, text).into_response()
}
