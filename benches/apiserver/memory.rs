//! Memory of stored objects.

use crate::{
    Rows,
    fixture::{fill, runtime, server, widget},
};
use cap::Cap;
use std::alloc::System;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Heap of 100,000 objects of 3 KB with a history of 1,000 changes, in percent of their JSON.
pub(crate) fn memory(quick: bool) -> Rows {
    let count = if quick { 20_000 } else { 100_000 };
    let size = 3_000;
    runtime().block_on(async {
        let (_server, mut service) = server(1_000).await;
        let before = HEAP.allocated();
        fill(&mut service, count, size).await;
        let taken = HEAP.allocated().saturating_sub(before);
        let json = count * widget("widget-000000", size).to_string().len();
        vec![("memory-100k", "%", taken as f64 * 100.0 / json as f64)]
    })
}
