//! Builds the Go peer, once for each version of its sources.

use std::{
    env, fs,
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio, id},
    sync::OnceLock,
    thread::sleep,
    time::{Duration, Instant},
};

/// Reason of a skipped test, as `cargo xtask test` counts it.
const WITHOUT_GO: &str = "no Go";

/// Interval of progress messages during a build.
const PROGRESS: Duration = Duration::from_secs(10);

/// Returns the executable of the peer, and builds it if needed; `None` if Go is not installed.
pub(super) fn executable() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let version = go_version()?;
        Some(find_or_build(&version).unwrap_or_else(|error| {
            panic!("cannot build the Go peer: {error}; see the output of `go build` above")
        }))
    });
    if built.is_none() {
        let fix = "install Go from https://go.dev/dl to test against Cluster API";
        steersman::testing::skip(WITHOUT_GO, fix);
    }
    built.clone()
}

/// Returns the output of `go version`, or `None` if Go is not installed.
fn go_version() -> Option<String> {
    let output = Command::new("go").arg("version").output().ok()?;
    let succeeded = output.status.success();
    succeeded.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the executable from the user's cache, and builds it first if it is missing.
///
/// Its name contains a hash of all sources.
fn find_or_build(version: &str) -> io::Result<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/peers/capi");
    let directory = cache()?.join("steersman/peers/capi");
    let path = directory.join(format!("peer-{:016x}", hash(&module, version)?));
    if path.is_file() {
        return Ok(path);
    }
    fs::create_dir_all(&directory)?;
    let lock = File::options()
        .create(true)
        .append(true)
        .open(directory.join("lock"))?;
    lock.lock()?;
    // The previous holder of the lock may have built it.
    if path.is_file() {
        return Ok(path);
    }
    let unfinished = directory.join(format!(".unfinished-{}", id()));
    build(&module, &unfinished)?;
    fs::rename(&unfinished, &path)?;
    Ok(path)
}

fn cache() -> io::Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let home = || Some(PathBuf::from(set("HOME")?).join(".cache"));
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    cache.ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))
}

fn hash(module: &Path, version: &str) -> io::Result<u64> {
    let mut files: Vec<_> = fs::read_dir(module)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    version.hash(&mut hasher);
    for file in files {
        file.file_name().hash(&mut hasher);
        fs::read(file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn build(module: &Path, output: &Path) -> io::Result<()> {
    let begun = Instant::now();
    let mut go = Command::new("go")
        .args(["build", "-mod=readonly", "-ldflags=-s -w", "-o"])
        .args([output, Path::new(".")])
        .current_dir(module)
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .spawn()?;
    let mut shown = Duration::ZERO;
    let status = loop {
        if let Some(status) = go.try_wait()? {
            break status;
        }
        sleep(Duration::from_millis(50));
        if begun.elapsed() >= shown + PROGRESS {
            shown = begun.elapsed();
            // libtest captures `eprintln!`, but not writes to stderr.
            let _ = writeln!(
                io::stderr(),
                "building the Go peer of the Runtime SDK: {} s, about 2 min the first time",
                shown.as_secs()
            );
        }
    };
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("`go build` failed ({status})")))
}
