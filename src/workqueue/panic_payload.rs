//! Disposal of caught panics.

use std::{
    any::Any,
    mem::forget,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Drops the payload of a panic without panicking.
///
/// Dropping a payload can panic again. The payload of that second panic is leaked.
#[cold]
pub(super) fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        forget(again);
    }
}
