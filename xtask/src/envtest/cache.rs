//! The cache of binaries: one directory per release, outside the checkout and shared by all.
//!
//! Invariant: a file with the name of a program is complete. It is built under another name and
//! then renamed. The file `inputs` describes what the programs were built from. The file `lock` is
//! locked during a build.

use std::{
    env,
    ffi::OsString,
    fs::{self, File, TryLockError},
    path::{self, Path, PathBuf},
    process,
};

use anyhow::{Context, Result};

use super::release::{PROGRAMS, Program, Release};

/// Prefix of the names of unfinished files.
const UNFINISHED: &str = ".unfinished-";

pub(super) struct Cache {
    pub(super) directory: PathBuf,
}

impl Cache {
    pub(super) fn of(release: &Release) -> Result<Self> {
        let caches = caches(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME")).context(
            "cannot locate the cache: neither XDG_CACHE_HOME nor HOME is set; set one of them",
        )?;
        // Absolute, because Go runs in another directory.
        let directory = path::absolute(caches)?
            .join("steersman/envtest")
            .join(&release.version);
        Ok(Self { directory })
    }

    /// Returns the programs that do not exist or were built from other inputs.
    pub(super) fn missing(&self, inputs: &str) -> Vec<Program> {
        let current =
            fs::read_to_string(self.inputs()).is_ok_and(|built_from| built_from == inputs);
        if current {
            missing_programs(&self.directory)
        } else {
            PROGRAMS.to_vec()
        }
    }

    /// Locks the cache for a build until the file is dropped. Calls `waiting` before it blocks.
    pub(super) fn lock(&self, waiting: impl FnOnce()) -> Result<File> {
        let path = self.directory.join("lock");
        fs::create_dir_all(&self.directory)
            .and_then(|()| File::options().create(true).append(true).open(&path))
            .and_then(|lock| match lock.try_lock() {
                Ok(()) => Ok(lock),
                Err(TryLockError::WouldBlock) => {
                    waiting();
                    lock.lock().map(|()| lock)
                }
                Err(TryLockError::Error(error)) => Err(error),
            })
            .with_context(|| {
                format!(
                    "cannot lock {}; set XDG_CACHE_HOME to a writable directory",
                    path.display()
                )
            })
    }

    /// Removes files of interrupted builds, and programs built from other inputs. Needs the lock.
    pub(super) fn prepare(&self, inputs: &str) -> Result<()> {
        let stale = self.missing(inputs).len() == PROGRAMS.len();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let program = PROGRAMS.iter().any(|program| name == program.name);
            if name.to_string_lossy().starts_with(UNFINISHED) || (stale && program) {
                fs::remove_file(entry.path())
                    .with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        // Written last: after an interruption, old programs must not look as if built from these.
        self.create_file("inputs", |path| Ok(fs::write(path, inputs)?))
    }

    /// Creates the file `name` atomically. `make` writes it to the temporary path that it gets.
    pub(super) fn create_file(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let unfinished = self
            .directory
            .join(format!("{UNFINISHED}{name}-{}", process::id()));
        let path = self.directory.join(name);
        make(&unfinished)?;
        fs::rename(&unfinished, &path)
            .with_context(|| format!("cannot rename a file to {}", path.display()))
    }

    fn inputs(&self) -> PathBuf {
        self.directory.join("inputs")
    }
}

/// Returns the programs that are not in `directory`.
pub(super) fn missing_programs(directory: &Path) -> Vec<Program> {
    PROGRAMS
        .into_iter()
        .filter(|program| !executable(&directory.join(program.name)))
        .collect()
}

fn executable(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else {
        return false;
    };
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    metadata.is_file() && may_run
}

/// Returns the user's cache directory: `${XDG_CACHE_HOME:-$HOME/.cache}`.
fn caches(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let set = |value: &OsString| !value.is_empty();
    let home = home.filter(set).map(|home| Path::new(&home).join(".cache"));
    xdg.filter(set).map(PathBuf::from).or(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary directory that is removed on drop.
    struct Scratch(Cache);

    impl Scratch {
        fn new(test: &str) -> Self {
            let directory =
                env::temp_dir().join(format!("steersman-xtask-{test}-{}", process::id()));
            fs::create_dir_all(&directory).unwrap();
            Self(Cache { directory })
        }

        fn build(&self, program: Program) {
            self.0
                .create_file(program.name, |path| {
                    fs::write(path, "#!/bin/sh\n")?;
                    let mut permissions = fs::metadata(path)?.permissions();
                    #[cfg(unix)]
                    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
                    Ok(fs::set_permissions(path, permissions)?)
                })
                .unwrap();
        }

        fn files(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0.directory)
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.directory);
        }
    }

    #[test]
    fn the_cache_is_in_xdg_cache_home_or_in_home() {
        let directory = |xdg: Option<&str>, home: Option<&str>| {
            caches(xdg.map(Into::into), home.map(Into::into))
        };
        assert_eq!(directory(Some("x"), Some("h")), Some("x".into()));
        assert_eq!(directory(Some(""), Some("h")), Some("h/.cache".into()));
        assert_eq!(directory(None, Some("h")), Some("h/.cache".into()));
        assert_eq!(directory(None, None), None);
    }

    #[test]
    fn a_program_exists_if_it_is_an_executable_file() {
        let scratch = Scratch::new("whole");
        let cache = &scratch.0;
        cache.prepare("a").unwrap();
        assert_eq!(cache.missing("a"), PROGRAMS);
        scratch.build(PROGRAMS[0]);
        fs::write(cache.directory.join(PROGRAMS[1].name), "not executable").unwrap();
        fs::create_dir(cache.directory.join(PROGRAMS[2].name)).unwrap();
        assert_eq!(cache.missing("a"), PROGRAMS[1..]);
        assert_eq!(missing_programs(&cache.directory), PROGRAMS[1..]);
    }

    #[test]
    fn programs_of_other_inputs_are_removed() {
        let scratch = Scratch::new("inputs");
        let cache = &scratch.0;
        cache.prepare("a").unwrap();
        for program in PROGRAMS {
            scratch.build(program);
        }
        cache.prepare("a").unwrap();
        assert_eq!(cache.missing("a"), []);
        assert_eq!(cache.missing("b"), PROGRAMS);
        cache.prepare("b").unwrap();
        assert_eq!(scratch.files(), ["inputs"]);
        assert_eq!(cache.missing("b"), PROGRAMS);
    }

    #[test]
    fn an_interrupted_build_leaves_nothing_under_the_programs_name() {
        let scratch = Scratch::new("interrupted");
        let cache = &scratch.0;
        cache.prepare("a").unwrap();
        let interrupted = cache.create_file("etcd", |path| {
            fs::write(path, "partial")?;
            anyhow::bail!("interrupted")
        });
        assert!(interrupted.is_err());
        assert_eq!(cache.missing("a"), PROGRAMS);
        assert_eq!(
            scratch.files().len(),
            2,
            "the partial file has another name"
        );
        cache.prepare("a").unwrap();
        assert_eq!(scratch.files(), ["inputs"], "removed by the next build");
    }

    #[test]
    fn lock_reports_that_it_waits_for_another_build() {
        let scratch = Scratch::new("two");
        let cache = &scratch.0;
        let mut first = Some(cache.lock(|| panic!("the lock is free")).unwrap());
        let mut waited = false;
        let second = cache.lock(|| {
            waited = true;
            first.take();
        });
        assert!(second.is_ok() && waited);
    }
}
