//! Parses `deny.toml`, in a subset of cargo-deny's format.
//!
//! A setting outside of the subset is an error, so that no setting is silently ignored.

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

/// Settings for cargo-deny only. This check always includes all features.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct GraphOptions {
    #[serde(rename = "all-features")]
    _all_features: Option<Yes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Licenses {
    /// SPDX names of the licences allowed for every crate.
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
    /// Versions that are not counted as duplicates.
    #[serde(default)]
    pub(super) skip: Vec<Skip>,
}

/// A crate that only `wrappers` may depend on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ban {
    #[serde(rename = "crate")]
    pub(super) spec: CrateSpec,
    /// Crates that may depend on it.
    #[serde(default)]
    pub(super) wrappers: Vec<String>,
    pub(super) reason: String,
}

/// A version that is not counted as a duplicate, with the reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Skip {
    #[serde(rename = "crate")]
    pub(super) spec: CrateSpec,
    /// Required, but not used by the check.
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

/// The only supported lint level. cargo-deny also has `warn` and `allow`.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Deny {
    Deny,
}

/// A setting whose only supported value is `true`.
#[derive(Deserialize)]
#[serde(try_from = "bool")]
struct Yes;

impl TryFrom<bool> for Yes {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value {
            Ok(Self)
        } else {
            Err("only `true` is supported")
        }
    }
}

impl Config {
    pub(super) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context(
            "cannot parse deny.toml; see xtask/src/deps/config.rs for the supported settings",
        )
    }
}

/// `name` or `name@version`. The version may be a prefix: `syn@2`, `rand@0.8`, `syn@2.0.119`.
#[derive(Deserialize)]
#[serde(from = "String")]
pub(super) struct CrateSpec {
    name: String,
    version: Option<String>,
}

impl From<String> for CrateSpec {
    fn from(text: String) -> Self {
        match text.split_once('@') {
            Some((name, version)) => Self {
                name: name.to_owned(),
                version: Some(version.to_owned()),
            },
            None => Self {
                name: text,
                version: None,
            },
        }
    }
}

impl CrateSpec {
    pub(super) fn matches(&self, package: &Package) -> bool {
        let version = |wanted: &String| {
            let rest = package.version.strip_prefix(wanted.as_str());
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('.') || rest.starts_with('+')
            })
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
    fn unsupported_settings_are_errors() {
        assert!(Config::parse(MINIMAL).is_ok());
        for (from, to) in [
            (
                r#"multiple-versions = "deny""#,
                r#"multiple-versions = "warn""#,
            ),
            (
                r#"multiple-versions = "deny""#,
                r#"multiple-versions = "deny", wildcards = "deny""#,
            ),
            (
                r#"allow = ["MIT"]"#,
                r#"allow = ["MIT"], confidence-threshold = 0.8"#,
            ),
            (r#"unknown-git = "deny""#, r#"unknown-git = "allow""#),
            ("licenses", "graph = { all-features = false }\nlicenses"),
        ] {
            let changed = MINIMAL.replace(from, to);
            assert_ne!(changed, MINIMAL);
            assert!(Config::parse(&changed).is_err(), "{to}");
        }
    }

    #[test]
    fn deny_toml_of_the_workspace_is_parsed() {
        Config::parse(include_str!("../../../deny.toml")).unwrap();
    }
}
