//! Key of an object: namespace and name in one shared string.

use super::AsObject;
use kube_core::Resource;
use serde::{Serialize, Serializer};
use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

/// Namespace and name of an object in one shared string. Cloning is cheap.
///
/// Use it to refer to an object: in queues, requests and indexes. Keys have the order of the API
/// server's lists: by the bytes of `namespace/name`.
///
/// ```
/// use steersman::object::ObjectKey;
///
/// let web = ObjectKey::new("default", "web");
/// assert_eq!((web.namespace(), web.name()), (Some("default"), "web"));
/// assert_eq!(ObjectKey::cluster_scoped("node-1").to_string(), "node-1");
/// ```
#[derive(Clone)]
pub struct ObjectKey {
    text: Arc<str>,
    split: u32,
}

impl ObjectKey {
    /// Creates the key of a namespaced object.
    ///
    /// An empty namespace creates the key of a cluster-scoped object.
    ///
    /// # Panics
    /// If the namespace is longer than 4 GiB.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        let namespace = namespace.as_ref();
        let name = name.as_ref();
        let split = u32::try_from(namespace.len()).expect("a namespace is shorter than 4 GiB");
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Self {
            text: text.into(),
            split,
        }
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster_scoped(name: impl AsRef<str>) -> Self {
        Self::new("", name)
    }

    /// Returns the key of an object. Missing parts are empty.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use steersman::object::ObjectKey;
    ///
    /// let mut pod = Pod::default();
    /// pod.metadata.namespace = Some("default".into());
    /// pod.metadata.name = Some("web".into());
    /// assert_eq!(ObjectKey::of(&pod), ObjectKey::new("default", "web"));
    /// ```
    pub fn of<M>(object: &impl AsObject<M>) -> Self {
        let meta = object.as_object().meta();
        Self::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    /// Returns the namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        Some(&self.text[..self.split as usize]).filter(|namespace| !namespace.is_empty())
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        &self.text[self.split as usize + 1..]
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        self.split == other.split && self.text == other.text
    }
}
impl Eq for ObjectKey {}

impl Hash for ObjectKey {
    /// Hashes only the text: keys that differ only in the split are rare.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.text.as_bytes());
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text
            .cmp(&other.text)
            .then(self.split.cmp(&other.split))
    }
}
impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Prints `namespace/name`, or the name of a cluster-scoped object.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.split == 0 {
            self.name()
        } else {
            &self.text
        })
    }
}
impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Serializes the text that `Display` prints.
impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_returns_its_namespace_and_name() {
        let key = ObjectKey::new("kube-system", "dns");
        assert_eq!(key.namespace(), Some("kube-system"));
        assert_eq!(key.name(), "dns");
        assert_eq!(key.to_string(), "kube-system/dns");
        assert_eq!(format!("{key:?}"), "kube-system/dns");
    }

    #[test]
    fn a_cluster_scoped_key_has_no_namespace() {
        let key = ObjectKey::cluster_scoped("node-1");
        assert_eq!((key.namespace(), key.name()), (None, "node-1"));
        assert_eq!(key.to_string(), "node-1");
    }

    #[test]
    fn an_empty_key_is_allowed() {
        let key = ObjectKey::new("", "");
        assert_eq!((key.namespace(), key.name()), (None, ""));
        assert_eq!(key.to_string(), "");
    }

    #[test]
    fn keys_of_the_same_text_but_another_split_differ() {
        assert_ne!(ObjectKey::new("a/b", "c"), ObjectKey::new("a", "b/c"));
        assert!(ObjectKey::new("a", "b/c") < ObjectKey::new("a/b", "c"));
    }

    #[test]
    fn keys_order_as_the_server_lists() {
        let mut keys =
            [("b", "a"), ("a", "z"), ("a-b", "a"), ("a", "a")].map(|(ns, n)| ObjectKey::new(ns, n));
        keys.sort();
        assert_eq!(keys.map(|k| k.to_string()), ["a-b/a", "a/a", "a/z", "b/a"]);
    }

    #[test]
    fn a_key_serializes_as_its_display_text() {
        assert_eq!(
            serde_json::to_string(&ObjectKey::new("a", "b")).unwrap(),
            r#""a/b""#
        );
    }

    #[test]
    fn a_clone_shares_the_text() {
        let key = ObjectKey::new("a", "b");
        assert!(Arc::ptr_eq(&key.text, &key.clone().text));
    }
}
