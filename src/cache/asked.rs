//! What a query asks of a server, for who asks one instead of the cache.

use super::{Query, fields::FieldSelector};
use crate::object::Selector;
use form_urlencoded::Serializer;

/// A query's parts.
pub(crate) struct Asked<'a> {
    pub(crate) namespace: Option<&'a str>,
    labels: Option<&'a Selector>,
    fields: Option<&'a FieldSelector>,
    pub(crate) indexed: bool,
    pub(crate) sorted: bool,
    pub(crate) limit: Option<usize>,
}

impl<K> Query<K> {
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked {
            namespace: self.namespace.as_deref(),
            labels: self.labels.as_ref(),
            fields: self.fields.as_ref(),
            indexed: !self.indexes.is_empty(),
            sorted: self.sorted,
            limit: self.limit,
        }
    }
}

impl Asked<'_> {
    /// As parameters of a request.
    pub(crate) fn selectors(&self) -> Serializer<'static, String> {
        let mut query = Serializer::new(String::new());
        if let Some(labels) = self.labels {
            query.append_pair("labelSelector", &labels.to_string());
        }
        if let Some(fields) = self.fields {
            query.append_pair("fieldSelector", &fields.to_string());
        }
        query
    }
}
