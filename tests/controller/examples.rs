//! The examples say what they should.

use steersman::testing::{Env, TestServer};

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[path = "../../examples/debug_watch.rs"]
mod debug_watch;

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[path = "../../examples/endpoint.rs"]
mod endpoint;

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[path = "../../examples/extension_config.rs"]
mod extension_config;

#[path = "../../examples/dynamic_watch.rs"]
mod dynamic_watch;

#[path = "../../examples/multi_cluster.rs"]
mod multi_cluster;

#[path = "../../examples/quickstart.rs"]
mod quickstart;

#[path = "../../examples/runtime_change.rs"]
mod runtime_change;

/// The requirement's example prints what there is, and then what happens.
#[tokio::test]
async fn the_debugging_example_tells_what_there_is_and_what_happens() -> anyhow::Result<()> {
    let server = Env::embedded()?;
    debug_watch::make(&server.client()?, "first").await?;
    let mut lines = Vec::new();
    debug_watch::watch(server.client()?, |line| lines.push(line)).await?;
    let wanted = [
        "kind source: ConfigMap is ready",
        "got Created(\"first\")",
        "got Created(\"second\")",
        "got Updated(\"second\")",
        "got Deleted(\"second\")",
    ];
    assert_eq!(lines, wanted);
    Ok(())
}

#[tokio::test]
async fn the_endpoint_example_follows_what_its_control_plane_refers_to() -> anyhow::Result<()> {
    let mut lines = Vec::new();
    endpoint::story(&Env::embedded()?, |line| lines.push(line)).await?;
    let wanted = [
        "default/plane: endpoint 10.0.0.1:6443",
        "default/plane: endpoint east.example.com:6443",
        "default/plane: endpoint cleared",
    ];
    assert_eq!(lines, wanted);
    Ok(())
}

#[tokio::test]
async fn the_extension_example_waits_for_its_gate_and_follows_secrets_and_calls() -> anyhow::Result<()> {
    let mut lines = Vec::new();
    extension_config::story(&Env::embedded()?, |line| lines.push(line)).await?;
    let wanted = [
        "1 warmed up",
        "greeter is discovered: ExtensionConfig listed",
        "greeter is discovered: channel generic event",
        "greeter is given trust me",
        "greeter is given trust her",
        "plain is refused",
        "greeter is forgotten",
    ];
    assert_eq!(lines, wanted);
    Ok(())
}

#[test]
fn the_other_examples_run_to_their_ends() -> anyhow::Result<()> {
    quickstart::main()?;
    dynamic_watch::main()?;
    multi_cluster::main()?;
    runtime_change::main()
}
