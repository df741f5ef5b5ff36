//! Pages of a list from the API server.
//!
//! Invariant: every page brings the list nearer to its end. A page that repeats the previous
//! continue token or only known objects, or one page too many without objects, ends the list with a
//! reason.

use super::{
    Discovered, Result,
    wire::{ListPage, decode, decode_error},
};
use crate::object::{KubeObject, ObjectKey};
use hashbrown::HashSet;
use std::sync::Arc;

/// Maximum of consecutive pages without objects.
///
/// An API server that filters many objects by a selector sends some.
const MAX_EMPTY_PAGES: usize = 100;

/// Objects of the pages that were read so far.
pub(super) struct LiveList<K> {
    pub(super) found: Vec<Arc<K>>,
    /// Continue token of the next page; empty before the first page.
    pub(super) token: String,
    /// Keys of `found`.
    keys: HashSet<ObjectKey>,
    /// Pages without objects since the last page with some.
    empty_pages: usize,
}

/// State of the list after a page.
pub(super) enum Next {
    Page,
    End,
    /// The list does not end, for this reason.
    Endless(&'static str),
}

impl<K: KubeObject> LiveList<K> {
    pub(super) fn new() -> Self {
        Self {
            found: Vec::new(),
            token: String::new(),
            keys: HashSet::new(),
            empty_pages: 0,
        }
    }

    /// Adds the objects of a page.
    pub(super) fn add(
        &mut self,
        kind: &Discovered,
        collection: &ObjectKey,
        page: &[u8],
    ) -> Result<Next> {
        let page: ListPage<'_> =
            serde_json::from_slice(page).map_err(decode_error(kind, collection))?;
        let known = self.found.len();
        for item in page.items.unwrap_or_default() {
            self.found
                .push(decode::<K>(kind, collection, item.get().as_bytes())?);
        }
        let token = page.metadata.r#continue;
        if token.is_empty() {
            return Ok(Next::End);
        }
        if token == self.token {
            return Ok(Next::Endless("the API server repeats its continue token"));
        }
        let added = &self.found[known..];
        let new = added
            .iter()
            .filter(|object| self.keys.insert(ObjectKey::of(&***object)))
            .count();
        self.empty_pages = if added.is_empty() {
            self.empty_pages + 1
        } else {
            0
        };
        if new == 0 && !added.is_empty() {
            return Ok(Next::Endless("the API server sends the same page again"));
        }
        if self.empty_pages > MAX_EMPTY_PAGES {
            return Ok(Next::Endless(
                "the API server sends page after page without objects",
            ));
        }
        self.token = token;
        Ok(Next::Page)
    }
}
