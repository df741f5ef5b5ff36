//! Cases as data: what a file in `cases/` says, read into steps.
//!
//! ```text
//! === an-old-version-conflicts
//! # What the case shows, for the reader.
//!
//! POST /api/v1/namespaces/{ns}/configmaps
//! {"metadata": {"name": "a"}}
//! -> first
//!
//! PUT /api/v1/namespaces/{ns}/configmaps/a
//! {"metadata": {"name": "a", "resourceVersion": "{first.metadata.resourceVersion}"}, "data": {"k": "1"}}
//!
//! MERGE /api/v1/namespaces/{ns}/configmaps/a
//! Accept: application/yaml
//! {"data": {"k": "2"}}
//! ```
//!
//! An empty line ends a step, `-> name` keeps its answer under a name. A body begins with `{` or `[`, or after a line `|` if it begins otherwise.
//!
//! | step | does |
//! |---|---|
//! | `GET`, `POST`, `PUT`, `PATCH`, `DELETE`, `HEAD`, `OPTIONS path` | that request; a body is JSON unless a header says otherwise |
//! | `MERGE`, `JSON`, `STRATEGIC`, `APPLY path` | a `PATCH` of that type |
//! | `x8 POST path` | eight times, `{i}` is 1 to 8 |
//! | `UNTIL 404 GET path`, `UNTIL /a/b=1 GET path` | repeats until the code, or the field, is that; the last answer counts |
//! | `PICK /list/field=value GET path` | repeats until some of a list's items have that in a field; only they count: `/items/metadata/name=a` |
//! | `WATCH name path` | opens a watch (`watch=1` is added) |
//! | `EVENTS name 3`, `EVENTS name end`, `EVENTS name to x` | so many of its events, all until it ends, or all up to the first of the object `x` |
//! | `COMPARE a.path b.path` | whether the first value is less than, the same as or greater than the second |
//!
//! In braces: `{ns}` and `{ns2}` are namespaces of the case's own, `{id}` is a word and `{group}` an API group nobody else uses; `{name.path}` is a
//! field of an answer that was kept, `{name[2].path}` of the second of a repeated step; `{x*5}` is `xxxxx`, for what is too long. Other
//! braces are left alone.

use std::fmt;

/// One case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) steps: Vec<Step>,
}

/// What is done in a step, and the name its answer is kept under.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// As written: it is repeated in the transcript.
    pub(crate) line: String,
    pub(crate) action: Action,
    pub(crate) keep: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Send { times: usize, request: Request },
    Until { goal: Goal, request: Request },
    Pick { list: String, field: String, value: String, request: Request },
    Watch { name: String, path: String, headers: Vec<(String, String)> },
    Events { name: String, until: Until },
    Compare { left: String, right: String },
}

/// A request whose braces are not filled in yet.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// Where to stop reading a watch.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    Count(usize),
    End,
    Object(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Goal {
    Code(u16),
    Field { pointer: String, value: serde_json::Value },
}

/// What is wrong in a file, and where.
#[derive(Debug)]
pub(crate) struct Mistake {
    line: usize,
    text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

pub(crate) fn parse(text: &str) -> Result<Vec<Case>, Mistake> {
    let mut cases: Vec<Case> = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    let ended = text.lines().count() + 1;
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        if let Some(id) = line.strip_prefix("=== ") {
            finish(&mut cases, &mut block, number)?;
            cases.push(Case { id: id.trim().into(), steps: Vec::new() });
        } else if line.trim().is_empty() || number == ended {
            finish(&mut cases, &mut block, number)?;
        } else if !(block.is_empty() && line.starts_with('#')) {
            block.push(line);
        }
    }
    Ok(cases)
}

/// The lines since the last empty one are a step.
fn finish(cases: &mut [Case], block: &mut Vec<&str>, ended: usize) -> Result<(), Mistake> {
    if block.is_empty() {
        return Ok(());
    }
    let begun = ended - block.len();
    let mistake = |text: String| Mistake { line: begun, text };
    let case = cases.last_mut().ok_or_else(|| mistake("a step before the first `=== id`".into()))?;
    case.steps.push(step(block).map_err(mistake)?);
    block.clear();
    Ok(())
}

fn step(block: &[&str]) -> Result<Step, String> {
    let mut lines = block.to_vec();
    let line = lines.remove(0).trim().to_owned();
    let keep = lines.last().and_then(|last| last.strip_prefix("-> ")).map(|name| name.trim().to_owned());
    if keep.is_some() {
        lines.pop();
    }
    let (first, rest) = line.split_once(' ').ok_or_else(|| format!("`{line}` is no step"))?;
    let two = || rest.split_once(' ').ok_or_else(|| format!("`{line}` takes two words"));
    let action = match first {
        "UNTIL" => {
            let (goal, request) = two()?;
            Action::Until { goal: self::goal(goal)?, request: self::request(request, &lines)? }
        }
        "PICK" => {
            let (pick, request) = two()?;
            let (path, value) = pick.split_once('=').ok_or_else(|| format!("`{pick}` is not /list/field=value"))?;
            let begin = path[1..].find('/').map(|at| at + 1).ok_or_else(|| format!("`{path}` names no field"))?;
            let (list, field) = path.split_at(begin);
            let request = self::request(request, &lines)?;
            Action::Pick { list: list.into(), field: field.into(), value: value.into(), request }
        }
        "WATCH" => {
            let (name, path) = two()?;
            let joint = if path.contains('?') { '&' } else { '?' };
            let request = self::request(&format!("GET {path}{joint}watch=1"), &lines)?;
            Action::Watch { name: name.into(), path: request.path, headers: request.headers }
        }
        "EVENTS" => {
            let (name, until) = two()?;
            let until = match (until, until.strip_prefix("to ")) {
                ("end", _) => Until::End,
                (_, Some(object)) => Until::Object(object.into()),
                (number, None) => {
                    Until::Count(number.parse().map_err(|_| format!("`{number}` is neither a number nor `end`"))?)
                }
            };
            Action::Events { name: name.into(), until }
        }
        "COMPARE" => {
            let (left, right) = two()?;
            Action::Compare { left: left.into(), right: right.into() }
        }
        times if times.starts_with('x') => {
            let times = times[1..].parse().map_err(|_| format!("`{times}` is not x and a number"))?;
            Action::Send { times, request: self::request(rest, &lines)? }
        }
        _ => Action::Send { times: 1, request: self::request(&line, &lines)? },
    };
    Ok(Step { line, action, keep })
}

fn goal(text: &str) -> Result<Goal, String> {
    if let Some((pointer, value)) = text.split_once('=') {
        let value = serde_json::from_str(value).map_err(|error| format!("`{value}` is not JSON: {error}"))?;
        return Ok(Goal::Field { pointer: pointer.into(), value });
    }
    text.parse().map(Goal::Code).map_err(|_| format!("`{text}` is neither a code nor /field=value"))
}

fn request(line: &str, lines: &[&str]) -> Result<Request, String> {
    let (verb, path) = line.split_once(' ').ok_or_else(|| format!("`{line}` lacks a path"))?;
    let (method, patch) = match verb {
        "GET" => ("GET", None),
        "POST" => ("POST", None),
        "PUT" => ("PUT", None),
        "PATCH" => ("PATCH", None),
        "DELETE" => ("DELETE", None),
        "HEAD" => ("HEAD", None),
        "OPTIONS" => ("OPTIONS", None),
        "MERGE" => ("PATCH", Some("application/merge-patch+json")),
        "JSON" => ("PATCH", Some("application/json-patch+json")),
        "STRATEGIC" => ("PATCH", Some("application/strategic-merge-patch+json")),
        "APPLY" => ("PATCH", Some("application/apply-patch+yaml")),
        other => return Err(format!("there is no step `{other}`")),
    };
    let mut headers = Vec::new();
    let mut body = lines;
    while let [line, rest @ ..] = body {
        if line.starts_with(['{', '[']) {
            break;
        }
        body = rest;
        if *line == "|" {
            break;
        }
        let (name, value) = line.split_once(": ").ok_or_else(|| format!("`{line}` is neither a header nor a body"))?;
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let body = body.join("\n");
    let typed = headers.iter().any(|(name, _)| name == "content-type");
    if !typed && let Some(kind) = patch.or((!body.is_empty()).then_some("application/json")) {
        headers.push(("content-type".into(), kind.into()));
    }
    Ok(Request { method, path: path.trim().into(), headers, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_step(text: &str) -> Step {
        let case = parse(&format!("=== a\n# prose\n\n{text}")).expect("a well-formed case").remove(0);
        assert_eq!(case.id, "a");
        case.steps.into_iter().next().expect("a step")
    }

    #[test]
    fn a_request_has_headers_a_body_and_a_name() {
        let step = only_step("MERGE /a?b=c\nAccept: text/x\n{\"a\":\n 1}\n-> kept\n");
        assert_eq!((step.line.as_str(), step.keep.as_deref()), ("MERGE /a?b=c", Some("kept")));
        let Action::Send { times: 1, request } = step.action else { panic!("{step:?}") };
        assert_eq!((request.method, request.path.as_str(), request.body.as_str()), ("PATCH", "/a?b=c", "{\"a\":\n 1}"));
        let headers =
            [("accept", "text/x"), ("content-type", "application/merge-patch+json")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(request.headers, headers);
    }

    #[test]
    fn a_body_that_looks_like_headers_follows_a_bar() {
        let step = only_step("POST /a\nContent-Type: application/yaml\n|\nkind: X\n");
        let Action::Send { request, .. } = step.action else { panic!("{step:?}") };
        assert_eq!(request.body, "kind: X");
        assert_eq!(request.headers, [("content-type".into(), "application/yaml".into())]);
    }

    #[test]
    fn items_are_picked_by_a_field() {
        let step = only_step("PICK /items/metadata/name={group} GET /apis\n");
        let Action::Pick { list, field, value, request } = step.action else { panic!("{step:?}") };
        assert_eq!([&*list, &*field, &*value, &*request.path], ["/items", "/metadata/name", "{group}", "/apis"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let said = |text: &str| parse(text).expect_err("a mistake").to_string();
        assert_eq!(said("GET /a\n"), "line 1: a step before the first `=== id`");
        assert_eq!(said("=== a\n\nGTE /a\n"), "line 3: there is no step `GTE`");
        assert_eq!(said("=== a\n\nEVENTS w many"), "line 3: `many` is neither a number nor `end`");
        assert_eq!(said("=== a\n\nPOST /a\nnonsense\n"), "line 3: `nonsense` is neither a header nor a body");
    }
}
