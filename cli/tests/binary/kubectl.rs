//! Runs kubectl of the pinned Kubernetes release. Tests are skipped if it is missing, except on CI.

use anyhow::Result;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Returns kubectl from the directory of `cargo xtask test` or from the cache of `cargo xtask envtest`.
fn find() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cached = caches.map(|caches| {
        caches
            .join("steersman/envtest")
            .join(steersman::testing::KUBERNETES_VERSION)
    });
    let mut places = set("KUBEBUILDER_ASSETS")
        .into_iter()
        .chain(cached)
        .map(|place| place.join("kubectl"));
    places.find(|kubectl| kubectl.is_file())
}

/// Runs kubectl and returns its output. Returns `None` if kubectl is missing.
pub(crate) async fn kubectl(kubeconfig: &Path, line: &str) -> Result<Option<String>> {
    let Some(program) = find() else {
        steersman::testing::skip(
            "no kubectl",
            "run `cargo xtask envtest`, or set KUBEBUILDER_ASSETS",
        );
        return Ok(None);
    };
    let cache = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command
        .env("KUBECONFIG", kubeconfig)
        .arg("--cache-dir")
        .arg(cache.path())
        .args(line.split_whitespace());
    let output = command.output().await?;
    anyhow::ensure!(
        output.status.success(),
        "kubectl {line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Some(String::from_utf8(output.stdout)?))
}
