//! Runs the examples and checks what they print.

use steersman::testing::{Env, TestServer};

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[path = "../../examples/debug_watch.rs"]
mod debug_watch;

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[path = "../../examples/endpoint.rs"]
mod endpoint;

#[path = "../../examples/dynamic_watch.rs"]
mod dynamic_watch;

#[path = "../../examples/multi_cluster.rs"]
mod multi_cluster;

#[path = "../../examples/quickstart.rs"]
mod quickstart;

#[path = "../../examples/runtime_change.rs"]
mod runtime_change;

#[tokio::test]
async fn debug_watch_prints_existing_objects_and_then_events() -> anyhow::Result<()> {
    let server = Env::embedded()?;
    debug_watch::create(&server.client()?, "first").await?;
    let mut lines = Vec::new();
    debug_watch::watch(server.client()?, |line| lines.push(line)).await?;
    let expected = [
        "kind source: ConfigMap is ready",
        "got Created(\"first\")",
        "got Created(\"second\")",
        "got Updated(\"second\")",
        "got Deleted(\"second\")",
    ];
    assert_eq!(lines, expected);
    Ok(())
}

#[tokio::test]
async fn endpoint_follows_the_secret_of_its_control_plane() -> anyhow::Result<()> {
    let mut lines = Vec::new();
    endpoint::run_demo(&Env::embedded()?, |line| lines.push(line)).await?;
    let expected = [
        "default/plane: endpoint 10.0.0.1:6443",
        "default/plane: endpoint east.example.com:6443",
        "default/plane: endpoint cleared",
    ];
    assert_eq!(lines, expected);
    Ok(())
}

#[test]
fn the_other_examples_succeed() -> anyhow::Result<()> {
    quickstart::main()?;
    dynamic_watch::main()?;
    multi_cluster::main()?;
    runtime_change::main()
}
