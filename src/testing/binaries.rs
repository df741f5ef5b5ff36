//! Search for the binaries of the control plane.
//!
//! One directory must have all of them. An explicitly configured directory is never skipped.

use super::Error;
use std::{
    env,
    path::{Path, PathBuf},
};

/// Version of Kubernetes that `cargo xtask envtest` builds in the repository of steersman.
pub const KUBERNETES_VERSION: &str = "v1.37.1";

pub(super) const ETCD: &str = "etcd";
pub(super) const API_SERVER: &str = "kube-apiserver";
pub(super) const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Finds the directory with the binaries.
///
/// Searches the configured directory, `KUBEBUILDER_ASSETS`, the output of `cargo xtask envtest`,
/// and the directory of envtest.
pub(super) fn find(named: Option<&Path>, controller_manager: bool) -> Result<PathBuf, Error> {
    let named = named
        .map(PathBuf::from)
        .or_else(|| set("KUBEBUILDER_ASSETS"));
    let needed = &[ETCD, API_SERVER, CONTROLLER_MANAGER][..if controller_manager { 3 } else { 2 }];
    choose(
        named,
        vec![
            cached(set("XDG_CACHE_HOME"), set("HOME")),
            Some("/usr/local/kubebuilder/bin".into()),
        ],
        needed,
    )
}

fn choose(
    named: Option<PathBuf>,
    usual: Vec<Option<PathBuf>>,
    needed: &[&'static str],
) -> Result<PathBuf, Error> {
    let missing = |directory: &Path| {
        needed
            .iter()
            .find(|program| !directory.join(program).is_file())
            .copied()
    };
    if let Some(directory) = named {
        return match missing(&directory) {
            Some(program) => Err(Error::MissingBinary { program, directory }),
            None => Ok(directory),
        };
    }
    let looked: Vec<_> = usual.into_iter().flatten().collect();
    if let Some(directory) = looked.iter().find(|directory| missing(directory).is_none()) {
        return Ok(directory.clone());
    }
    // A directory with some of the binaries: report the missing one instead of the whole search.
    let partly = looked.iter().find(|directory| {
        needed
            .iter()
            .any(|program| directory.join(program).is_file())
    });
    match partly.and_then(|directory| Some((missing(directory)?, directory.clone()))) {
        Some((program, directory)) => Err(Error::MissingBinary { program, directory }),
        None => Err(Error::NoBinaries { looked }),
    }
}

/// Returns the output directory of `cargo xtask envtest`.
fn cached(cache: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let cache = cache.or_else(|| Some(home?.join(".cache")))?;
    Some(cache.join("steersman/envtest").join(KUBERNETES_VERSION))
}

/// Returns the value of a variable that is set and not empty.
fn set(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn with(programs: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for program in programs {
            fs::write(directory.path().join(program), "").unwrap();
        }
        directory
    }

    #[test]
    fn a_configured_directory_wins_and_missing_files_are_reported() {
        let (named, usual) = (with(&[ETCD]), with(&[ETCD, API_SERVER]));
        let usual = vec![Some(usual.path().to_owned())];
        let error = choose(
            Some(named.path().into()),
            usual.clone(),
            &[ETCD, API_SERVER],
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("cannot find kube-apiserver in "),
            "{error}"
        );
        assert!(error.is_about_missing_binaries());
        assert_eq!(
            choose(Some(named.path().into()), usual, &[ETCD]).unwrap(),
            named.path()
        );
    }

    #[test]
    fn the_first_usual_directory_that_has_everything_is_taken() {
        let (none, some, all) = (with(&[]), with(&[ETCD]), with(&[ETCD, API_SERVER]));
        let usual = [&none, &some, &all]
            .map(|directory| Some(directory.path().to_owned()))
            .to_vec();
        assert_eq!(
            choose(None, usual.clone(), &[ETCD, API_SERVER]).unwrap(),
            all.path()
        );
        let error = choose(None, usual, &[ETCD, API_SERVER, CONTROLLER_MANAGER]).unwrap_err();
        assert!(
            error.to_string().contains("cannot find kube-apiserver in "),
            "the error is about the first directory with binaries: {error}"
        );
    }

    #[test]
    fn without_binaries_the_error_lists_the_searched_directories() {
        let none = with(&[]);
        let error = choose(None, vec![None, Some(none.path().into())], &[ETCD])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("set KUBEBUILDER_ASSETS to a directory with both")
                && error.contains("`setup-envtest use -p path`"),
            "{error}"
        );
        assert!(error.contains(&*none.path().to_string_lossy()), "{error}");
    }

    #[test]
    fn the_cache_is_xdgs_or_the_homes() {
        let expected = |start: &str| {
            Some(
                PathBuf::from(start)
                    .join("steersman/envtest")
                    .join(KUBERNETES_VERSION),
            )
        };
        assert_eq!(cached(Some("/c".into()), Some("/h".into())), expected("/c"));
        assert_eq!(cached(None, Some("/h".into())), expected("/h/.cache"));
        assert_eq!(cached(None, None), None);
    }

    #[test]
    fn the_version_is_the_one_that_is_built() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("xtask/envtest/go.mod");
        // The package can be built outside of its workspace.
        let Ok(module) = fs::read_to_string(path) else {
            return;
        };
        let mut words = module
            .lines()
            .map(|line| line.split_whitespace().filter(|word| *word != "require"));
        let version = words.find_map(|mut words| {
            (words.next() == Some("k8s.io/kubernetes"))
                .then(|| words.next().map(str::to_owned))
                .flatten()
        });
        assert_eq!(version.as_deref(), Some(KUBERNETES_VERSION));
    }
}
