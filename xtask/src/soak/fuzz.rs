//! Runs the fuzz targets in `fuzz/fuzz_targets` with cargo-fuzz.
//!
//! libFuzzer starts with the corpus in the repository, and stores new inputs in `fuzz/target`. An
//! input that crashes is copied to the corpus, so that `cargo xtask test` fails until the defect is
//! fixed.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::process;

/// Reason and fix if cargo-fuzz is missing.
pub(super) const INSTALL: &str =
    "cargo-fuzz is not installed; run `cargo install cargo-fuzz --locked`";

/// Longest run of one input, in seconds. Inputs take microseconds to milliseconds.
const TIMEOUT: u32 = 20;

/// Returns the names of the fuzz targets, sorted.
pub(super) fn targets(root: &Path) -> Result<Vec<String>> {
    let files = names(&root.join("fuzz/fuzz_targets"))?;
    let stems = files.iter().map(|file| Path::new(file).with_extension(""));
    Ok(stems
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect())
}

/// Returns the name by which a target is selected. Names of tests contain no slash.
pub(super) fn full_name(target: &str) -> String {
    format!("fuzz/{target}")
}

/// Returns whether cargo-fuzz can be started.
pub(super) fn is_installed() -> bool {
    process::is_available("cargo-fuzz", "--version")
}

/// Fuzzes a target. Returns whether it passed, and the commands that reproduce its crashes.
pub(super) fn run(root: &Path, target: &str, seconds: u64) -> Result<(bool, Vec<String>)> {
    let found = root.join("fuzz/target/corpus").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
    let artifacts = root.join("fuzz/artifacts").join(target);
    let before = names(&artifacts)?;
    let status = command(root, target, &found, seconds)
        .status()
        .context("cannot start `cargo fuzz`")?;
    let mut commands = Vec::new();
    for artifact in names(&artifacts)?.difference(&before) {
        let kept = keep(
            &artifacts.join(artifact),
            &root.join("fuzz/corpus").join(target),
        )?;
        commands.push(format!(
            "cargo fuzz run -s none {target} fuzz/corpus/{target}/{}",
            kept.display()
        ));
    }
    Ok((status.success(), commands))
}

/// Returns the command that fuzzes `target`. It reads the corpus of the repository and writes new
/// inputs to `found`.
fn command(root: &Path, target: &str, found: &Path, seconds: u64) -> Command {
    let mut command = process::cargo(root);
    // Sanitizers need a nightly compiler, and there is no unsafe code to check. The default of one
    // codegen unit would double the build time.
    command
        .args([
            "fuzz",
            "run",
            "--sanitizer",
            "none",
            "--codegen-units",
            "16",
            target,
        ])
        .arg(found)
        .arg(format!("fuzz/corpus/{target}"));
    command
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={TIMEOUT}"));
    command
}

/// Adds an input to a corpus unless it is there already. Returns its file name in the corpus.
fn keep(input: &Path, corpus: &Path) -> Result<PathBuf> {
    let bytes = fs::read(input).with_context(|| format!("cannot read {}", input.display()))?;
    for name in names(corpus)? {
        if fs::read(corpus.join(&name)).is_ok_and(|kept| kept == bytes) {
            return Ok(name.into());
        }
    }
    let name = PathBuf::from(input.file_name().unwrap_or_default());
    let kept = corpus.join(&name);
    fs::write(&kept, bytes).with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(name)
}

/// Returns the names of the files in a directory. A missing directory has none.
fn names(directory: &Path) -> Result<BTreeSet<OsString>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.with_context(|| format!("cannot read {}", directory.display()))?,
    };
    let names: std::io::Result<_> = entries.map(|entry| Ok(entry?.file_name())).collect();
    names.with_context(|| format!("cannot read {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_found_by_its_file() {
        let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap()
            .into();
        let targets = targets(&root).unwrap();
        assert!(
            targets.iter().any(|target| target == "quantities"),
            "{targets:?}"
        );
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        for target in &targets {
            assert!(
                manifest.contains(&format!("name = \"{target}\"")),
                "{target} is not in fuzz/Cargo.toml"
            );
            assert!(
                root.join("fuzz/corpus").join(target).is_dir(),
                "{target} has no corpus"
            );
        }
    }

    #[test]
    fn an_input_that_crashed_is_added_to_the_corpus_once() {
        let root =
            std::env::temp_dir().join(format!("steersman-xtask-corpus-{}", std::process::id()));
        let corpus = root.join("corpus");
        fs::create_dir_all(&corpus).unwrap();
        fs::write(corpus.join("known"), "1e100").unwrap();
        for (input, bytes, kept) in [
            ("crash-1", "1e100", "known"),
            ("crash-2", "2e-100", "crash-2"),
        ] {
            fs::write(root.join(input), bytes).unwrap();
            assert_eq!(keep(&root.join(input), &corpus).unwrap(), Path::new(kept));
            assert_eq!(fs::read_to_string(corpus.join(kept)).unwrap(), bytes);
        }
        assert_eq!(names(&corpus).unwrap().len(), 2);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_fuzz_run_is_limited_in_time_and_leaves_the_corpus_as_it_is() {
        let command = command(Path::new("root"), "bodies", Path::new("found"), 90);
        assert_eq!(
            process::display_command(&command),
            "cargo fuzz run --sanitizer none --codegen-units 16 bodies found fuzz/corpus/bodies -- -max_total_time=90 -timeout=20"
        );
    }
}
