//! Routing of requests to handlers.

use super::{
    body,
    handler::{Encoded, Handler},
};
use crate::extension_config::catalog::hooks::{Discovery, DiscoveryResponse};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use std::{collections::HashMap, net::SocketAddr};

/// Handlers by path, including the one that answers discovery.
pub(super) struct Routes(HashMap<String, Handler>);

impl Routes {
    /// Creates the routes. Discovery lists the handlers in the order of `handlers`.
    pub(super) fn new(handlers: Vec<Handler>) -> Self {
        let discovered = DiscoveryResponse {
            handlers: handlers.iter().map(Handler::describe).collect(),
            ..DiscoveryResponse::default()
        };
        let discovery = Handler::new::<Discovery, _, _>(String::new(), move |_, _| {
            let discovered = discovered.clone();
            async { discovered }
        });
        let all = handlers.into_iter().chain([discovery]);
        Self(all.map(|handler| (handler.path(), handler)).collect())
    }

    pub(super) async fn respond(
        &self,
        request: Request<Incoming>,
        remote: SocketAddr,
    ) -> Response<Full<Bytes>> {
        let Some(handler) = self.0.get(request.uri().path()) else {
            let text = "no handler at this path; call one that discovery lists\n";
            return plain(StatusCode::NOT_FOUND, text);
        };
        if request.method() != Method::POST {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "use POST\n");
            let headers = response.headers_mut();
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        respond_with(match body::read(request.into_body()).await {
            Ok(body) => handler.call(body, remote).await,
            Err(reason) => handler.failure(format!("error reading request: {reason}")),
        })
    }
}

fn respond_with(encoded: Encoded) -> Response<Full<Bytes>> {
    match encoded {
        Ok(json) => response(StatusCode::OK, "application/json", json),
        Err(error) => {
            let text = format!("unable to marshal response: {error}");
            response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", text)
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(status, "text/plain", text)
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
