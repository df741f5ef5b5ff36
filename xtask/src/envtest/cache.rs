//! Where the binaries are kept: a directory for each release, outside the checkout, so that all checkouts share it.
//!
//! A file under a program's name is always a whole program: it is built under another name and renamed. Beside the
//! programs lie `inputs`, what they were built from, and `lock`, which whoever builds holds.

use std::{
    env,
    ffi::OsString,
    fs::{self, File, TryLockError},
    path::{self, Path, PathBuf},
    process,
};

use anyhow::{Context, Result};

use super::release::{PROGRAMS, Program, Release};

/// How the names of unfinished files begin.
const UNFINISHED: &str = ".unfinished-";

pub(super) struct Cache {
    pub(super) directory: PathBuf,
}

impl Cache {
    pub(super) fn of(release: &Release) -> Result<Self> {
        let caches = caches(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
            .context("neither XDG_CACHE_HOME nor HOME says where to keep the binaries: set one of them")?;
        // Absolute, because Go builds in another folder than the one we are in.
        let directory = path::absolute(caches)?.join("steersman/envtest").join(&release.version);
        Ok(Self { directory })
    }

    /// The programs that are not there, or were built from something else than `inputs`.
    pub(super) fn missing(&self, inputs: &str) -> Vec<Program> {
        let ours = fs::read_to_string(self.inputs()).is_ok_and(|built_from| built_from == inputs);
        if ours { lacking(&self.directory) } else { PROGRAMS.to_vec() }
    }

    /// Keeps others from building until the lock is dropped; calls `waiting` if another does so now.
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
                format!("cannot lock {}: point XDG_CACHE_HOME to a directory that can be written", path.display())
            })
    }

    /// Removes what interrupted builds and builds from other inputs have left. Only under the lock.
    pub(super) fn prepare(&self, inputs: &str) -> Result<()> {
        let stale = self.missing(inputs).len() == PROGRAMS.len();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let program = PROGRAMS.iter().any(|program| name == program.name);
            if name.to_string_lossy().starts_with(UNFINISHED) || (stale && program) {
                fs::remove_file(entry.path()).with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        // Only now: were it written first, an interruption would pass old programs off as ones of these inputs.
        self.place("inputs", |path| Ok(fs::write(path, inputs)?))
    }

    /// Makes the file `name`, with the help of `make`, which gets the path of a file that no one else knows.
    pub(super) fn place(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let unfinished = self.directory.join(format!("{UNFINISHED}{name}-{}", process::id()));
        let path = self.directory.join(name);
        make(&unfinished)?;
        fs::rename(&unfinished, &path).with_context(|| format!("cannot put {} in its place", path.display()))
    }

    fn inputs(&self) -> PathBuf {
        self.directory.join("inputs")
    }
}

/// The programs that `directory` lacks.
pub(super) fn lacking(directory: &Path) -> Vec<Program> {
    PROGRAMS.into_iter().filter(|program| !executable(&directory.join(program.name))).collect()
}

fn executable(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    metadata.is_file() && may_run
}

/// The user's caches, as `${XDG_CACHE_HOME:-$HOME/.cache}` has it.
fn caches(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let set = |value: &OsString| !value.is_empty();
    let home = home.filter(set).map(|home| Path::new(&home).join(".cache"));
    xdg.filter(set).map(PathBuf::from).or(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of a test's own, gone when the test is over.
    struct Scratch(Cache);

    impl Scratch {
        fn new(test: &str) -> Self {
            let directory = env::temp_dir().join(format!("steersman-xtask-{test}-{}", process::id()));
            fs::create_dir_all(&directory).unwrap();
            Self(Cache { directory })
        }

        fn build(&self, program: Program) {
            self.0
                .place(program.name, |path| {
                    fs::write(path, "#!/bin/sh\n")?;
                    let mut permissions = fs::metadata(path)?.permissions();
                    #[cfg(unix)]
                    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
                    Ok(fs::set_permissions(path, permissions)?)
                })
                .unwrap();
        }

        fn files(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0.directory).unwrap().map(|entry| entry.unwrap().file_name());
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
    fn the_cache_is_where_the_shell_would_look() {
        let place = |xdg: Option<&str>, home: Option<&str>| caches(xdg.map(Into::into), home.map(Into::into));
        assert_eq!(place(Some("x"), Some("h")), Some("x".into()));
        assert_eq!(place(Some(""), Some("h")), Some("h/.cache".into()));
        assert_eq!(place(None, Some("h")), Some("h/.cache".into()));
        assert_eq!(place(None, None), None);
    }

    #[test]
    fn a_program_is_there_once_it_is_whole_and_may_be_run() {
        let scratch = Scratch::new("whole");
        let cache = &scratch.0;
        cache.prepare("a").unwrap();
        assert_eq!(cache.missing("a"), PROGRAMS);
        scratch.build(PROGRAMS[0]);
        fs::write(cache.directory.join(PROGRAMS[1].name), "not executable").unwrap();
        fs::create_dir(cache.directory.join(PROGRAMS[2].name)).unwrap();
        assert_eq!(cache.missing("a"), PROGRAMS[1..]);
        assert_eq!(lacking(&cache.directory), PROGRAMS[1..]);
    }

    #[test]
    fn programs_of_other_inputs_are_built_anew_and_those_of_the_same_kept() {
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
        let interrupted = cache.place("etcd", |path| {
            fs::write(path, "half")?;
            anyhow::bail!("interrupted")
        });
        assert!(interrupted.is_err());
        assert_eq!(cache.missing("a"), PROGRAMS);
        assert_eq!(scratch.files().len(), 2, "the half file is there under another name");
        cache.prepare("a").unwrap();
        assert_eq!(scratch.files(), ["inputs"], "until the next build");
    }

    #[test]
    fn the_second_of_two_waits_and_says_so() {
        let scratch = Scratch::new("two");
        let cache = &scratch.0;
        let mut first = Some(cache.lock(|| panic!("nobody else builds")).unwrap());
        let mut waited = false;
        let second = cache.lock(|| {
            waited = true;
            first.take();
        });
        assert!(second.is_ok() && waited);
    }
}
