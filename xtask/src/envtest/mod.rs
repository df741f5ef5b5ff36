//! `cargo xtask envtest`: builds the binaries of a real control plane for the tests.
//!
//! The binaries are `etcd`, `kube-apiserver`, `kube-controller-manager` and `kubectl`. If the
//! variable `KUBEBUILDER_ASSETS` names a directory with all of them, that directory is used. A
//! directory that lacks some is ignored, so that binaries of two releases are never mixed.
//! Otherwise they are in the user's cache. Go builds those that are missing, from the versions that
//! the module `xtask/envtest` pins.

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
    cache::{Cache, missing_programs},
    release::{PROGRAMS, Program, Release},
};
use crate::{process, progress};

/// Variable with the directory of the binaries, as for Go's envtest.
pub(crate) const VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// Error if the binaries are missing and cannot be built.
pub(crate) const WITHOUT_GO: &str = "cannot build the real control plane: Go is not installed; install Go from \
                                     https://go.dev/dl or set KUBEBUILDER_ASSETS to a directory with etcd, \
                                     kube-apiserver, kube-controller-manager and kubectl";

#[derive(Args)]
pub(crate) struct Options {
    /// Print only the directory, for scripts
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let begun = Instant::now();
    let directory = require(&process::root()?)?;
    let shown = directory.display();
    if options.print {
        println!("{shown}");
    } else {
        let names = PROGRAMS.map(|program| program.name).join(", ");
        println!(
            "{names} are in {shown} ({})\nexport {VARIABLE}={shown}",
            progress::format_duration(begun.elapsed())
        );
    }
    Ok(true)
}

/// Returns the directory of the binaries, or `None` if some are missing. Builds nothing.
fn find(root: &Path) -> Result<Option<PathBuf>> {
    let release = Release::read(root)?;
    let cache = Cache::of(&release)?;
    if let Some(assets) = assets(&cache).filter(|assets| missing_programs(assets).is_empty()) {
        return Ok(Some(assets));
    }
    Ok(cache
        .missing(&release.inputs)
        .is_empty()
        .then_some(cache.directory))
}

/// Sets [`VARIABLE`] for `command` to the directory of the binaries.
///
/// Removes the variable if some binaries are missing, so that tests never use an incomplete
/// directory.
pub(crate) fn set_assets_variable(command: &mut Command, root: &Path) -> Result<()> {
    match find(root)? {
        Some(directory) => command.env(VARIABLE, directory),
        None => command.env_remove(VARIABLE),
    };
    Ok(())
}

/// Returns the directory of the binaries, and builds those that are missing.
///
/// Returns `None` if a build is needed and Go is not installed. Prints the progress to standard
/// error.
pub(crate) fn find_or_build(root: &Path) -> Result<Option<PathBuf>> {
    let release = Release::read(root)?;
    let cache = Cache::of(&release)?;
    if let Some(assets) = assets(&cache) {
        let missing_programs = missing_programs(&assets);
        if missing_programs.is_empty() {
            eprintln!("using {} from {VARIABLE}", assets.display());
            return Ok(Some(assets));
        }
        eprintln!("{}", describe_unusable(&assets, &missing_programs));
    }
    if cache.missing(&release.inputs).is_empty() {
        return Ok(Some(cache.directory));
    }
    if !process::is_available("go", "version") {
        return Ok(None);
    }
    let lock = cache.lock(|| {
        eprintln!("waiting for another build in {}", cache.directory.display());
    })?;
    // The previous holder of the lock may have built them.
    let missing = cache.missing(&release.inputs);
    if !missing.is_empty() {
        cache.prepare(&release.inputs)?;
        build::all(&release, &cache, &missing)?;
    }
    drop(lock);
    Ok(Some(cache.directory))
}

/// Like [`find_or_build`], but fails if Go is not installed.
pub(crate) fn require(root: &Path) -> Result<PathBuf> {
    let Some(directory) = find_or_build(root)? else {
        bail!(WITHOUT_GO)
    };
    Ok(directory)
}

/// Returns the directory in [`VARIABLE`] as an absolute path, since tests run in other directories.
///
/// Returns `None` for the directory of the cache, which a shell may have exported: unlike a
/// directory of the user, it must be kept up to date.
fn assets(cache: &Cache) -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|value| !value.is_empty())?;
    path::absolute(named)
        .ok()
        .filter(|assets| *assets != cache.directory)
}

fn describe_unusable(assets: &Path, missing_programs: &[Program]) -> String {
    let names: Vec<&str> = missing_programs
        .iter()
        .map(|program| program.name)
        .collect();
    format!(
        "ignoring {VARIABLE}: {} lacks {}",
        assets.display(),
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_without_go_is_one_line_and_names_the_alternatives() {
        assert!(!WITHOUT_GO.contains('\n') && !WITHOUT_GO.contains(". "));
        for program in PROGRAMS {
            assert!(WITHOUT_GO.contains(program.name));
        }
        assert!(WITHOUT_GO.contains(VARIABLE) && WITHOUT_GO.contains("install Go"));
    }

    #[test]
    fn an_ignored_directory_is_named_with_the_programs_that_it_lacks() {
        assert_eq!(
            describe_unusable(Path::new("there"), &PROGRAMS[2..]),
            "ignoring KUBEBUILDER_ASSETS: there lacks kube-controller-manager, kubectl"
        );
    }
}
