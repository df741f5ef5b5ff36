//! kubectl of the release that the project compares itself with, if it is there; on CI it has to be.

use anyhow::Result;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// In the directory that `cargo xtask test` names, or where `cargo xtask envtest` keeps it.
fn find() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cached = caches.map(|caches| caches.join("steersman/envtest").join(steersman::testing::KUBERNETES_VERSION));
    let mut places = set("KUBEBUILDER_ASSETS").into_iter().chain(cached).map(|place| place.join("kubectl"));
    places.find(|kubectl| kubectl.is_file())
}

/// What it says; `None` if there is none.
pub(crate) async fn kubectl(kubeconfig: &Path, line: &str) -> Result<Option<String>> {
    let Some(program) = find() else {
        steersman::testing::skip("no kubectl", "run `cargo xtask envtest`, or set KUBEBUILDER_ASSETS");
        return Ok(None);
    };
    let cache = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.env("KUBECONFIG", kubeconfig).arg("--cache-dir").arg(cache.path()).args(line.split_whitespace());
    let output = command.output().await?;
    anyhow::ensure!(output.status.success(), "kubectl {line}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(String::from_utf8(output.stdout)?))
}
