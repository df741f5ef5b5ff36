//! Everything, page by page.
//!
//! What holds: it ends. A server that does not know its own tokens, gives the same page again, or one without objects after another, is asked once for all at once. Who
//! gives pages of that as well, and no end of them, is asked again later.

use super::{
    Failure, Reflector, Sink, broken,
    listed::Listed,
    page::{Page, PageMeta},
    refused,
    turn::Turn,
    unanswered,
};
use tokio::task::yield_now;

/// So many pages without objects may come one after another: a server that looks for few among many may give some.
const MOST_EMPTY: usize = 100;

/// What a page has brought.
enum Brought {
    Something,
    /// Only objects that were there already.
    NothingNew,
    Nothing,
}

impl<S: Sink> Reflector<S> {
    /// Gives the version that they are of.
    pub(super) async fn pages(&self) -> Result<String, Failure> {
        let (mut listed, mut token, mut size, mut empty) = (Listed::new(), String::new(), self.page_size, 0);
        loop {
            let wrong = match self.page(size, &token, &mut listed).await {
                Ok((meta, _)) if meta.r#continue.is_empty() => {
                    self.all(listed, &meta.resource_version);
                    return Ok(meta.resource_version);
                }
                Ok((meta, brought)) => {
                    empty = if let Brought::Nothing = brought { empty + 1 } else { 0 };
                    if meta.r#continue == token || matches!(brought, Brought::NothingNew) {
                        "the same one again: look at what is between this process and the API server".to_owned()
                    } else if empty > MOST_EMPTY {
                        "one without objects after another".to_owned()
                    } else {
                        token = meta.r#continue;
                        continue;
                    }
                }
                // A token lives as long as the server's history, which may be too short.
                Err(Failure::Refused(refusal)) if refusal.needs_a_list() && !token.is_empty() => {
                    format!("does not know its own tokens: {}", refusal.message)
                }
                Err(failure) => return Err(failure),
            };
            // All at once is the way that is left.
            if size == 0 {
                return Err(broken(format!("the server gives pages of what it was asked for at once, and {wrong}")));
            }
            (listed, token, size, empty) = (Listed::new(), String::new(), 0, 0);
        }
    }

    async fn page(
        &self,
        size: u32,
        token: &str,
        listed: &mut Listed<S::Payload>,
    ) -> Result<(PageMeta, Brought), Failure> {
        let response = self.client.send(self.place.page(size, token)?).await.map_err(unanswered)?;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            return Err(refused(&parts, &body));
        }
        let (mut page, mut turn) = (Page::new(&body), Turn::default());
        let (mut items, mut new) = (0, 0);
        while let Some(item) = page.next().map_err(broken)? {
            items += 1;
            new += usize::from(self.list_one(item, listed));
            turn.took(item.get().len());
            if turn.is_over() {
                turn = Turn::default();
                yield_now().await;
            }
        }
        let brought = match (items, new) {
            (0, _) => Brought::Nothing,
            (_, 0) => Brought::NothingNew,
            _ => Brought::Something,
        };
        Ok((page.end().map_err(broken)?, brought))
    }
}
