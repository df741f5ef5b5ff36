//! Which page is where.

use super::{
    debug::{json, limit},
    health::{self, Asked},
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

/// What Prometheus calls the format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
pub(super) struct Pages {
    pub(super) manager: ManagerHandle,
    pub(super) debug: bool,
    pub(super) tells_why: bool,
}

impl Pages {
    pub(super) fn router(self, further: Option<Router>) -> Router {
        let debug = self.debug;
        let mut router = Router::new().route("/metrics", get(metrics));
        router = of_probe(router, "/healthz", Probe::Health);
        router = of_probe(router, "/readyz", Probe::Ready);
        if debug {
            router = router
                .route("/debug/controllers", get(|State(it): State<Self>| json(move || Some(it.manager.controllers()))))
                .route("/debug/queues", get(|State(it): State<Self>| json(move || Some(it.manager.queues()))))
                .route("/debug/queues/{*controller}", get(queue))
                .route("/debug/caches", get(|State(it): State<Self>| json(move || Some(it.manager.caches()))))
                .route(
                    "/debug/leases",
                    get(|State(it): State<Self>| json(move || Some(Vec::from_iter(it.manager.lease())))),
                )
                .route("/debug/checks", get(checks));
        } else {
            router = router.route("/debug/{*page}", get(hidden));
        }
        let router = router.with_state(self);
        match further {
            Some(further) => router.fallback_service(further),
            None => router,
        }
    }
}

fn of_probe(router: Router<Pages>, path: &str, probe: Probe) -> Router<Pages> {
    let all = move |State(pages): State<Pages>, uri: Uri| async move {
        let asked = Asked::from_query(uri.query().unwrap_or_default());
        let checks = pages.manager.checks();
        let excluded = checks.names(probe).into_iter().filter(|name| asked.excludes(name)).collect();
        let reports = checks.ask(probe, |name| !asked.excludes(name)).await;
        health::respond(health::all(probe, reports, excluded, &asked))
    };
    let one = move |State(pages): State<Pages>, Path(check): Path<String>| async move {
        let reports = pages.manager.checks().ask(probe, |name| name == check).await;
        match health::one(probe, reports, &check, pages.tells_why) {
            Some(said) => health::respond(said),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    };
    router.route(path, get(all)).route(&format!("{path}/"), get(all)).route(&format!("{path}/{{*check}}"), get(one))
}

async fn metrics(State(pages): State<Pages>) -> Response {
    match spawn_blocking(move || pages.manager.metrics_page()).await {
        Ok(page) => ([(header::CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS))], page).into_response(),
        // A panic of somebody's collector, which has been told.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn queue(State(pages): State<Pages>, Path(controller): Path<String>, uri: Uri) -> Response {
    let most = limit(uri.query().unwrap_or_default());
    json(move || pages.manager.queue(&controller, most)).await
}

async fn checks(State(pages): State<Pages>) -> Response {
    let (health, ready) = tokio::join!(pages.manager.check(Probe::Health), pages.manager.check(Probe::Ready));
    json(move || Some(serde_json::json!({ "healthz": health, "readyz": ready }))).await
}

async fn hidden() -> Response {
    let words = "debug pages are for this machine, or for whom the cluster allows them: set `Admin::access` or `Admin::debug`\n";
    (StatusCode::FORBIDDEN, words).into_response()
}
