//! Manifests as YAML.

use serde_json::Value;

/// Formats objects as YAML documents. Equal objects give equal bytes.
///
/// Use it for manifests that are checked in or printed.
///
/// ```
/// use serde_json::json;
/// use steersman_controllers::manifests;
///
/// let text = manifests::yaml(&[json!({"kind": "Role", "apiVersion": "v1"}), json!({"verbs": ["get"]})]);
/// assert_eq!(text, "apiVersion: v1\nkind: Role\n---\nverbs:\n- get\n");
/// ```
pub fn yaml(objects: &[Value]) -> String {
    let mut objects = objects.to_vec();
    // The order of maps depends on features that other packages enable.
    objects.iter_mut().for_each(Value::sort_all_objects);
    // One line per text, so that a changed word changes one line.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_multiple_with_options(&objects, options)
        .expect("what is JSON can be written as YAML")
}
