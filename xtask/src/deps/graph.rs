//! The packages the workspace is built from, and who pulls in whom.
//!
//! `cargo metadata` tells all about them, but also names optional dependencies of dependencies that no feature turns
//! on; `cargo tree` names exactly those that are built.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, iter,
};

use anyhow::{Context, Result};
use serde::Deserialize;

/// How many ways to a package are printed.
const WAYS: usize = 5;

#[derive(Deserialize)]
pub(super) struct Package {
    id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    /// Where it was published; nothing for a path.
    pub(super) source: Option<String>,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// Every package that a member of the workspace needs, and who needs it.
pub(super) struct Graph {
    packages: BTreeMap<String, Package>,
    /// For each package its direct dependents.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// For each package the next one on a shortest way to a member; members have none.
    next: BTreeMap<String, String>,
}

impl Graph {
    /// Reads the JSON of `cargo metadata` and the lines `name vVERSION …` of `cargo tree --prefix none`.
    pub(super) fn parse(metadata: &str, tree: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Package>,
            workspace_members: Vec<String>,
            resolve: Resolve,
        }
        #[derive(Deserialize)]
        struct Resolve {
            nodes: Vec<Node>,
        }
        #[derive(Deserialize)]
        struct Node {
            id: String,
            deps: Vec<Dependency>,
        }
        #[derive(Deserialize)]
        struct Dependency {
            pkg: String,
        }

        let metadata: Metadata = serde_json::from_str(metadata).context("cannot read cargo's metadata")?;
        let nodes: BTreeMap<String, Vec<Dependency>> =
            metadata.resolve.nodes.into_iter().map(|node| (node.id, node.deps)).collect();

        let built: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
        let mut packages: BTreeMap<String, Package> =
            metadata.packages.into_iter().map(|package| (package.id.clone(), package)).collect();
        packages.retain(|_, package| built.contains(&(package.name.as_str(), package.version.as_str())));

        let mut dependents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut next = BTreeMap::new();
        let mut reached: BTreeSet<String> = metadata.workspace_members.iter().cloned().collect();
        let mut open: VecDeque<String> = metadata.workspace_members.into();
        while let Some(id) = open.pop_front() {
            let dependencies = nodes.get(&id).into_iter().flatten();
            for dependency in dependencies.filter(|dependency| packages.contains_key(&dependency.pkg)) {
                dependents.entry(dependency.pkg.clone()).or_default().insert(id.clone());
                if reached.insert(dependency.pkg.clone()) {
                    next.insert(dependency.pkg.clone(), id.clone());
                    open.push_back(dependency.pkg.clone());
                }
            }
        }
        Ok(Self { packages, dependents, next })
    }

    pub(super) fn packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.values()
    }

    /// The crates that are there in more than one version, oldest first.
    pub(super) fn duplicates(&self) -> BTreeMap<&str, Vec<&Package>> {
        let mut versions: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
        for package in self.packages() {
            versions.entry(&package.name).or_default().push(package);
        }
        versions.retain(|_, packages| packages.len() > 1);
        for packages in versions.values_mut() {
            packages.sort_by_key(|package| numbers(&package.version));
        }
        versions
    }

    /// The names of those that need `package` directly; a member of the workspace that nobody needs has none.
    pub(super) fn dependents(&self, package: &Package) -> impl Iterator<Item = &str> {
        let ids = self.dependents.get(&package.id).into_iter().flatten();
        ids.map(|id| self.packages.get(id).map_or(id.as_str(), |package| &package.name))
    }

    /// The ways from `package` to the workspace, a line for each direct dependent.
    pub(super) fn pulled_in_by(&self, package: &Package) -> String {
        let Some(dependents) = self.dependents.get(&package.id) else { return "  a member of the workspace".into() };
        let mut lines: Vec<String> = dependents.iter().take(WAYS).map(|id| format!("  {}", self.way(id))).collect();
        if dependents.len() > WAYS {
            let Package { name, version, .. } = package;
            let more = dependents.len() - WAYS;
            lines.push(format!("  and {more} more: cargo tree --workspace --invert {name}@{version}"));
        }
        lines.join("\n")
    }

    fn way(&self, from: &str) -> String {
        let ids = iter::successors(Some(from), |id| self.next.get(*id).map(String::as_str));
        let shown = |id: &str| self.packages.get(id).map_or_else(|| id.to_owned(), ToString::to_string);
        ids.map(|id| format!("<- {}", shown(id))).collect::<Vec<_>>().join(" ")
    }
}

/// The first two words of a line, as in `toml v1.1.8+spec-1.1.0 (*)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

/// The numbers at a version's beginning, which order it well enough to print.
fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(numbers("0.9.3") < numbers("0.10.0-rc.1"));
    }

    #[test]
    fn only_packages_that_are_built_for_a_member_are_in_the_graph() {
        let graph = Graph::parse(include_str!("fixture.json"), include_str!("fixture.txt")).unwrap();
        let names: Vec<String> = graph.packages().map(ToString::to_string).collect();
        assert_eq!(names, ["app 0.1.0", "forked 0.1.0", "older 0.3.0", "twice 1.4.0", "twice 2.0.1"]);
        assert_eq!(graph.duplicates().keys().copied().collect::<Vec<_>>(), ["twice"]);
    }
}
