//! Debug pages as JSON.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use tokio::task::spawn_blocking;

/// Default and highest number of keys shown of a queue.
const DEFAULT_LIMIT: usize = 1000;
const MAX_LIMIT: usize = 100_000;

/// Builds a page on a blocking thread, because some of them read every object.
pub(super) async fn json<T: Serialize + Send + 'static>(
    make: impl FnOnce() -> Option<T> + Send + 'static,
) -> Response {
    let made = spawn_blocking(move || make().map(|value| serde_json::to_vec_pretty(&value))).await;
    match made {
        Ok(Some(Ok(mut text))) => {
            text.push(b'\n');
            let mut response = text.into_response();
            let headers = response.headers_mut();
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
            headers.insert(
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            );
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        // The page panicked, which was logged, or its value cannot be serialized.
        Ok(Some(Err(_))) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Returns the value of a query parameter.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}

/// Returns the parameter `limit` within its bounds.
pub(super) fn limit(query: &str) -> usize {
    let limit = parameter(query, "limit").and_then(|value| value.parse().ok());
    limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_parameter_is_bounded() {
        assert_eq!(
            (
                limit(""),
                limit("limit=5&x"),
                limit("limit=x"),
                limit("limit=99999999")
            ),
            (DEFAULT_LIMIT, 5, DEFAULT_LIMIT, MAX_LIMIT)
        );
    }
}
