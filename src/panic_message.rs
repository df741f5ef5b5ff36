//! Text of panics.

use std::any::Any;

/// Returns the message of a caught panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>();
    let message = literal.map(|message| (*message).to_owned());
    message
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::panic::{AssertUnwindSafe, panic_any};

    async fn message_of(work: impl Future<Output = ()>) -> String {
        let panic = AssertUnwindSafe(work).catch_unwind().await;
        panic_message(&*panic.expect_err("the future panics"))
    }

    #[tokio::test]
    async fn the_message_of_a_panic_is_its_literal_or_formatted_text() {
        assert_eq!(message_of(async { panic!("literal") }).await, "literal");
        let number = 7;
        assert_eq!(message_of(async { panic!("{number}") }).await, "7");
        let other = message_of(async { panic_any(number) }).await;
        assert_eq!(other, "panic without a message");
    }
}
