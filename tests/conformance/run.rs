//! Runs a case on a server and writes down what it answered, word for word; `normal` then takes out what no two servers have in common.

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

/// Longer than anything takes that does not hang: the real garbage collector learns of a new definition after half a minute.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two tries of `UNTIL`.
const PAUSE: Duration = Duration::from_millis(20);

/// What only this run of a case uses.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) namespaces: [String; 2],
    pub(crate) id: String,
    pub(crate) group: String,
}

impl Names {
    /// Made of a word that nobody else uses.
    pub(crate) fn new(word: &str) -> Self {
        Self {
            namespaces: [format!("case-{word}-a"), format!("case-{word}-b")],
            id: format!("id{word}"),
            group: format!("g{word}.example.com"),
        }
    }

    /// What stands in braces for each, and the name; longer names first, so that none is part of a later one.
    pub(crate) fn all(&self) -> [(&'static str, &str); 4] {
        let [first, second] = &self.namespaces;
        [("group", &self.group), ("ns", first), ("ns2", second), ("id", &self.id)]
    }
}

/// What was asked and answered, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transcript(pub(crate) Vec<Entry>);

impl Transcript {
    /// A step waited for something, and went on without: `UNTIL` and `EVENTS` note that.
    pub(crate) fn gave_up(&self) -> bool {
        let gave_up = |answer: &Value| {
            let last_event = answer.as_array().and_then(|events| events.last());
            answer.get("never").is_some() || last_event.is_some_and(|event| event == "nothing more")
        };
        self.0.iter().any(|entry| gave_up(&entry.answer))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The step as the case has it.
    pub(crate) line: String,
    pub(crate) answer: Value,
}

/// Both namespaces exist before the case begins.
pub(crate) async fn namespaces(client: &Client, names: &Names) {
    for name in &names.namespaces {
        let body = json!({"metadata": {"name": name}}).to_string();
        let headers = vec![("content-type".into(), "application/json".into())];
        let answer = send(client, "POST", "/api/v1/namespaces", &headers, body).await;
        assert_eq!(answer["code"], 201, "{answer}");
    }
}

pub(crate) async fn run(client: &Client, case: &Case, names: &Names) -> Transcript {
    let mut run =
        Run { client, case: &case.id, names, kept: HashMap::new(), watches: HashMap::new(), entries: Vec::new() };
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
        let answer = match &step.action {
            Action::Send { times: 1, request } => self.send(request, 1).await,
            Action::Send { times, request } => {
                let mut answers = Vec::new();
                for turn in 1..=*times {
                    answers.push(self.send(request, turn).await);
                }
                answers.into()
            }
            Action::Until { goal, request } => {
                self.repeat(request, |answer| Self::reached(goal, &answer).then_some(answer)).await
            }
            Action::Pick { list, field, value, request } => {
                let value = self.fill(value, 1);
                self.repeat(request, |answer| pick(answer, list, field, &value)).await
            }
            Action::Watch { name, path, headers } => {
                let response = request(self.client, "GET", &self.fill(path, 1), headers, String::new()).await;
                let (parts, body) = response.into_parts();
                if parts.status.is_success() {
                    self.watches.insert(name.clone(), Watch { body, buffer: Vec::new() });
                    json!({"code": parts.status.as_u16(), "headers": headers_of(&parts.headers)})
                } else {
                    answer(parts, body).await
                }
            }
            Action::Events { name, until } => match self.watches.get_mut(name) {
                Some(watch) => watch.take(until).await,
                None => "not watched".into(),
            },
            Action::Compare { left, right } => json!(self.compare(left, right)),
        };
        if let Some(name) = &step.keep {
            let bodies = match &answer {
                Value::Array(answers) => {
                    answers.iter().map(|answer| answer.get("body").unwrap_or(answer).clone()).collect()
                }
                one => one["body"].clone(),
            };
            self.kept.insert(name.clone(), bodies);
        }
        self.entries.push(Entry { line: step.line.clone(), answer });
    }

    async fn send(&self, request: &Request, turn: usize) -> Value {
        let headers: Vec<_> =
            request.headers.iter().map(|(name, value)| (name.clone(), self.fill(value, turn))).collect();
        let (path, body) = (self.fill(&request.path, turn), self.fill(&request.body, turn));
        send(self.client, request.method, &path, &headers, body).await
    }

    /// Sends a request until its answer is taken.
    async fn repeat(&self, request: &Request, take: impl Fn(Value) -> Option<Value>) -> Value {
        let begun = Instant::now();
        loop {
            let answer = self.send(request, 1).await;
            if let Some(taken) = take(answer.clone()) {
                return taken;
            }
            if begun.elapsed() > PATIENCE {
                return json!({"never": answer});
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn reached(goal: &Goal, answer: &Value) -> bool {
        match goal {
            Goal::Code(code) => answer["code"] == *code,
            Goal::Field { pointer, value } => answer["body"].pointer(pointer) == Some(value),
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

    /// Put in what the braces stand for.
    fn fill(&self, text: &str, turn: usize) -> String {
        static BRACES: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\{([a-z][a-z0-9]*(?:\[\d+\]|\*\d+)?(?:\.[^{}\s]+)?)\}").expect("a pattern"));
        let filled = BRACES.replace_all(text, |found: &Captures<'_>| match &found[1] {
            "i" => turn.to_string(),
            many if let Some((word, times)) = many.split_once('*') => {
                word.repeat(times.parse().expect("a number of times"))
            }
            name => self
                .names
                .all()
                .into_iter()
                .find_map(|(brace, value)| (brace == name).then(|| value.to_owned()))
                .unwrap_or_else(|| self.value(name)),
        });
        filled.into_owned()
    }

    /// A field of an answer that was kept, as text.
    fn value(&self, path: &str) -> String {
        let pointer = format!("/{}", path.replace("].", "/").replace(['[', '.'], "/").replace(']', ""));
        let (name, rest) = pointer[1..].split_at(pointer[1..].find('/').unwrap_or(pointer.len() - 1));
        let kept = self.kept.get(name).unwrap_or_else(|| panic!("{}: nothing was kept as `{name}`", self.case));
        match kept.pointer(rest) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            // So that one server's missing field is a difference, and not the end of the run.
            None => "missing".into(),
        }
    }
}

/// An answer with only those items of a list that have a text in a field; `None` if there are none.
fn pick(mut answer: Value, list: &str, field: &str, value: &str) -> Option<Value> {
    let items = answer["body"].pointer(list).and_then(Value::as_array)?;
    let picked: Vec<_> =
        items.iter().filter(|item| item.pointer(field).and_then(Value::as_str) == Some(value)).cloned().collect();
    answer["body"] = picked.into();
    (answer["body"] != json!([])).then_some(answer)
}

/// A watch, read line by line.
struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    /// The events up to there. What does not come is noted, not waited for for ever.
    async fn take(&mut self, until: &Until) -> Value {
        let mut events = Vec::new();
        loop {
            let last = events.last().map(|event: &Value| &event["object"]["metadata"]["name"]);
            let reached = match until {
                Until::Count(count) => events.len() == *count,
                Until::End => false,
                Until::Object(name) => last.is_some_and(|last| last == name),
            };
            if reached {
                return events.into();
            }
            match tokio::time::timeout(PATIENCE, self.next()).await {
                // How many bookmarks come in a row is a matter of the server's clock.
                Ok(Some(event)) if is_bookmark(&event) && events.last().is_some_and(is_bookmark) => {}
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

/// One that says nothing but how far the watch is.
fn is_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null()
}

/// The answer to a request: code, the headers that matter, body.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: String,
) -> Value {
    if method == "DELETE" && path.contains("/customresourcedefinitions/") {
        until_stored(client, path).await;
    }
    ask(client, method, path, headers, body).await
}

/// The real server counts the objects of a definition that is deleted. If their storage is not ready then, it tries again much later: that is not what a case is about.
async fn until_stored(client: &Client, definition: &str) {
    let path = definition.split('?').next().unwrap_or_default();
    let spec = ask(client, "GET", path, &[], String::new()).await["body"]["spec"].take();
    if let (Some(group), Some(plural), Some(version)) =
        (spec["group"].as_str(), spec["names"]["plural"].as_str(), spec["versions"][0]["name"].as_str())
    {
        ask(client, "GET", &format!("/apis/{group}/{version}/{plural}?limit=1"), &[], String::new()).await;
    }
}

async fn ask(client: &Client, method: &str, path: &str, headers: &[(String, String)], body: String) -> Value {
    let begun = Instant::now();
    loop {
        let (parts, answered) = request(client, method, path, headers, body.clone()).await.into_parts();
        let answer = answer(parts, answered).await;
        // The real server says so for a moment after a definition has come: nothing was done.
        if answer["body"]["message"] != "storage is (re)initializing" || begun.elapsed() > PATIENCE {
            return answer;
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
    let request = request.body(Body::from(body.into_bytes())).expect("a well-formed request");
    let response = tokio::time::timeout(PATIENCE, client.send(request)).await;
    let response = response.unwrap_or_else(|_| panic!("{method} {path}: no answer"));
    response.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

async fn answer(parts: http::response::Parts, body: Body) -> Value {
    let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("a body in time").expect("a whole body");
    let body = body.to_bytes();
    let headers = headers_of(&parts.headers);
    let is_yaml = headers["content-type"] == "application/yaml";
    let mut answer = json!({"code": parts.status.as_u16(), "headers": headers});
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    answer["body"] = match serde_json::from_slice(&body) {
        Ok(json) => {
            if body.windows(3).any(|bytes| bytes == b"\n  ") {
                answer["indented"] = true.into();
            }
            json
        }
        // What it says, not how it is laid out.
        Err(_) if is_yaml => serde_saphyr::from_slice(&body).unwrap_or_else(|_| text()),
        Err(_) => text(),
    };
    answer
}

/// Those that are part of the interface.
fn headers_of(headers: &http::HeaderMap) -> Value {
    let mut kept = serde_json::Map::new();
    for name in ["content-type", "location", "retry-after", "warning", "allow", "etag"] {
        let mut values: Vec<_> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        if !values.is_empty() {
            // Several are in the order of the fields that they are about, which is not kept here.
            values.sort_unstable();
            kept.insert(name.into(), values.join(", ").into());
        }
    }
    kept.into()
}
