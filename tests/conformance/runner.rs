//! Runs a case on a server and records its responses as a transcript.

use crate::script::{Action, Case, Goal, Request, Step, Until};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use regex::{Captures, Regex};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::LazyLock,
    time::{Duration, Instant},
};

/// Limit for every response and condition. The real garbage collector discovers a new CRD only
/// after half a minute.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Pause between two requests of `UNTIL` and `PICK`.
const PAUSE: Duration = Duration::from_millis(20);

/// Names that are unique to one run of a case.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) namespaces: [String; 2],
    pub(crate) id: String,
    pub(crate) group: String,
}

impl Names {
    /// Derives the names from a word that no other run uses.
    pub(crate) fn new(word: &str) -> Self {
        Self {
            namespaces: [format!("case-{word}-a"), format!("case-{word}-b")],
            id: format!("id{word}"),
            group: format!("g{word}.example.com"),
        }
    }

    /// Returns each placeholder with its name. A name that contains another one comes first.
    pub(crate) fn placeholders(&self) -> [(&'static str, &str); 4] {
        let [first, second] = &self.namespaces;
        [
            ("group", &self.group),
            ("ns", first),
            ("ns2", second),
            ("id", &self.id),
        ]
    }
}

/// Steps of a case with their responses, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transcript(pub(crate) Vec<Entry>);

impl Transcript {
    /// Returns whether a step timed out, which `UNTIL`, `PICK` and `EVENTS` record.
    pub(crate) fn timed_out(&self) -> bool {
        let timed_out = |response: &Value| {
            let last_event = response.as_array().and_then(|events| events.last());
            response.get("never").is_some()
                || last_event.is_some_and(|event| event == "nothing more")
        };
        self.0.iter().any(|entry| timed_out(&entry.response))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// First line of the step in the case.
    pub(crate) line: String,
    pub(crate) response: Value,
}

/// Creates the two namespaces of a case.
pub(crate) async fn create_namespaces(client: &Client, names: &Names) {
    for name in &names.namespaces {
        let body = json!({"metadata": {"name": name}}).to_string();
        let headers = vec![("content-type".into(), "application/json".into())];
        let response = send(client, "POST", "/api/v1/namespaces", &headers, body).await;
        assert_eq!(response["code"], 201, "{response}");
    }
}

pub(crate) async fn run(client: &Client, case: &Case, names: &Names) -> Transcript {
    let mut run = Run {
        client,
        case: &case.id,
        names,
        kept: HashMap::new(),
        watches: HashMap::new(),
        entries: Vec::new(),
    };
    for step in &case.steps {
        run.step(step).await;
    }
    Transcript(run.entries)
}

struct Run<'a> {
    client: &'a Client,
    case: &'a str,
    names: &'a Names,
    kept: HashMap<String, Value>,
    watches: HashMap<String, Watch>,
    entries: Vec<Entry>,
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) {
        let response = match &step.action {
            Action::Send { times: 1, request } => self.send(request, 1).await,
            Action::Send { times, request } => {
                let mut responses = Vec::new();
                for turn in 1..=*times {
                    responses.push(self.send(request, turn).await);
                }
                responses.into()
            }
            Action::Until { goal, request } => {
                self.repeat(request, |response| {
                    Self::reached(goal, &response).then_some(response)
                })
                .await
            }
            Action::Pick {
                list,
                field,
                value,
                request,
            } => {
                let value = self.fill(value, 1);
                self.repeat(request, |response| pick(response, list, field, &value))
                    .await
            }
            Action::Watch {
                name,
                path,
                headers,
            } => {
                let response = request(
                    self.client,
                    "GET",
                    &self.fill(path, 1),
                    headers,
                    String::new(),
                )
                .await;
                let (parts, body) = response.into_parts();
                if parts.status.is_success() {
                    self.watches.insert(
                        name.clone(),
                        Watch {
                            body,
                            buffer: Vec::new(),
                        },
                    );
                    json!({"code": parts.status.as_u16(), "headers": api_headers(&parts.headers)})
                } else {
                    read_response(parts, body).await
                }
            }
            Action::Events { name, until } => match self.watches.get_mut(name) {
                Some(watch) => watch.take(until).await,
                None => "not watched".into(),
            },
            Action::Compare { left, right } => json!(self.compare(left, right)),
        };
        if let Some(name) = &step.keep {
            let bodies = match &response {
                Value::Array(responses) => responses
                    .iter()
                    .map(|response| response.get("body").unwrap_or(response).clone())
                    .collect(),
                one => one["body"].clone(),
            };
            self.kept.insert(name.clone(), bodies);
        }
        self.entries.push(Entry {
            line: step.line.clone(),
            response,
        });
    }

    async fn send(&self, request: &Request, turn: usize) -> Value {
        let headers: Vec<_> = request
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), self.fill(value, turn)))
            .collect();
        let path = self.fill(&request.path, turn);
        let body = self.fill(&request.body, turn);
        send(self.client, request.method, &path, &headers, body).await
    }

    /// Sends a request until `accept` returns a value, at most for [`TIMEOUT`].
    async fn repeat(&self, request: &Request, accept: impl Fn(Value) -> Option<Value>) -> Value {
        let started = Instant::now();
        loop {
            let response = self.send(request, 1).await;
            if let Some(accepted) = accept(response.clone()) {
                return accepted;
            }
            if started.elapsed() > TIMEOUT {
                return json!({"never": response});
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn reached(goal: &Goal, response: &Value) -> bool {
        match goal {
            Goal::Code(code) => response["code"] == *code,
            Goal::Field { pointer, value } => response["body"].pointer(pointer) == Some(value),
        }
    }

    fn compare(&self, left: &str, right: &str) -> &'static str {
        let [a, b] = [left, right].map(|path| self.value(path));
        let order = match [&a, &b].map(|text| text.parse::<u64>()) {
            [Ok(a), Ok(b)] => a.cmp(&b),
            _ => a.cmp(&b),
        };
        match order {
            std::cmp::Ordering::Less => "less",
            std::cmp::Ordering::Equal => "same",
            std::cmp::Ordering::Greater => "greater",
        }
    }

    /// Fills in the placeholders of `text`.
    fn fill(&self, text: &str, turn: usize) -> String {
        static BRACES: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"\{([a-z][a-z0-9]*(?:\[\d+\]|,?\*\d+)?(?:\.[^{}\s]+)?)\}")
                .expect("a pattern")
        });
        let filled = BRACES.replace_all(text, |found: &Captures<'_>| match &found[1] {
            "i" => turn.to_string(),
            many if let Some((word, times)) = many.split_once('*') => {
                word.repeat(times.parse().expect("a number of times"))
            }
            name => self
                .names
                .placeholders()
                .into_iter()
                .find_map(|(brace, value)| (brace == name).then(|| value.to_owned()))
                .unwrap_or_else(|| self.value(name)),
        });
        filled.into_owned()
    }

    /// Returns a field of a stored response as text.
    fn value(&self, path: &str) -> String {
        let pointer = format!(
            "/{}",
            path.replace("].", "/")
                .replace(['[', '.'], "/")
                .replace(']', "")
        );
        let (name, rest) =
            pointer[1..].split_at(pointer[1..].find('/').unwrap_or(pointer.len() - 1));
        let kept = self
            .kept
            .get(name)
            .unwrap_or_else(|| panic!("{}: no response is stored as `{name}`", self.case));
        match kept.pointer(rest) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            // A field that one server lacks is reported as a difference instead of a panic.
            None => "missing".into(),
        }
    }
}

/// Keeps the items of a list whose field has the value. Returns `None` if there are none.
fn pick(mut response: Value, list: &str, field: &str, value: &str) -> Option<Value> {
    let items = response["body"].pointer(list).and_then(Value::as_array)?;
    let picked: Vec<_> = items
        .iter()
        .filter(|item| item.pointer(field).and_then(Value::as_str) == Some(value))
        .cloned()
        .collect();
    response["body"] = picked.into();
    (response["body"] != json!([])).then_some(response)
}

/// Body of a watch, read line by line.
struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    /// Reads events up to `until`. Ends the result with `nothing more` on a timeout.
    async fn take(&mut self, until: &Until) -> Value {
        let mut events = Vec::new();
        loop {
            let last = events
                .last()
                .map(|event: &Value| &event["object"]["metadata"]["name"]);
            let reached = match until {
                Until::Count(count) => events.len() == *count,
                Until::End => false,
                Until::Object(name) => last.is_some_and(|last| last == name),
            };
            if reached {
                return events.into();
            }
            match tokio::time::timeout(TIMEOUT, self.next()).await {
                // The number of consecutive bookmarks depends on timing.
                Ok(Some(event))
                    if is_bookmark(&event) && events.last().is_some_and(is_bookmark) => {}
                Ok(Some(event)) => events.push(event),
                Ok(None) => return [events, vec!["end".into()]].concat().into(),
                Err(_) => return [events, vec!["nothing more".into()]].concat().into(),
            }
        }
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event is JSON"));
            }
            let frame = self.body.frame().await?;
            if let Ok(data) = frame.expect("a frame").into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

/// Returns whether an event is a bookmark without annotations.
fn is_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null()
}

/// Sends a request. Returns code, relevant headers and body of the response.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: String,
) -> Value {
    if method == "DELETE" && path.contains("/customresourcedefinitions/") {
        wait_for_storage(client, path).await;
    }
    send_until_ready(client, method, path, headers, body).await
}

/// Waits until the objects of a CRD can be listed. If their storage is not ready when the CRD is
/// deleted, the real server retries the deletion only much later.
async fn wait_for_storage(client: &Client, crd_path: &str) {
    let path = crd_path.split('?').next().unwrap_or_default();
    let spec =
        send_until_ready(client, "GET", path, &[], String::new()).await["body"]["spec"].take();
    if let (Some(group), Some(plural), Some(version)) = (
        spec["group"].as_str(),
        spec["names"]["plural"].as_str(),
        spec["versions"][0]["name"].as_str(),
    ) {
        send_until_ready(
            client,
            "GET",
            &format!("/apis/{group}/{version}/{plural}?limit=1"),
            &[],
            String::new(),
        )
        .await;
    }
}

async fn send_until_ready(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: String,
) -> Value {
    let started = Instant::now();
    loop {
        let (parts, body) = request(client, method, path, headers, body.clone())
            .await
            .into_parts();
        let response = read_response(parts, body).await;
        // The real server answers so for a moment after a CRD is created. It has not processed the
        // request.
        if response["body"]["message"] != "storage is (re)initializing"
            || started.elapsed() > TIMEOUT
        {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn request(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: String,
) -> http::Response<Body> {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request
        .body(Body::from(body.into_bytes()))
        .expect("a well-formed request");
    let response = tokio::time::timeout(TIMEOUT, client.send(request)).await;
    let response = response.unwrap_or_else(|_| panic!("{method} {path}: no response"));
    response.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

async fn read_response(parts: http::response::Parts, body: Body) -> Value {
    let body = tokio::time::timeout(TIMEOUT, body.collect())
        .await
        .expect("a body in time")
        .expect("a whole body");
    let body = body.to_bytes();
    let headers = api_headers(&parts.headers);
    let is_yaml = headers["content-type"] == "application/yaml";
    let mut response = json!({"code": parts.status.as_u16(), "headers": headers});
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    response["body"] = match serde_json::from_slice(&body) {
        Ok(json) => {
            if body.windows(3).any(|bytes| bytes == b"\n  ") {
                response["indented"] = true.into();
            }
            json
        }
        // Compares the content of YAML, not its layout.
        Err(_) if is_yaml => serde_saphyr::from_slice(&body).unwrap_or_else(|_| text()),
        Err(_) => text(),
    };
    response
}

/// Returns the headers that are part of the API.
fn api_headers(headers: &http::HeaderMap) -> Value {
    let mut kept = serde_json::Map::new();
    for name in [
        "content-type",
        "location",
        "retry-after",
        "warning",
        "allow",
        "etag",
    ] {
        let mut values: Vec<_> = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        if !values.is_empty() {
            // Their order follows fields of the body and is not compared.
            values.sort_unstable();
            kept.insert(name.into(), values.join(", ").into());
        }
    }
    kept.into()
}
