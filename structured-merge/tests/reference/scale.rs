use crate::fixtures::{read, text};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use structured_merge::{Entry, Path, ScaleHandler};

fn entries(case: &Value, name: &str) -> Vec<Entry> {
    Vec::deserialize(&case[name]).expect("the fixture has entries")
}

/// Sorts entries, because the order of entries with equal keys is random in the Go package.
fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|entry| serde_json::to_string(entry).unwrap());
    entries
}

#[test]
fn managed_fields_of_scale_equal_those_of_the_reference() {
    let replicas = BTreeMap::from([
        (
            "example.com/v1".to_owned(),
            Some(Path::fields(["spec", "replicas"])),
        ),
        (
            "example.com/v2".to_owned(),
            Some(Path::fields(["spec", "count"])),
        ),
        ("example.com/v3".to_owned(), None),
    ]);
    let cases = read("scale.jsonl.gz");
    assert!(cases.len() > 50);
    for case in cases {
        let parent = entries(&case, "parent");
        let handler = ScaleHandler::new(parent, text(&case, "version"), replicas.clone()).unwrap();
        assert_eq!(
            sorted(handler.to_subresource()),
            sorted(entries(&case, "toSubresource")),
            "{case}"
        );
        let stored = handler.to_parent(entries(&case, "scale")).unwrap();
        assert_eq!(sorted(stored), sorted(entries(&case, "toParent")), "{case}");
    }
}
