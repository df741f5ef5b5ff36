//! Format of the golden files, the recorded transcripts of the real server.
//!
//! A case starts with `=== id`. Each entry is the line of the step followed by the response as
//! JSON. An empty line ends an entry.

use crate::runner::{Entry, Transcript};
use std::{collections::BTreeMap, fmt::Write};

/// Transcripts of the cases of a file, by id.
pub(crate) type Golden = BTreeMap<String, Transcript>;

pub(crate) fn write(golden: &Golden) -> String {
    let mut text = String::new();
    for (id, transcript) in golden {
        let _ = writeln!(text, "=== {id}\n");
        for Entry { line, response } in &transcript.0 {
            let _ = writeln!(text, "{line}\n{response:#}\n");
        }
    }
    text
}

pub(crate) fn read(text: &str) -> Result<Golden, String> {
    let mut golden = Golden::new();
    let mut id = None;
    for block in text
        .split("\n\n")
        .map(|block| block.trim_matches('\n'))
        .filter(|block| !block.is_empty())
    {
        if let Some(next) = block.strip_prefix("=== ") {
            golden.insert(next.to_owned(), Transcript(Vec::new()));
            id = Some(next.to_owned());
            continue;
        }
        let transcript = id
            .as_ref()
            .and_then(|id| golden.get_mut(id))
            .ok_or("response before the first `=== id`")?;
        let (line, response) = block
            .split_once('\n')
            .ok_or_else(|| format!("no response after `{block}`"))?;
        let response = serde_json::from_str(response)
            .map_err(|error| format!("invalid response to `{line}`: {error}"))?;
        transcript.0.push(Entry {
            line: line.into(),
            response,
        });
    }
    Ok(golden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_written_golden_file_reads_back_equal() {
        let entry = |line: &str, response| Entry {
            line: line.into(),
            response,
        };
        let one = Transcript(vec![
            entry("GET /a", json!({"code": 200, "body": {"a": "x\n\ny"}})),
            entry("EVENTS w 0", json!([])),
        ]);
        let golden = Golden::from([("one".into(), one), ("two".into(), Transcript(Vec::new()))]);
        assert_eq!(read(&write(&golden)), Ok(golden));
    }
}
