//! Transcripts as files: what the real server answered, kept so that the embedded one is held against it where there is no real one.
//!
//! A case is `=== id`, a step is its line and its answer as JSON, an empty line ends it.

use crate::run::{Entry, Transcript};
use std::{collections::BTreeMap, fmt::Write};

/// The transcripts of a file's cases, by id.
pub(crate) type Golden = BTreeMap<String, Transcript>;

pub(crate) fn write(golden: &Golden) -> String {
    let mut text = String::new();
    for (id, transcript) in golden {
        let _ = writeln!(text, "=== {id}\n");
        for Entry { line, answer } in &transcript.0 {
            let _ = writeln!(text, "{line}\n{answer:#}\n");
        }
    }
    text
}

pub(crate) fn read(text: &str) -> Result<Golden, String> {
    let mut golden = Golden::new();
    let mut id = None;
    for block in text.split("\n\n").map(|block| block.trim_matches('\n')).filter(|block| !block.is_empty()) {
        if let Some(next) = block.strip_prefix("=== ") {
            golden.insert(next.to_owned(), Transcript(Vec::new()));
            id = Some(next.to_owned());
            continue;
        }
        let transcript = id.as_ref().and_then(|id| golden.get_mut(id)).ok_or("an answer before the first `=== id`")?;
        let (line, answer) = block.split_once('\n').ok_or_else(|| format!("`{block}` has no answer"))?;
        let answer = serde_json::from_str(answer).map_err(|error| format!("the answer to `{line}`: {error}"))?;
        transcript.0.push(Entry { line: line.into(), answer });
    }
    Ok(golden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_back() {
        let entry = |line: &str, answer| Entry { line: line.into(), answer };
        let one = Transcript(vec![
            entry("GET /a", json!({"code": 200, "body": {"a": "x\n\ny"}})),
            entry("EVENTS w 0", json!([])),
        ]);
        let golden = Golden::from([("one".into(), one), ("two".into(), Transcript(Vec::new()))]);
        assert_eq!(read(&write(&golden)), Ok(golden));
    }
}
