//! `cargo xtask envtest`: the real control plane of one pinned Kubernetes release, for the tests that need it.
//!
//! A directory that holds `etcd`, `kube-apiserver`, `kube-controller-manager` and `kubectl` is used if the variable
//! `KUBEBUILDER_ASSETS` names it. It is used as a whole or not at all: programs of two releases side by side would be a
//! third thing that nobody runs. Otherwise they are in the user's cache, where Go builds them from the module proxy
//! when they are absent. What is built is said by the Go module in `xtask/envtest`, so everybody has the same.

mod build;
mod cache;
mod estimate;
mod release;

use std::{
    env,
    path::{self, Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Result, bail};
use clap::Args;

use self::{
    cache::{Cache, lacking},
    release::{PROGRAMS, Program, Release},
};
use crate::{process, progress};

/// The variable by which tests find the binaries; the same as for Go's envtest.
pub(crate) const VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// What to do when there is neither Go nor what it would build.
pub(crate) const WITHOUT_GO: &str = "the real control plane is neither here nor can it be built, because Go is not \
                                     installed: install Go from https://go.dev/dl or set KUBEBUILDER_ASSETS to a \
                                     directory with etcd, kube-apiserver, kube-controller-manager and kubectl";

#[derive(Args)]
pub(crate) struct Options {
    /// Print only the directory, for scripts
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let begun = Instant::now();
    let directory = required(&process::root()?)?;
    let shown = directory.display();
    if options.print {
        println!("{shown}");
    } else {
        let names = PROGRAMS.map(|program| program.name).join(", ");
        println!("{names} are in {shown} ({})\nexport {VARIABLE}={shown}", progress::words(begun.elapsed()));
    }
    Ok(true)
}

/// Where the binaries are, if they are: nothing is built.
fn present(root: &Path) -> Result<Option<PathBuf>> {
    let release = Release::read(root)?;
    let cache = Cache::of(&release)?;
    if let Some(assets) = assets(&cache).filter(|assets| lacking(assets).is_empty()) {
        return Ok(Some(assets));
    }
    Ok(cache.missing(&release.inputs).is_empty().then_some(cache.directory))
}

/// Tells the tests that `command` runs where the binaries are, if they are. A directory that lacks some of them is hidden
/// from the tests: see above.
pub(crate) fn tell(command: &mut Command, root: &Path) -> Result<()> {
    match present(root)? {
        Some(directory) => command.env(VARIABLE, directory),
        None => command.env_remove(VARIABLE),
    };
    Ok(())
}

/// Where the binaries are, built if need be; nothing without Go, if something has to be built. The progress goes to
/// standard error.
pub(crate) fn ensured(root: &Path) -> Result<Option<PathBuf>> {
    let release = Release::read(root)?;
    let cache = Cache::of(&release)?;
    if let Some(assets) = assets(&cache) {
        let lacking = lacking(&assets);
        if lacking.is_empty() {
            eprintln!("{VARIABLE} is set: using {}", assets.display());
            return Ok(Some(assets));
        }
        eprintln!("{}", unusable(&assets, &lacking));
    }
    if cache.missing(&release.inputs).is_empty() {
        return Ok(Some(cache.directory));
    }
    if !process::answers("go", "version") {
        return Ok(None);
    }
    let lock = cache.lock(|| {
        eprintln!("another build is under way in {}: waiting for it to end", cache.directory.display());
    })?;
    // Whoever held the lock may have built them.
    let missing = cache.missing(&release.inputs);
    if !missing.is_empty() {
        cache.prepare(&release.inputs)?;
        build::all(&release, &cache, &missing)?;
    }
    drop(lock);
    Ok(Some(cache.directory))
}

/// The same for commands that make no sense without them.
pub(crate) fn required(root: &Path) -> Result<PathBuf> {
    let Some(directory) = ensured(root)? else { bail!(WITHOUT_GO) };
    Ok(directory)
}

/// The directory that the user names, absolute, since tests run in folders of their own. Our own directory, which a
/// shell may have exported, is no choice of the user's: it has to be kept up to date.
fn assets(cache: &Cache) -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|value| !value.is_empty())?;
    path::absolute(named).ok().filter(|assets| *assets != cache.directory)
}

fn unusable(assets: &Path, lacking: &[Program]) -> String {
    let names: Vec<&str> = lacking.iter().map(|program| program.name).collect();
    format!("{VARIABLE} is not used: {} lacks {}", assets.display(), names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_go_one_sentence_says_what_to_do() {
        assert!(!WITHOUT_GO.contains('\n') && !WITHOUT_GO.contains(". "));
        for program in PROGRAMS {
            assert!(WITHOUT_GO.contains(program.name));
        }
        assert!(WITHOUT_GO.contains(VARIABLE) && WITHOUT_GO.contains("install Go"));
    }

    #[test]
    fn a_directory_that_is_not_used_is_named_with_what_it_lacks() {
        assert_eq!(
            unusable(Path::new("there"), &PROGRAMS[2..]),
            "KUBEBUILDER_ASSETS is not used: there lacks kube-controller-manager, kubectl"
        );
    }
}
