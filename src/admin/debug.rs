//! What the manager says of itself, as JSON.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use tokio::task::spawn_blocking;

/// How many keys of a queue are shown if nobody says, and at most.
const SHOWN: usize = 1000;
const MOST: usize = 100_000;

/// Made beside those who must not wait: some of it looks at every object.
pub(super) async fn json<T: Serialize + Send + 'static>(make: impl FnOnce() -> Option<T> + Send + 'static) -> Response {
    let made = spawn_blocking(move || make().map(|value| serde_json::to_vec_pretty(&value))).await;
    match made {
        Ok(Some(Ok(mut text))) => {
            text.push(b'\n');
            let mut response = text.into_response();
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        // A panic, which has been told, or what serialises to no JSON.
        Ok(Some(Err(_))) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// `?limit=n`.
pub(super) fn limit(query: &str) -> usize {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let asked = pairs.find_map(|(name, value)| (name == "limit").then(|| value.parse().ok()).flatten());
    asked.unwrap_or(SHOWN).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_what_was_asked_for_within_bounds() {
        assert_eq!((limit(""), limit("limit=5&x"), limit("limit=x"), limit("limit=99999999")), (SHOWN, 5, SHOWN, MOST));
    }
}
