//! Seeds of random tests.

use crate::{Test, record};
use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
    vec,
};

/// Names the seconds that a soak test takes. `cargo xtask soak` sets it.
const SOAK: &str = "STEERSMAN_SOAK";

/// Names the only seed to run, to reproduce a failure.
const SEED: &str = "STEERSMAN_SEED";

/// Names the file that collects the commands of failures. `cargo xtask soak` sets it.
const FAILURES: &str = "STEERSMAN_SOAK_FAILURES";

/// First line of a file of seeds.
const HEADER: &str = "# Seeds that failed in `cargo xtask soak`. `cargo xtask test` runs them before its fixed seeds.\n";

/// Iterator over the seeds of a random test. Run one round of the test for each.
///
/// | environment | seeds |
/// |---|---|
/// | none, as in `cargo xtask test` | the kept regressions, then `1..=count`: the same in every run |
/// | `STEERSMAN_SOAK=N`, set by `cargo xtask soak` | new ones for `N` seconds, at least one |
/// | `STEERSMAN_SEED=N` | `N` alone; with `STEERSMAN_SOAK` repeatedly |
///
/// A round fails if the loop ends before it takes the next seed: by a panic, a returned error or a
/// dropped future. Then the command that repeats the round is printed. A soak also
/// appends the seed to the test's regression file, `regressions/<target>/<path of the test>.txt` in
/// the package, to commit with the fix.
///
/// A seed determines what the test does. It does not determine how threads interleave, nor random
/// choices of the code under test: a failure that depends on these may need several rounds.
///
/// ```
/// for seed in steersman_testkit::Seeds::new(steersman_testkit::this_test!(), 20) {
///     assert_eq!(seed.reverse_bits().reverse_bits(), seed);
/// }
/// ```
#[derive(Debug)]
pub struct Seeds {
    test: Test,
    mode: Mode,
    /// Seed of the round that has not ended.
    running: Option<u64>,
    /// Number of rounds begun.
    rounds: u64,
    /// Whether a failure in a soak is appended to the regression file.
    keeps: bool,
}

#[derive(Debug)]
enum Mode {
    Fixed(vec::IntoIter<u64>),
    /// Repeats `seed`, or takes new seeds. The time starts with the first round.
    Soak {
        seed: Option<u64>,
        time: Duration,
        deadline: Option<Instant>,
    },
}

impl Seeds {
    /// Creates the seeds of `test`. `count` is the number of fixed seeds that `cargo xtask test` runs.
    ///
    /// # Panics
    /// If the regression file of the test has an invalid line, or a variable is not a number.
    pub fn new(test: Test, count: u64) -> Self {
        let mode = mode(number(SEED), soak_time(), || {
            kept(&test.regressions())
                .into_iter()
                .chain(1..=count)
                .collect()
        });
        Self {
            test,
            mode,
            running: None,
            rounds: 0,
            keeps: true,
        }
    }

    /// Creates the seeds of a test whose failures proptest keeps, in the test's regression file.
    #[cfg(feature = "proptest")]
    pub(crate) fn kept_by_proptest(test: Test) -> Self {
        let mode = mode(number(SEED), soak_time(), || vec![1]);
        Self {
            test,
            mode,
            running: None,
            rounds: 0,
            keeps: false,
        }
    }
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.running = None;
        self.running = match &mut self.mode {
            Mode::Fixed(seeds) => seeds.next(),
            Mode::Soak {
                seed,
                time,
                deadline,
            } => {
                let is_first = deadline.is_none();
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + *time);
                (is_first || Instant::now() < deadline).then(|| seed.unwrap_or_else(new_seed))
            }
        };
        self.rounds += u64::from(self.running.is_some());
        self.running
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        let soaks = matches!(self.mode, Mode::Soak { .. });
        let Some(seed) = self.running else {
            if soaks {
                println!("{}: passed, rounds: {}", self.test, self.rounds);
            }
            return;
        };
        let command = self.test.command(seed);
        eprintln!("seed {seed} failed, reproduce with: {command}");
        if !soaks {
            return;
        }
        record::append(FAILURES, &command);
        let file = self.test.shown_regressions();
        if self.keeps
            && let Err(error) = keep(&self.test.regressions(), seed)
        {
            eprintln!(
                "cannot write {}: {error}; add the seed {seed} to it",
                file.display()
            );
        } else {
            eprintln!("kept in {}, commit it with the fix", file.display());
        }
    }
}

/// Returns the time that a soak test takes, or `None` if it runs with fixed seeds.
///
/// # Panics
/// If `STEERSMAN_SOAK` is not a number of seconds.
pub fn soak_time() -> Option<Duration> {
    number(SOAK).map(Duration::from_secs)
}

fn mode(seed: Option<u64>, soak: Option<Duration>, fixed: impl FnOnce() -> Vec<u64>) -> Mode {
    match (seed, soak) {
        (seed, Some(time)) => Mode::Soak {
            seed,
            time,
            deadline: None,
        },
        (Some(seed), None) => Mode::Fixed(vec![seed].into_iter()),
        (None, None) => Mode::Fixed(fixed().into_iter()),
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("cannot read {variable}: `{value}` is not a whole number")),
    )
}

/// Reads the seeds in a regression file. A missing file has none.
fn kept(file: &Path) -> Vec<u64> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("cannot read {}: {error}", file.display()),
    };
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let seeds = lines.filter(|line| !line.is_empty());
    seeds
        .map(|seed| {
            seed.parse()
                .unwrap_or_else(|_| panic!("invalid seed `{seed}` in {}", file.display()))
        })
        .collect()
}

fn keep(file: &Path, seed: u64) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let header = if file.exists() { "" } else { HEADER };
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?;
    file.write_all(format!("{header}{seed}\n").as_bytes())
}

/// Returns a seed that differs from run to run.
fn new_seed() -> u64 {
    // Every `RandomState` has other keys, the first ones from the operating system.
    RandomState::new().hash_one(())
}
