//! Runs every case, on the embedded server and on the real one, and sums up.

use crate::{
    code,
    differences::{self, Difference, Known, MOST},
    golden::{self, Golden},
    normal::normalise,
    run::{self, Names, Transcript},
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

/// Part of the name of the cases, or the sheet, to run; all if it is not set.
const ONLY: &str = "STEERSMAN_CONFORMANCE_ONLY";
/// Cases that run at once: the real server waits for its disk and its caches, not for the processor.
const AT_ONCE: usize = 8;

/// What is run: steps of a file, or code.
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
        let names = Names::new(&servers::word());
        run::namespaces(client, &names).await;
        let transcript = match self {
            Self::Script(case) => run::run(client, case, &names).await,
            Self::Code((_, case)) => case(client.clone(), names.clone()).await,
        };
        normalise(transcript, &names)
    }
}

/// Cases that belong together, and what the real server answered to them.
struct Sheet {
    name: String,
    cases: Vec<Case>,
    golden: Golden,
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name)
}

fn golden_path(sheet: &str) -> PathBuf {
    folder("golden").join(format!("{sheet}.txt"))
}

fn sheets() -> Vec<Sheet> {
    let mut files: Vec<_> =
        fs::read_dir(folder("cases")).expect("the cases").map(|file| file.expect("a file").path()).collect();
    files.sort();
    let mut sheets = vec![sheet("code", code::CASES.iter().map(Case::Code))];
    for file in files {
        let name = file.file_stem().expect("a name").to_string_lossy();
        let text = fs::read_to_string(&file).expect("a readable file");
        let cases = script::parse(&text).unwrap_or_else(|mistake| panic!("{}: {mistake}", file.display()));
        sheets.push(sheet(&name, cases.into_iter().map(Case::Script)));
    }
    let mut seen = BTreeSet::new();
    for case in sheets.iter().flat_map(|sheet| &sheet.cases) {
        assert!(seen.insert(case.id()), "{}: there are two cases of that name", case.id());
    }
    sheets
}

/// With those of the cases that are asked for.
fn sheet(name: &str, cases: impl Iterator<Item = Case>) -> Sheet {
    let only = std::env::var(ONLY).unwrap_or_default();
    let cases = cases.filter(|case| case.id().contains(&only) || name.contains(&only)).collect();
    let golden = fs::read_to_string(golden_path(name)).unwrap_or_default();
    let golden = golden::read(&golden).unwrap_or_else(|mistake| {
        panic!("golden/{name}.txt: {mistake}; remove the file, and `cargo xtask conformance --record` writes it anew")
    });
    Sheet { name: name.into(), cases, golden }
}

fn is_recording() -> bool {
    std::env::var("STEERSMAN_CONFORMANCE").is_ok_and(|mode| mode == "record")
}

/// The transcripts of all cases, by id.
async fn all<'a, F: Future<Output = Transcript>>(
    sheets: &'a [Sheet],
    on: impl Fn(&'a Case) -> F,
) -> BTreeMap<&'a str, Transcript> {
    let cases = sheets.iter().flat_map(|sheet| &sheet.cases);
    stream::iter(cases)
        .map(|case| {
            let run = on(case);
            async move { (case.id(), run.await) }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

/// The real server's answers, if there is one.
fn on_the_real_server(sheets: &[Sheet]) -> Option<BTreeMap<&str, Transcript>> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let real = servers::real().await?;
        Some(all(sheets, |case| case.run(&real)).await)
    })
}

/// Each case on a server of its own. Time is virtual: what waits for it does not wait.
fn on_the_embedded_server(sheets: &[Sheet]) -> BTreeMap<&str, Transcript> {
    let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let embedded = servers::embedded().await;
        all(sheets, |case| async { case.run(&servers::client_of(&embedded.fork())).await }).await
    })
}

#[test]
fn every_case_is_answered_as_the_real_server_does() {
    let mut sheets = sheets();
    let mut report = Report::default();
    if let Some(answers) = on_the_real_server(&sheets) {
        if is_recording() {
            record(&sheets, answers);
            sheets = self::sheets();
        } else {
            for sheet in &sheets {
                for case in &sheet.cases {
                    report.add("the real server", sheet, case, &answers[case.id()], &[]);
                }
            }
        }
    }

    let answers = on_the_embedded_server(&sheets);
    let listed = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("apiserver/DIFFERENCES.md"));
    let listed =
        differences::known(&listed.expect("the list of differences")).unwrap_or_else(|mistake| panic!("{mistake}"));
    for sheet in &sheets {
        for case in &sheet.cases {
            report.add("the embedded server", sheet, case, &answers[case.id()], &listed);
        }
    }
    report.end(&sheets, &listed);
}

/// New goldens for the cases that ran; those of cases that are gone go too.
fn record(sheets: &[Sheet], mut answers: BTreeMap<&str, Transcript>) {
    let waited: Vec<_> = answers.iter().filter(|(_, transcript)| transcript.gave_up()).map(|(id, _)| *id).collect();
    assert!(waited.is_empty(), "nothing is recorded: these waited for what never came: {}", waited.join(", "));
    for sheet in sheets {
        let mut golden = sheet.golden.clone();
        if std::env::var_os(ONLY).is_none() {
            golden.clear();
        }
        for case in &sheet.cases {
            golden.insert(case.id().into(), answers.remove(case.id()).expect("an answer to each"));
        }
        fs::write(golden_path(&sheet.name), golden::write(&golden)).expect("goldens can be written");
    }
    if std::env::var_os(ONLY).is_none() {
        for file in files_of_no_sheet(sheets) {
            fs::remove_file(file).expect("goldens can be removed");
        }
    }
}

fn files_of_no_sheet(sheets: &[Sheet]) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(folder("golden")).expect("the goldens").map(|file| file.expect("a file").path());
    files.filter(|file| !sheets.iter().any(|sheet| golden_path(&sheet.name) == *file))
}

/// Answers to cases that are gone: nobody compares them, and a reader would take them for what is checked.
fn left_over(sheets: &[Sheet]) -> Vec<String> {
    let mut left = Vec::new();
    for sheet in sheets {
        let ids: BTreeSet<_> = sheet.cases.iter().map(Case::id).collect();
        let gone = sheet.golden.keys().filter(|id| !ids.contains(id.as_str()));
        left.extend(gone.map(|id| format!("golden/{}.txt, {id}", sheet.name)));
    }
    left.extend(files_of_no_sheet(sheets).map(|file| file.display().to_string()));
    left
}

#[derive(Default)]
struct Report {
    text: String,
    failed: usize,
    used: Vec<Known>,
    identical: usize,
}

impl Report {
    fn add(&mut self, server: &str, sheet: &Sheet, case: &Case, got: &Transcript, listed: &[Known]) {
        let Some(expected) = sheet.golden.get(case.id()) else {
            self.fail(server, case, "has no golden: cargo xtask conformance --record");
            return;
        };
        let differences = differences::between(expected, got);
        let is_listed = |difference: &&Difference| listed.iter().any(|known| known.covers(case.id(), difference));
        let (known, new): (Vec<_>, Vec<_>) = differences.iter().partition(is_listed);
        for known in known {
            self.used.extend(listed.iter().filter(|listed| listed.covers(case.id(), known)).cloned());
        }
        if differences.is_empty() && server.contains("embedded") {
            self.identical += 1;
        }
        if !new.is_empty() {
            let lines: Vec<_> = new.iter().map(|difference| format!("    {difference}")).collect();
            self.fail(server, case, &format!("answers otherwise\n{}", lines.join("\n")));
        }
    }

    fn fail(&mut self, server: &str, case: &Case, what: &str) {
        self.failed += 1;
        let _ = writeln!(self.text, "{}: {server} {what}", case.id());
    }

    fn end(mut self, sheets: &[Sheet], listed: &[Known]) {
        let cases: usize = sheets.iter().map(|sheet| sheet.cases.len()).sum();
        assert!(cases > 0, "no case has `{}` in its name or its sheet's", std::env::var(ONLY).unwrap_or_default());
        println!("{cases} cases, {} identical, {} listed differences", self.identical, listed.len());
        assert!(listed.len() <= MOST, "{} differences are listed, more than {MOST}", listed.len());
        if std::env::var_os(ONLY).is_none() {
            for known in listed.iter().filter(|known| !self.used.contains(known)) {
                self.failed += 1;
                let _ =
                    writeln!(self.text, "{}: `{}` is listed, and is no difference any more", known.case, known.field);
            }
            for left in left_over(sheets) {
                self.failed += 1;
                let _ = writeln!(self.text, "{left}: a golden without a case: cargo xtask conformance --record");
            }
        }
        assert!(self.failed == 0, "{} failures\n{}", self.failed, self.text);
    }
}
