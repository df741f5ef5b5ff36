//! Duration of requests.

use crate::{
    Rows,
    fixture::{PATH, fill, request, runtime, server, widget},
};
use bytes::Bytes;
use serde_json::json;
use std::time::{Duration, Instant};
use steersman_apiserver::{ApiServer, Options};

fn micros(total: Duration, count: usize) -> f64 {
    total.as_secs_f64() * 1e6 / count as f64
}

/// Time from creating a server to its first response.
pub(crate) fn ready(_: bool) -> Rows {
    runtime().block_on(async {
        let start = Instant::now();
        let server = ApiServer::new(Options::default()).expect("the server starts");
        request(&mut server.service(), "GET", "/readyz", Bytes::new()).await;
        vec![("ready", "us", micros(start.elapsed(), 1))]
    })
}

/// Requests for custom resources of 1 KB, with 100,000 of them stored.
pub(crate) fn requests(quick: bool) -> Rows {
    let count = if quick { 5_000 } else { 50_000 };
    runtime().block_on(async {
        let (_server, mut service) = server(10_000).await;
        fill(&mut service, 100_000, 1_000).await;
        let bodies: Vec<Bytes> = (0..count)
            .map(|n| widget(&format!("new-{n:06}"), 1_000).to_string().into())
            .collect();
        let start = Instant::now();
        for body in bodies {
            request(&mut service, "POST", PATH, body).await;
        }
        let create = micros(start.elapsed(), count);
        let start = Instant::now();
        for n in 0..count {
            request(
                &mut service,
                "GET",
                &format!("{PATH}/widget-{:06}", n * 7919 % 100_000),
                Bytes::new(),
            )
            .await;
        }
        let get = micros(start.elapsed(), count);
        let start = Instant::now();
        for n in 0..count {
            let patch = json!({"spec": {"replicas": n % 1000}}).to_string().into();
            request(
                &mut service,
                "PATCH",
                &format!("{PATH}/widget-{:06}", n * 7919 % 100_000),
                patch,
            )
            .await;
        }
        let update = micros(start.elapsed(), count);
        let lists = count / 100;
        let start = Instant::now();
        for _ in 0..lists {
            request(
                &mut service,
                "GET",
                &format!("{PATH}?limit=500"),
                Bytes::new(),
            )
            .await;
        }
        let list = micros(start.elapsed(), lists);
        vec![
            ("create-100k", "us", create),
            ("get-100k", "us", get),
            ("update-100k", "us", update),
            ("list-500-of-100k", "us", list),
        ]
    })
}
