//! Test of the example of a runtime extension.

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[path = "../../../examples/runtime_extension.rs"]
mod runtime_extension;

#[tokio::test]
async fn the_example_delays_clusters_without_a_label() -> anyhow::Result<()> {
    let mut lines = Vec::new();
    runtime_extension::run_demo(|line| lines.push(line)).await?;
    assert_eq!(
        lines,
        [
            "discovered require-cost-center.costs",
            "{}: delayed by 30 s, set the label cost-center",
            r#"{"cost-center":"42"}: not delayed"#,
        ]
    );
    Ok(())
}
