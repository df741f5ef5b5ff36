//! Text of errors whose types print their cause and return it from `source()` as well, such as
//! kube's.

use std::{error::Error, fmt, iter::successors};

/// Displays an error with its causes, each once.
pub(crate) struct ErrorChain<'a>(pub(crate) &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        for cause in successors(self.0.source(), |&cause| cause.source()) {
            let cause = cause.to_string();
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        f.write_str(&text)
    }
}
