//! `deny.toml`: the part of cargo-deny's format that the check understands. Anything else in the file is an error, so
//! that no setting is believed to work that does not.

use std::fmt;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::graph::Package;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    #[serde(default, rename = "graph")]
    _graph: GraphOptions,
    pub(super) licenses: Licenses,
    pub(super) bans: Bans,
    #[serde(rename = "sources")]
    _sources: Sources,
}

/// For cargo-deny, which needs to be told what this check always does.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct GraphOptions {
    #[serde(rename = "all-features")]
    _all_features: Option<Yes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Licenses {
    /// Licences that every crate may have, as SPDX names them.
    pub(super) allow: Vec<String>,
    #[serde(default)]
    pub(super) exceptions: Vec<Exception>,
}

/// Further licences for one crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exception {
    #[serde(rename = "crate")]
    pub(super) spec: CrateSpec,
    pub(super) allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bans {
    #[serde(rename = "multiple-versions")]
    _multiple_versions: Deny,
    #[serde(default)]
    pub(super) deny: Vec<Ban>,
    /// Versions that do not count when a crate is there twice.
    #[serde(default)]
    pub(super) skip: Vec<Reasoned>,
}

/// A crate that nobody may use, but for some.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ban {
    #[serde(rename = "crate")]
    pub(super) spec: CrateSpec,
    /// Crates that may.
    #[serde(default)]
    pub(super) wrappers: Vec<String>,
    pub(super) reason: String,
}

/// A crate and why it is listed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reasoned {
    #[serde(rename = "crate")]
    pub(super) spec: CrateSpec,
    /// For people: it has to be there.
    #[serde(rename = "reason")]
    _reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sources {
    #[serde(rename = "unknown-registry")]
    _unknown_registry: Deny,
    #[serde(rename = "unknown-git")]
    _unknown_git: Deny,
}

/// The one level this check knows: cargo-deny's `warn` and `allow` are for those who do not read.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Deny {
    Deny,
}

/// `true`, and nothing else.
#[derive(Deserialize)]
#[serde(try_from = "bool")]
struct Yes;

impl TryFrom<bool> for Yes {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value { Ok(Self) } else { Err("only `true` is supported") }
    }
}

impl Config {
    pub(super) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("cannot read deny.toml; xtask/src/deps/config.rs says what it may contain")
    }
}

/// `name`, or `name@version` where the version may be a beginning of one: `syn@2`, `rand@0.8`, `syn@2.0.119`.
#[derive(Deserialize)]
#[serde(from = "String")]
pub(super) struct CrateSpec {
    name: String,
    version: Option<String>,
}

impl From<String> for CrateSpec {
    fn from(text: String) -> Self {
        match text.split_once('@') {
            Some((name, version)) => Self { name: name.to_owned(), version: Some(version.to_owned()) },
            None => Self { name: text, version: None },
        }
    }
}

impl CrateSpec {
    pub(super) fn matches(&self, package: &Package) -> bool {
        let version = |wanted: &String| {
            let rest = package.version.strip_prefix(wanted.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('+'))
        };
        self.name == package.name && self.version.as_ref().is_none_or(version)
    }
}

impl fmt::Display for CrateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
        licenses = { allow = ["MIT"] }
        bans = { multiple-versions = "deny" }
        sources = { unknown-registry = "deny", unknown-git = "deny" }
    "#;

    #[test]
    fn settings_that_the_check_does_not_follow_are_refused() {
        assert!(Config::parse(MINIMAL).is_ok());
        for (from, to) in [
            (r#"multiple-versions = "deny""#, r#"multiple-versions = "warn""#),
            (r#"multiple-versions = "deny""#, r#"multiple-versions = "deny", wildcards = "deny""#),
            (r#"allow = ["MIT"]"#, r#"allow = ["MIT"], confidence-threshold = 0.8"#),
            (r#"unknown-git = "deny""#, r#"unknown-git = "allow""#),
            ("licenses", "graph = { all-features = false }\nlicenses"),
        ] {
            let changed = MINIMAL.replace(from, to);
            assert_ne!(changed, MINIMAL);
            assert!(Config::parse(&changed).is_err(), "{to}");
        }
    }

    #[test]
    fn the_checked_in_file_is_understood() {
        Config::parse(include_str!("../../../deny.toml")).unwrap();
    }
}
