//! The examples say what they should.

use steersman::testing::{Env, TestServer};

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[path = "../../examples/debug_watch.rs"]
mod debug_watch;

/// The requirement's example prints what there is, and then what happens.
#[tokio::test]
async fn the_debugging_example_tells_what_there_is_and_what_happens() -> anyhow::Result<()> {
    let server = Env::embedded()?;
    debug_watch::make(&server.client()?, "web-0").await?;
    let mut lines = Vec::new();
    debug_watch::watch(server.client()?, |line| lines.push(line)).await?;
    let wanted = [
        "kind source: Pod is ready",
        "got Created(\"web-0\")",
        "got Created(\"web-1\")",
        "got Updated(\"web-1\")",
        "got Deleted(\"web-1\")",
    ];
    assert_eq!(lines, wanted);
    Ok(())
}
