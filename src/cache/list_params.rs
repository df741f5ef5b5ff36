//! Conversion of a [`Query`] to the parameters of a list request, for live reads.

use super::{Query, fields::FieldSelector};
use crate::object::Selector;
use form_urlencoded::Serializer;

/// Borrowed parts of a [`Query`].
pub(crate) struct ListParams<'a> {
    pub(crate) namespace: Option<&'a str>,
    labels: Option<&'a Selector>,
    fields: Option<&'a FieldSelector>,
    pub(crate) indexed: bool,
    pub(crate) sorted: bool,
    pub(crate) limit: Option<usize>,
}

impl<K> Query<K> {
    pub(crate) fn list_params(&self) -> ListParams<'_> {
        ListParams {
            namespace: self.namespace.as_deref(),
            labels: self.labels.as_ref(),
            fields: self.fields.as_ref(),
            indexed: !self.indexes.is_empty(),
            sorted: self.sorted,
            limit: self.limit,
        }
    }
}

impl ListParams<'_> {
    /// Returns the selectors as URL query parameters.
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
