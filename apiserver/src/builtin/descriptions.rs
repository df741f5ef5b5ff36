//! Descriptions of the columns of built-in kinds, from `descriptions.tsv`.
//!
//! A line has the column, the resources (`*` for all others) and the real server's text with line
//! breaks written as `\n`.

use crate::{resource::Column, status::qualified};
use std::{collections::HashMap, sync::LazyLock};

/// Resources and texts by column. Parsed once, since every server needs all of them.
static BY_COLUMN: LazyLock<HashMap<&str, Vec<(&str, &str)>>> = LazyLock::new(|| {
    let mut columns: HashMap<_, Vec<_>> = HashMap::new();
    for line in include_str!("descriptions.tsv").lines() {
        if let Some((column, (resources, text))) = line
            .split_once('\t')
            .and_then(|(a, b)| Some((a, b.split_once('\t')?)))
        {
            columns.entry(column).or_default().push((resources, text));
        }
    }
    columns
});

/// Returns the columns with their descriptions and formats.
pub(super) fn describe_columns(
    group: &str,
    plural: &str,
    columns: impl Iterator<Item = Column>,
) -> Vec<Column> {
    let resource = qualified(group, plural);
    let is_name =
        |column: &str| column == "Name" || (plural, column) == ("volumeattachments", "Attacher");
    let format = |column: &str| {
        if is_name(column) {
            "name".to_owned()
        } else {
            String::new()
        }
    };
    let describe_columns = |it: Column| Column {
        description: description(&resource, &it.name),
        format: format(&it.name),
        ..it
    };
    columns.map(describe_columns).collect()
}

/// Returns the description of a column, empty if there is none.
pub(crate) fn description(resource: &str, column: &str) -> String {
    let texts = BY_COLUMN.get(column).map(Vec::as_slice).unwrap_or_default();
    let own = texts
        .iter()
        .find(|(resources, _)| resources.split(' ').any(|it| it == resource));
    let text = own
        .or_else(|| texts.iter().find(|(resources, _)| *resources == "*"))
        .map_or("", |(_, text)| text);
    text.replace("\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::description;

    #[test]
    fn a_resource_has_its_own_description_or_the_common_one() {
        assert!(description("configmaps", "Age").contains("\n\nPopulated by the system."));
        assert!(description("secrets", "Data").starts_with("Data contains the secret data."));
        assert!(
            description("configmaps", "Data").starts_with("Data contains the configuration data.")
        );
        assert_eq!(description("configmaps", "Nothing"), "");
    }
}
