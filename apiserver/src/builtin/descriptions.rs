//! What the columns of built-in kinds mean, as the real server tells it: `descriptions.tsv`, one line for each text.
//!
//! A line is a column, the resources (`*`: all others) and the text, whose line breaks are written `\n`.

use crate::{resource::Column, status::qualified};
use std::{collections::HashMap, sync::LazyLock};

/// The resources and texts of each column: read once, as every server asks for all of them when it starts.
static BY_COLUMN: LazyLock<HashMap<&str, Vec<(&str, &str)>>> = LazyLock::new(|| {
    let mut columns: HashMap<_, Vec<_>> = HashMap::new();
    for line in include_str!("descriptions.tsv").lines() {
        if let Some((column, (resources, text))) =
            line.split_once('\t').and_then(|(a, b)| Some((a, b.split_once('\t')?)))
        {
            columns.entry(column).or_default().push((resources, text));
        }
    }
    columns
});

/// Columns with their descriptions, and with the format of those that are names.
pub(super) fn described(group: &str, plural: &str, columns: impl Iterator<Item = Column>) -> Vec<Column> {
    let resource = qualified(group, plural);
    let names = |column: &str| column == "Name" || (plural, column) == ("volumeattachments", "Attacher");
    let format = |column: &str| if names(column) { "name".to_owned() } else { String::new() };
    let described = |it: Column| Column { description: of(&resource, &it.name), format: format(&it.name), ..it };
    columns.map(described).collect()
}

/// What a column of a resource means; empty if that is not known.
pub(crate) fn of(resource: &str, column: &str) -> String {
    let texts = BY_COLUMN.get(column).map(Vec::as_slice).unwrap_or_default();
    let own = texts.iter().find(|(resources, _)| resources.split(' ').any(|it| it == resource));
    let text = own.or_else(|| texts.iter().find(|(resources, _)| *resources == "*")).map_or("", |(_, text)| text);
    text.replace("\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_resource_has_its_own_text_or_the_common_one() {
        assert!(of("configmaps", "Age").contains("\n\nPopulated by the system."));
        assert!(of("secrets", "Data").starts_with("Data contains the secret data."));
        assert!(of("configmaps", "Data").starts_with("Data contains the configuration data."));
        assert_eq!(of("configmaps", "Nothing"), "");
    }
}
