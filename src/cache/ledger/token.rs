//! Whose writes they are.

use std::sync::Arc;

tokio::task_local! {
    static CURRENT: Token;
}

/// Somebody whose writes are told apart: a client with its clones, or one reconcile. A clone is the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token(Arc<u8>);

impl Token {
    /// What is written through any client while `work` runs, is written under this token too.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the controller, which comes next"))]
    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The token of the scope this is called in.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Token {}

/// The client that writes, and the scope it does so in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) client: Token,
    pub(crate) scope: Option<Token>,
}

impl Writer {
    /// Here and now.
    pub(crate) fn of(client: &Token) -> Self {
        Self { client: client.clone(), scope: Token::current() }
    }

    pub(super) fn is(&self, token: &Token) -> bool {
        self.client == *token || self.scope.as_ref() == Some(token)
    }
}
