//! Parses the files in `cases/` into cases and steps.
//!
//! ```text
//! === a-stale-resource-version-conflicts
//! # A PUT with an old resource version conflicts.
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
//! An empty line ends a step. `-> name` stores its response under a name. A body starts with `{` or
//! `[`, any other body starts after a line `|`.
//!
//! | step | does |
//! |---|---|
//! | `GET`, `POST`, `PUT`, `PATCH`, `DELETE`, `HEAD`, `OPTIONS path` | sends the request; the body is JSON unless a header sets another type |
//! | `MERGE`, `JSON`, `STRATEGIC`, `APPLY path` | sends a `PATCH` of that type |
//! | `x8 POST path` | sends the request eight times, `{i}` is 1 to 8 |
//! | `UNTIL 404 GET path`, `UNTIL /a/b=1 GET path` | repeats until the code or field matches; keeps the last response |
//! | `PICK /list/field=value GET path` | repeats until an item of the list matches; keeps only matching items: `/items/metadata/name=a` |
//! | `WATCH name path` | opens a watch (`watch=1` is added) |
//! | `EVENTS name 3`, `EVENTS name end`, `EVENTS name to x` | reads 3 events, all until the end, or all up to the first of object `x` |
//! | `COMPARE a.path b.path` | records `less`, `same` or `greater` |
//!
//! Placeholders in braces: `{ns}` and `{ns2}` are two namespaces, `{id}` a word and `{group}` an API
//! group, all unique to the case. `{name.path}` is a field of a stored response, `{name[2].path}` of
//! index 2 of a repeated step. `{x*5}` is `xxxxx`, and `{x,*2}` is `x,x,`. Other braces are literal.

use std::fmt;

/// A case with its steps.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) steps: Vec<Step>,
}

/// One step of a case.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// First line as written. The transcript repeats it.
    pub(crate) line: String,
    pub(crate) action: Action,
    /// Name that the response is stored under.
    pub(crate) keep: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Send {
        times: usize,
        request: Request,
    },
    Until {
        goal: Goal,
        request: Request,
    },
    Pick {
        list: String,
        field: String,
        value: String,
        request: Request,
    },
    Watch {
        name: String,
        path: String,
        headers: Vec<(String, String)>,
    },
    Events {
        name: String,
        until: Until,
    },
    Compare {
        left: String,
        right: String,
    },
}

/// A request with placeholders that are not filled in yet.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// Condition that ends reading a watch.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    Count(usize),
    End,
    Object(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Goal {
    Code(u16),
    Field {
        pointer: String,
        value: serde_json::Value,
    },
}

/// Error in a case file.
#[derive(Debug)]
pub(crate) struct ParseError {
    line: usize,
    text: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

pub(crate) fn parse(text: &str) -> Result<Vec<Case>, ParseError> {
    let mut cases: Vec<Case> = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    let end = text.lines().count() + 1;
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        if let Some(id) = line.strip_prefix("=== ") {
            finish(&mut cases, &mut block, number)?;
            check(cases.last(), number)?;
            cases.push(Case {
                id: id.trim().into(),
                steps: Vec::new(),
            });
        } else if line.trim().is_empty() || number == end {
            finish(&mut cases, &mut block, number)?;
        } else if !(block.is_empty() && line.starts_with('#')) {
            block.push(line);
        }
    }
    check(cases.last(), end)?;
    Ok(cases)
}

/// Checks that a case has steps and opens the watches that it reads. Otherwise any two servers
/// would agree on it.
fn check(case: Option<&Case>, end: usize) -> Result<(), ParseError> {
    let Some(Case { id, steps }) = case else {
        return Ok(());
    };
    let error = |text: String| Err(ParseError { line: end, text });
    if steps.is_empty() {
        return error(format!("case `{id}` before this line has no steps"));
    }
    let mut opened = Vec::new();
    for step in steps {
        match &step.action {
            Action::Watch { name, .. } => opened.push(name),
            Action::Events { name, .. } if !opened.contains(&name) => {
                return error(format!(
                    "`{}` in case `{id}` before this line reads an unknown watch",
                    step.line
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Parses the lines since the last empty one as a step.
fn finish(cases: &mut [Case], block: &mut Vec<&str>, end: usize) -> Result<(), ParseError> {
    if block.is_empty() {
        return Ok(());
    }
    let start = end - block.len();
    let error = |text: String| ParseError { line: start, text };
    let case = cases
        .last_mut()
        .ok_or_else(|| error("step before the first `=== id`".into()))?;
    case.steps.push(step(block).map_err(error)?);
    block.clear();
    Ok(())
}

fn step(block: &[&str]) -> Result<Step, String> {
    let mut lines = block.to_vec();
    let line = lines.remove(0).trim().to_owned();
    let keep = lines
        .last()
        .and_then(|last| last.strip_prefix("-> "))
        .map(|name| name.trim().to_owned());
    if keep.is_some() {
        lines.pop();
    }
    let (first, rest) = line
        .split_once(' ')
        .ok_or_else(|| format!("invalid step `{line}`"))?;
    let split_arguments = || {
        rest.split_once(' ')
            .ok_or_else(|| format!("`{line}` needs two arguments"))
    };
    let action = match first {
        "UNTIL" => {
            let (goal, request) = split_arguments()?;
            Action::Until {
                goal: self::goal(goal)?,
                request: self::request(request, &lines)?,
            }
        }
        "PICK" => {
            let (pick, request) = split_arguments()?;
            let (path, value) = pick
                .split_once('=')
                .ok_or_else(|| format!("`{pick}` is not /list/field=value"))?;
            let list_length = path
                .strip_prefix('/')
                .and_then(|path| path.find('/'))
                .map(|at| at + 1);
            let list_length =
                list_length.ok_or_else(|| format!("`{pick}` is not /list/field=value"))?;
            let (list, field) = path.split_at(list_length);
            let request = self::request(request, &lines)?;
            Action::Pick {
                list: list.into(),
                field: field.into(),
                value: value.into(),
                request,
            }
        }
        "WATCH" => {
            let (name, path) = split_arguments()?;
            let separator = if path.contains('?') { '&' } else { '?' };
            let request = self::request(&format!("GET {path}{separator}watch=1"), &lines)?;
            Action::Watch {
                name: name.into(),
                path: request.path,
                headers: request.headers,
            }
        }
        "EVENTS" => {
            let (name, until) = split_arguments()?;
            let until = match (until, until.strip_prefix("to ")) {
                ("end", _) => Until::End,
                (_, Some(object)) => Until::Object(object.into()),
                (number, None) => Until::Count(
                    number
                        .parse()
                        .map_err(|_| format!("`{number}` is neither a number nor `end`"))?,
                ),
            };
            Action::Events {
                name: name.into(),
                until,
            }
        }
        "COMPARE" => {
            let (left, right) = split_arguments()?;
            Action::Compare {
                left: left.into(),
                right: right.into(),
            }
        }
        times if times.starts_with('x') => {
            let number = times[1..].parse().ok().filter(|number| *number > 0);
            let times = number.ok_or_else(|| format!("`{times}` is not x and a number"))?;
            Action::Send {
                times,
                request: self::request(rest, &lines)?,
            }
        }
        _ => Action::Send {
            times: 1,
            request: self::request(&line, &lines)?,
        },
    };
    Ok(Step { line, action, keep })
}

fn goal(text: &str) -> Result<Goal, String> {
    if let Some((pointer, value)) = text.split_once('=') {
        let value = serde_json::from_str(value)
            .map_err(|error| format!("`{value}` is not JSON: {error}"))?;
        return Ok(Goal::Field {
            pointer: pointer.into(),
            value,
        });
    }
    text.parse()
        .map(Goal::Code)
        .map_err(|_| format!("`{text}` is neither a code nor /field=value"))
}

fn request(line: &str, lines: &[&str]) -> Result<Request, String> {
    let (verb, path) = line
        .split_once(' ')
        .ok_or_else(|| format!("`{line}` has no path"))?;
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
        other => return Err(format!("unknown step `{other}`")),
    };
    if !path.starts_with('/') || path.trim().contains(char::is_whitespace) {
        return Err(format!("invalid path `{path}`"));
    }
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
        let (name, value) = line
            .split_once(": ")
            .ok_or_else(|| format!("`{line}` is neither a header nor a body"))?;
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let body = body.join("\n");
    let typed = headers.iter().any(|(name, _)| name == "content-type");
    if !typed && let Some(kind) = patch.or((!body.is_empty()).then_some("application/json")) {
        headers.push(("content-type".into(), kind.into()));
    }
    Ok(Request {
        method,
        path: path.trim().into(),
        headers,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_step(text: &str) -> Step {
        let case = parse(&format!("=== a\n# comment\n\n{text}"))
            .expect("a well-formed case")
            .remove(0);
        assert_eq!(case.id, "a");
        case.steps.into_iter().next().expect("a step")
    }

    #[test]
    fn a_request_has_headers_a_body_and_a_name() {
        let step = only_step("MERGE /a?b=c\nAccept: text/x\n{\"a\":\n 1}\n-> kept\n");
        assert_eq!(
            (step.line.as_str(), step.keep.as_deref()),
            ("MERGE /a?b=c", Some("kept"))
        );
        let Action::Send { times: 1, request } = step.action else {
            panic!("{step:?}")
        };
        assert_eq!(
            (request.method, request.path.as_str(), request.body.as_str()),
            ("PATCH", "/a?b=c", "{\"a\":\n 1}")
        );
        let headers = [
            ("accept", "text/x"),
            ("content-type", "application/merge-patch+json"),
        ]
        .map(|(a, b)| (a.into(), b.into()));
        assert_eq!(request.headers, headers);
    }

    #[test]
    fn a_body_that_looks_like_headers_follows_a_bar() {
        let step = only_step("POST /a\nContent-Type: application/yaml\n|\nkind: X\n");
        let Action::Send { request, .. } = step.action else {
            panic!("{step:?}")
        };
        assert_eq!(request.body, "kind: X");
        assert_eq!(
            request.headers,
            [("content-type".into(), "application/yaml".into())]
        );
    }

    #[test]
    fn items_are_picked_by_a_field() {
        let step = only_step("PICK /items/metadata/name={group} GET /apis\n");
        let Action::Pick {
            list,
            field,
            value,
            request,
        } = step.action
        else {
            panic!("{step:?}")
        };
        assert_eq!(
            [&*list, &*field, &*value, &*request.path],
            ["/items", "/metadata/name", "{group}", "/apis"]
        );
    }

    #[test]
    fn parse_errors_have_a_line_number() {
        let parse_error = |text: &str| parse(text).expect_err("a parse error").to_string();
        assert_eq!(
            parse_error("GET /a\n"),
            "line 1: step before the first `=== id`"
        );
        assert_eq!(
            parse_error("=== a\n\nGTE /a\n"),
            "line 3: unknown step `GTE`"
        );
        assert_eq!(
            parse_error("=== a\n\nx0 GET /a\n"),
            "line 3: `x0` is not x and a number"
        );
        assert_eq!(
            parse_error("=== a\n\nGET /a b\n"),
            "line 3: invalid path `/a b`"
        );
        for pick in ["=", "a/b=c", "/a=c"] {
            let text = format!("=== a\n\nPICK {pick} GET /a\n");
            assert_eq!(
                parse_error(&text),
                format!("line 3: `{pick}` is not /list/field=value")
            );
        }
        assert_eq!(
            parse_error("=== a\n\n=== b\n"),
            "line 3: case `a` before this line has no steps"
        );
        assert_eq!(
            parse_error("=== a\n\nEVENTS w 1\n"),
            "line 4: `EVENTS w 1` in case `a` before this line reads an unknown watch"
        );
        assert_eq!(
            parse_error("=== a\n\nEVENTS w many"),
            "line 3: `many` is neither a number nor `end`"
        );
        assert_eq!(
            parse_error("=== a\n\nPOST /a\nnonsense\n"),
            "line 3: `nonsense` is neither a header nor a body"
        );
    }
}
