//! Runs every case on the embedded server and on the real one, and reports the differences.

use crate::{
    code,
    differences::{self, Difference, KnownDifference, MAX_KNOWN},
    golden::{self, Golden},
    normalize::normalize,
    runner::{self, Names, Transcript},
    script, servers,
};
use futures::{StreamExt, stream};
use kube::Client;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::PathBuf,
};
use tokio::runtime;

/// Environment variable with a part of the names of the cases or case files to run. All run if it
/// is not set.
const ONLY: &str = "STEERSMAN_CONFORMANCE_ONLY";
/// Number of cases that run concurrently. The real server waits for its disk and caches, not for
/// the CPU.
const CONCURRENCY: usize = 8;

/// A case: steps of a file, or code.
enum Case {
    Script(script::Case),
    Code(&'static code::Case),
}

impl Case {
    fn id(&self) -> &str {
        match self {
            Self::Script(case) => &case.id,
            Self::Code((id, _)) => id,
        }
    }

    async fn run(&self, client: &Client) -> Transcript {
        let names = Names::new(&servers::unique_word());
        runner::create_namespaces(client, &names).await;
        let transcript = match self {
            Self::Script(case) => runner::run(client, case, &names).await,
            Self::Code((_, case)) => case(client.clone(), names.clone()).await,
        };
        normalize(transcript, &names)
    }
}

/// Cases of one file, with the recorded responses of the real server.
struct CaseFile {
    name: String,
    cases: Vec<Case>,
    golden: Golden,
}

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/conformance")
        .join(name)
}

fn golden_path(case_file: &str) -> PathBuf {
    directory("golden").join(format!("{case_file}.txt"))
}

fn case_files() -> Vec<CaseFile> {
    let mut files: Vec<_> = fs::read_dir(directory("cases"))
        .expect("the cases")
        .map(|file| file.expect("a file").path())
        .collect();
    files.sort();
    let mut case_files = vec![case_file("code", code::CASES.iter().map(Case::Code))];
    for file in files {
        let name = file.file_stem().expect("a name").to_string_lossy();
        let text = fs::read_to_string(&file).expect("a readable file");
        let cases =
            script::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        case_files.push(case_file(&name, cases.into_iter().map(Case::Script)));
    }
    let mut seen = BTreeSet::new();
    for case in case_files.iter().flat_map(|case_file| &case_file.cases) {
        assert!(
            seen.insert(case.id()),
            "{}: two cases have this name",
            case.id()
        );
    }
    case_files
}

/// Returns a file with the cases that `STEERSMAN_CONFORMANCE_ONLY` selects.
fn case_file(name: &str, cases: impl Iterator<Item = Case>) -> CaseFile {
    let only = std::env::var(ONLY).unwrap_or_default();
    let cases = cases
        .filter(|case| case.id().contains(&only) || name.contains(&only))
        .collect();
    let golden = fs::read_to_string(golden_path(name)).unwrap_or_default();
    let golden = golden::read(&golden).unwrap_or_else(|error| {
        panic!("cannot parse golden/{name}.txt: {error}; remove the file and run `cargo xtask conformance --record`")
    });
    CaseFile {
        name: name.into(),
        cases,
        golden,
    }
}

fn is_recording() -> bool {
    std::env::var("STEERSMAN_CONFORMANCE").is_ok_and(|mode| mode == "record")
}

/// Runs all cases concurrently and returns their transcripts by id.
async fn run_all<'a, F: Future<Output = Transcript>>(
    case_files: &'a [CaseFile],
    run_case: impl Fn(&'a Case) -> F,
) -> BTreeMap<&'a str, Transcript> {
    let cases = case_files.iter().flat_map(|case_file| &case_file.cases);
    stream::iter(cases)
        .map(|case| {
            let run = run_case(case);
            async move { (case.id(), run.await) }
        })
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await
}

/// Returns the transcripts of the real server, `None` if it is not available.
fn run_on_real_server(case_files: &[CaseFile]) -> Option<BTreeMap<&str, Transcript>> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let real = servers::connect_real().await?;
        Some(run_all(case_files, |case| case.run(&real)).await)
    })
}

/// Returns the transcripts of the embedded server. Each case runs on a fork of its own, on paused
/// time.
fn run_on_embedded_server(case_files: &[CaseFile]) -> BTreeMap<&str, Transcript> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let embedded = servers::start_embedded().await;
        run_all(case_files, |case| async {
            case.run(&servers::client(&embedded.fork())).await
        })
        .await
    })
}

#[test]
fn every_case_gets_the_responses_of_the_real_server() {
    let mut case_files = case_files();
    let mut report = Report::default();
    if let Some(transcripts) = run_on_real_server(&case_files) {
        if is_recording() {
            record(&case_files, transcripts);
            case_files = self::case_files();
        } else {
            for case_file in &case_files {
                for case in &case_file.cases {
                    report.add(
                        "the real server",
                        case_file,
                        case,
                        &transcripts[case.id()],
                        &[],
                    );
                }
            }
        }
    }

    let transcripts = run_on_embedded_server(&case_files);
    let known_differences = fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("apiserver/DIFFERENCES.md"),
    );
    let known_differences =
        differences::parse_known(&known_differences.expect("a readable DIFFERENCES.md"))
            .unwrap_or_else(|error| panic!("{error}"));
    for case_file in &case_files {
        for case in &case_file.cases {
            report.add(
                "the embedded server",
                case_file,
                case,
                &transcripts[case.id()],
                &known_differences,
            );
        }
    }
    report.finish(&case_files, &known_differences);
}

/// Writes the golden files of the cases that ran and removes those of deleted cases.
fn record(case_files: &[CaseFile], mut transcripts: BTreeMap<&str, Transcript>) {
    let timed_out: Vec<_> = transcripts
        .iter()
        .filter(|(_, transcript)| transcript.timed_out())
        .map(|(id, _)| *id)
        .collect();
    assert!(
        timed_out.is_empty(),
        "cannot record: these cases timed out while waiting: {}",
        timed_out.join(", ")
    );
    for case_file in case_files {
        let mut golden = case_file.golden.clone();
        if std::env::var_os(ONLY).is_none() {
            golden.clear();
        }
        for case in &case_file.cases {
            golden.insert(
                case.id().into(),
                transcripts
                    .remove(case.id())
                    .expect("a transcript of each case"),
            );
        }
        fs::write(golden_path(&case_file.name), golden::write(&golden))
            .expect("a writable golden file");
    }
    if std::env::var_os(ONLY).is_none() {
        for file in stale_golden_files(case_files) {
            fs::remove_file(file).expect("a removable golden file");
        }
    }
}

fn stale_golden_files(case_files: &[CaseFile]) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(directory("golden"))
        .expect("the golden files")
        .map(|file| file.expect("a file").path());
    files.filter(|file| {
        !case_files
            .iter()
            .any(|case_file| golden_path(&case_file.name) == *file)
    })
}

/// Returns the recorded responses of deleted cases. No test compares them, so they would mislead
/// readers.
fn stale_goldens(case_files: &[CaseFile]) -> Vec<String> {
    let mut stale = Vec::new();
    for case_file in case_files {
        let ids: BTreeSet<_> = case_file.cases.iter().map(Case::id).collect();
        let deleted = case_file
            .golden
            .keys()
            .filter(|id| !ids.contains(id.as_str()));
        stale.extend(deleted.map(|id| format!("golden/{}.txt, {id}", case_file.name)));
    }
    stale.extend(stale_golden_files(case_files).map(|file| file.display().to_string()));
    stale
}

#[derive(Default)]
struct Report {
    text: String,
    failures: usize,
    /// Known differences that occurred.
    used: Vec<KnownDifference>,
    /// Cases without differences on the embedded server.
    identical: usize,
}

impl Report {
    fn add(
        &mut self,
        server: &str,
        case_file: &CaseFile,
        case: &Case,
        got: &Transcript,
        known_differences: &[KnownDifference],
    ) {
        let Some(expected) = case_file.golden.get(case.id()) else {
            self.fail(
                server,
                case,
                "has no recorded responses; run `cargo xtask conformance --record`",
            );
            return;
        };
        let differences = differences::compare(expected, got);
        let is_known = |difference: &&Difference| {
            known_differences
                .iter()
                .any(|known| known.covers(case.id(), difference))
        };
        let (known, unknown): (Vec<_>, Vec<_>) = differences.iter().partition(is_known);
        for known in known {
            self.used.extend(
                known_differences
                    .iter()
                    .filter(|row| row.covers(case.id(), known))
                    .cloned(),
            );
        }
        if differences.is_empty() && server.contains("embedded") {
            self.identical += 1;
        }
        if !unknown.is_empty() {
            let lines: Vec<_> = unknown
                .iter()
                .map(|difference| format!("    {difference}"))
                .collect();
            self.fail(server, case, &format!("differs\n{}", lines.join("\n")));
        }
    }

    fn fail(&mut self, server: &str, case: &Case, problem: &str) {
        self.failures += 1;
        let _ = writeln!(self.text, "{}: {server} {problem}", case.id());
    }

    fn finish(mut self, case_files: &[CaseFile], known_differences: &[KnownDifference]) {
        let cases: usize = case_files
            .iter()
            .map(|case_file| case_file.cases.len())
            .sum();
        assert!(
            cases > 0,
            "no case or case file has `{}` in its name",
            std::env::var(ONLY).unwrap_or_default()
        );
        println!(
            "{cases} cases, {} identical, {} listed differences",
            self.identical,
            known_differences.len()
        );
        assert!(
            known_differences.len() <= MAX_KNOWN,
            "{} known differences, more than {MAX_KNOWN}",
            known_differences.len()
        );
        if std::env::var_os(ONLY).is_none() {
            for known in known_differences
                .iter()
                .filter(|known| !self.used.contains(known))
            {
                self.failures += 1;
                let _ = writeln!(
                    self.text,
                    "{}: known difference `{}` does not occur; remove its row",
                    known.case, known.field
                );
            }
            for stale in stale_goldens(case_files) {
                self.failures += 1;
                let _ = writeln!(
                    self.text,
                    "{stale}: recorded responses without a case; run `cargo xtask conformance --record`"
                );
            }
        }
        assert!(
            self.failures == 0,
            "{} failures\n{}",
            self.failures,
            self.text
        );
    }
}
