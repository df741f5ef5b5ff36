//! Panics of others that end here.

use std::{
    any::Any,
    mem::forget,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Drop what a panic was raised with. Dropping it may panic again, and that one's words are not dropped at all: so this never panics.
#[cold]
pub(super) fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        forget(again);
    }
}
