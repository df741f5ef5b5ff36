//! Paged lists.
//!
//! Invariant: a list ends. If a continue token has expired, a page is repeated, or too many pages
//! in a row are empty, the list is requested once without paging. If that is paged as well and does
//! not end, the list fails and is retried later.

use super::{
    Failure, Reflector, Sink, broken,
    page_parser::{PageMeta, PageParser},
    partial_list::PartialList,
    rejected, request_failed,
    yield_budget::YieldBudget,
};
use tokio::task::yield_now;

/// Maximum of empty pages in a row. A selector that matches few of many objects may cause some.
const MAX_EMPTY_PAGES: usize = 100;

/// Content of a page.
enum PageContent {
    NewObjects,
    /// Only objects that earlier pages contained.
    KnownObjects,
    Empty,
}

impl<S: Sink> Reflector<S> {
    /// Lists all pages, and returns the resource version of the list.
    pub(super) async fn list_pages(&self) -> Result<String, Failure> {
        let (mut listed, mut token, mut size, mut empty) =
            (PartialList::new(), String::new(), self.page_size, 0);
        loop {
            let problem = match self.read_page(size, &token, &mut listed).await {
                Ok((meta, _)) if meta.r#continue.is_empty() => {
                    self.replace_all(listed, &meta.resource_version);
                    return Ok(meta.resource_version);
                }
                Ok((meta, content)) => {
                    empty = if let PageContent::Empty = content {
                        empty + 1
                    } else {
                        0
                    };
                    if meta.r#continue == token || matches!(content, PageContent::KnownObjects) {
                        "the API server repeats a page; check the proxies between this process and \
                         the API server"
                            .to_owned()
                    } else if empty > MAX_EMPTY_PAGES {
                        "the API server sends page after page without objects".to_owned()
                    } else {
                        token = meta.r#continue;
                        continue;
                    }
                }
                // A token expires with the server's history, which may be too short.
                Err(Failure::Rejected(rejection))
                    if rejection.needs_relist() && !token.is_empty() =>
                {
                    format!(
                        "the API server rejects its own continue token: {}",
                        rejection.message
                    )
                }
                Err(failure) => return Err(failure),
            };
            // Retry without paging, unless this was the retry.
            if size == 0 {
                return Err(broken(format!("cannot list without paging: {problem}")));
            }
            (listed, token, size, empty) = (PartialList::new(), String::new(), 0, 0);
        }
    }

    async fn read_page(
        &self,
        size: u32,
        token: &str,
        listed: &mut PartialList<S::Payload>,
    ) -> Result<(PageMeta, PageContent), Failure> {
        let response = self
            .client
            .send(self.list_watch.list_page(size, token)?)
            .await
            .map_err(request_failed)?;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            return Err(rejected(&parts, &body));
        }
        let (mut page, mut budget) = (PageParser::new(&body), YieldBudget::default());
        let (mut items, mut new) = (0, 0);
        while let Some(item) = page.next().map_err(broken)? {
            items += 1;
            new += usize::from(self.add_to_list(item, listed));
            budget.consume(item.get().len());
            if budget.is_exhausted() {
                budget = YieldBudget::default();
                yield_now().await;
            }
        }
        let content = match (items, new) {
            (0, _) => PageContent::Empty,
            (_, 0) => PageContent::KnownObjects,
            _ => PageContent::NewObjects,
        };
        Ok((page.end().map_err(broken)?, content))
    }
}
