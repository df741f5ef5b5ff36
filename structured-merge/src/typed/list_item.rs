//! Path elements of list items.

use crate::{
    go_text,
    path::PathElement,
    schema::{List, ListType, Schema},
};
use serde_json::Value;

/// Returns the path element that identifies an item of a list.
///
/// Errors: the API server's message, if the item cannot be identified.
pub(super) fn path_element(
    schema: &Schema,
    list: &List,
    item: &Value,
) -> Result<PathElement, String> {
    match &list.list_type {
        ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListType::Map(keys) if !keys.is_empty() => keyed(schema, list, keys, item),
        ListType::Map(_) | ListType::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => Err(
                "associative list without keys has an element that's an explicit null".to_owned(),
            ),
            scalar => Ok(PathElement::Value(scalar.clone())),
        },
    }
}

fn keyed(
    schema: &Schema,
    list: &List,
    keys: &[String],
    item: &Value,
) -> Result<PathElement, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let value = match fields.get(key) {
            Some(value) => Some(value),
            None => key_default(schema, list, key)
                .map_err(|reason| format!("couldn't find default value for {key}: {reason}"))?,
        };
        // An item without one of the keys has a different path element than items with it.
        if let Some(value) = value {
            found.push((key.as_str(), value.clone()));
        }
    }
    if found.is_empty() {
        return Err(format!(
            "associative list with keys has an element that omits all key fields {} (and doesn't \
             have default values for any key fields)",
            go_text::quote_list(keys)
        ));
    }
    Ok(PathElement::key(found))
}

fn key_default<'s>(
    schema: &'s Schema,
    list: &'s List,
    key: &str,
) -> Result<Option<&'s Value>, &'static str> {
    let element = schema
        .resolve(&list.element)
        .ok_or("invalid elementType for list")?;
    let map = element
        .map()
        .ok_or("associative list may not have non-map types")?;
    Ok(map.fields.get(key).and_then(|field| field.default.as_ref()))
}
