//! Checks the dependencies, like `cargo deny check licenses bans sources`.
//!
//! It reads `deny.toml`, which cargo-deny can read as well. The project does not depend on
//! cargo-deny, because it takes minutes to build on a new machine.

mod config;
mod graph;
mod spdx;

use std::{fs, path::Path};

use anyhow::{Context, Result};

use self::{
    config::{Config, CrateSpec},
    graph::{Graph, Package},
};
use crate::process;

/// The only allowed registry. Cargo uses this name also if a mirror serves it.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns the problems of all dependencies of the workspace, of every kind, feature and platform.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join("deny.toml"))
        .context("cannot read deny.toml in the root of the workspace")?;
    let config = Config::parse(&text)?;
    let mut metadata = process::cargo(root);
    metadata.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--all-features",
    ]);
    let mut tree = process::cargo(root);
    tree.args([
        "tree",
        "--locked",
        "--workspace",
        "--all-features",
        "--target",
        "all",
    ]);
    tree.args([
        "--edges",
        "normal,build,dev",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let graph = Graph::parse(&process::stdout(metadata)?, &process::stdout(tree)?)?;
    problems(&config, &graph)
}

fn problems(config: &Config, graph: &Graph) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for package in graph.packages() {
        found.extend(license_problem(config, graph, package)?);
        found.extend(source_problem(graph, package));
        found.extend(ban_problem(config, graph, package));
    }
    found.extend(duplicate_problems(config, graph));
    found.extend(stale_entries(config, graph));
    Ok(found)
}

fn license_problem(config: &Config, graph: &Graph, package: &Package) -> Result<Option<String>> {
    let Some(expression) = &package.license else {
        return Ok(Some(format!(
            "{package} has no licence; replace it\n{}",
            graph.pulled_in_by(package)
        )));
    };
    let exceptions = config
        .licenses
        .exceptions
        .iter()
        .filter(|exception| exception.spec.matches(package));
    let allowed: Vec<&String> = config
        .licenses
        .allow
        .iter()
        .chain(exceptions.flat_map(|e| &e.allow))
        .collect();
    let fine = spdx::satisfied(expression, |license| {
        allowed.iter().any(|allowed| *allowed == license)
    })
    .with_context(|| format!("cannot parse the licence of {package}"))?;
    if fine {
        return Ok(None);
    }
    Ok(Some(format!(
        "the licence of {package} is not allowed: {expression}\n\
         replace it, or (after review) allow it in deny.toml: [licenses] allow, or exceptions for this crate only\n{}",
        graph.pulled_in_by(package)
    )))
}

fn source_problem(graph: &Graph, package: &Package) -> Option<String> {
    let source = package
        .source
        .as_deref()
        .filter(|source| *source != CRATES_IO)?;
    Some(format!(
        "{package} comes from {source}\nuse a release from crates.io or a path in this workspace\n{}",
        graph.pulled_in_by(package)
    ))
}

fn ban_problem(config: &Config, graph: &Graph, package: &Package) -> Option<String> {
    let ban = config
        .bans
        .deny
        .iter()
        .find(|ban| ban.spec.matches(package))?;
    if !ban.wrappers.is_empty()
        && graph
            .dependents(package)
            .all(|name| ban.wrappers.iter().any(|may| may == name))
    {
        return None;
    }
    Some(format!(
        "{package} is banned by deny.toml: {}\n{}",
        ban.reason,
        graph.pulled_in_by(package)
    ))
}

fn duplicate_problems(config: &Config, graph: &Graph) -> Vec<String> {
    let skipped = |package: &Package| {
        config
            .bans
            .skip
            .iter()
            .any(|skip| skip.spec.matches(package))
    };
    let mut found = Vec::new();
    for (name, versions) in graph.duplicates() {
        if versions.iter().filter(|package| !skipped(package)).count() < 2 {
            continue;
        }
        let paths: Vec<String> = versions
            .iter()
            .map(|package| format!("{package}\n{}", graph.pulled_in_by(package)))
            .collect();
        found.push(format!(
            "{name} has {} versions; unify them, or list all but one in deny.toml, [bans] skip, with a reason\n{}",
            versions.len(),
            paths.join("\n")
        ));
    }
    found
}

/// Returns entries of `deny.toml` that no longer apply. They could hide a later problem.
fn stale_entries(config: &Config, graph: &Graph) -> Vec<String> {
    let duplicates: Vec<&Package> = graph.duplicates().into_values().flatten().collect();
    let unused =
        |spec: &CrateSpec, among: &[&Package]| !among.iter().any(|package| spec.matches(package));
    let skips = config
        .bans
        .skip
        .iter()
        .map(|skip| &skip.spec)
        .filter(|spec| unused(spec, &duplicates));
    let all: Vec<&Package> = graph.packages().collect();
    let exceptions = config
        .licenses
        .exceptions
        .iter()
        .map(|exception| &exception.spec);
    let exceptions = exceptions.filter(|spec| unused(spec, &all));
    let stale_skips = skips.map(|spec| {
        format!("deny.toml skips {spec}, which has no duplicate version; remove the entry")
    });
    let stale_exceptions = exceptions.map(|spec| {
        format!(
            "deny.toml has a licence exception for {spec}, which is not a dependency; remove it"
        )
    });
    stale_skips.chain(stale_exceptions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        [bans]
        multiple-versions = "deny"
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
    "#;

    fn found(config: &str) -> Vec<String> {
        let graph =
            Graph::parse(include_str!("fixture.json"), include_str!("fixture.txt")).unwrap();
        problems(&Config::parse(config).unwrap(), &graph).unwrap()
    }

    fn with(line: &str, after: &str) -> String {
        assert!(CONFIG.contains(after));
        CONFIG.replace(after, &format!("{after}\n{line}"))
    }

    fn mentions(problems: &[String], beginning: &str) -> bool {
        problems
            .iter()
            .any(|problem| problem.starts_with(beginning))
    }

    #[test]
    fn an_unlisted_duplicate_is_reported_with_the_paths_to_it() {
        let problems = found(CONFIG);
        let duplicate = problems
            .iter()
            .find(|problem| problem.starts_with("twice"))
            .unwrap();
        assert_eq!(
            duplicate.lines().skip(1).collect::<Vec<_>>(),
            [
                "twice 1.4.0",
                "  <- older 0.3.0 <- app 0.1.0",
                "twice 2.0.1",
                "  <- app 0.1.0",
                "  <- forked 0.1.0 <- app 0.1.0",
            ]
        );
        assert!(
            !mentions(&problems, "optional"),
            "a package that is not built has no duplicate"
        );
    }

    #[test]
    fn a_duplicate_is_skipped_by_exact_version_or_by_prefix() {
        for spec in ["twice@1.4.0", "twice@1", "twice@1.4", "twice"] {
            let skip =
                format!(r#"skip = [{{ crate = "{spec}", reason = "older is not updated yet" }}]"#);
            let problems = found(&with(&skip, "[bans]"));
            assert!(
                !mentions(&problems, "twice") && !mentions(&problems, "deny.toml skips"),
                "{spec}: {problems:?}"
            );
        }
    }

    #[test]
    fn a_skip_that_matches_no_duplicate_is_stale() {
        for spec in ["twice@1.3", "twice@14", "older", "gone@1.0.0"] {
            let skip = format!(r#"skip = [{{ crate = "{spec}", reason = "once" }}]"#);
            let problems = found(&with(&skip, "[bans]"));
            assert!(
                mentions(&problems, &format!("deny.toml skips {spec},")),
                "{spec}: {problems:?}"
            );
        }
    }

    #[test]
    fn a_licence_that_is_not_allowed_needs_an_exception() {
        assert!(mentions(
            &found(CONFIG),
            "the licence of older 0.3.0 is not allowed: MPL-2.0"
        ));
        let exception = r#"exceptions = [{ crate = "older", allow = ["MPL-2.0"] }]"#;
        assert!(!mentions(
            &found(&with(exception, "[licenses]")),
            "the licence of older"
        ));
        let stale = r#"exceptions = [{ crate = "gone", allow = ["MPL-2.0"] }]"#;
        assert!(mentions(
            &found(&with(stale, "[licenses]")),
            "deny.toml has a licence exception for gone"
        ));
    }

    #[test]
    fn banned_crates_and_foreign_sources_are_reported() {
        let ban = r#"deny = [{ crate = "older", reason = "unmaintained: use newer" }]"#;
        let problems = found(&with(ban, "[bans]"));
        assert!(mentions(
            &problems,
            "older 0.3.0 is banned by deny.toml: unmaintained: use newer\n  <- app 0.1.0"
        ));
        assert!(mentions(
            &problems,
            "forked 0.1.0 comes from git+https://example.org/forked"
        ));
    }

    /// The framework builds on the libraries that its users know.
    #[test]
    fn the_framework_depends_directly_on_the_libraries_of_the_field() {
        let mut tree = process::cargo(&process::root().unwrap());
        tree.args(["tree", "--locked", "--edges", "normal", "--depth", "1"]);
        tree.args([
            "--package",
            "steersman",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ]);
        let tree = process::stdout(tree).unwrap();
        let direct: Vec<&str> = tree
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        for library in [
            "kube-client",
            "kube-runtime",
            "tokio",
            "tokio-util",
            "futures",
            "serde_json",
            "parking_lot",
            "governor",
            "tracing",
            "anyhow",
        ] {
            assert!(
                direct.contains(&library),
                "{library} is missing in {direct:?}"
            );
        }
    }

    #[test]
    fn wrappers_may_depend_on_a_banned_crate() {
        let ban = |wrapper: &str| {
            let ban = format!(
                r#"deny = [{{ crate = "twice@1", wrappers = ["{wrapper}"], reason = "no" }}]"#
            );
            mentions(&found(&with(&ban, "[bans]")), "twice 1.4.0 is banned")
        };
        assert!(ban("app") && !ban("older"));
    }
}
