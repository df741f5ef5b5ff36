//! Manifests as text, for people and for kubectl.

use serde_json::Value;

/// YAML, a document for each; the same objects are always the same bytes. Use it for whatever is checked in or printed.
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
    // In whichever order other packages let maps be.
    objects.iter_mut().for_each(Value::sort_all_objects);
    // One line for each text: a change of a word is a change of a line.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_multiple_with_options(&objects, options).expect("what is JSON can be written as YAML")
}
