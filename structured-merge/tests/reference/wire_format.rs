use crate::fixtures::{read, text};
use structured_merge::Set;

#[test]
fn field_sets_are_parsed_and_written_like_the_reference() {
    let cases = read("wire.jsonl.gz");
    assert!(cases.len() > 40);
    for case in cases {
        let wire = text(&case, "wire");
        let parsed = serde_json::from_str::<Set>(wire);
        let Some(result) = case.get("result").and_then(|result| result.as_str()) else {
            assert!(
                parsed.is_err(),
                "{wire} is parsed, but rejected by the reference"
            );
            continue;
        };
        let set = parsed.unwrap_or_else(|error| panic!("{wire} is rejected: {error}"));
        // serde_json has short escapes for two characters.
        let written = serde_json::to_string(&set).unwrap();
        let written = written.replace("\\b", "\\u0008").replace("\\f", "\\u000c");
        assert_eq!(written, result, "{wire}");
        assert_eq!(set.to_string(), text(&case, "text"), "{wire}");
    }
}
