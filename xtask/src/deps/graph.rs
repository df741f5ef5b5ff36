//! The packages the workspace is built from, as `cargo metadata` tells them, and who pulls in whom.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
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
    pub(super) fn parse(metadata: &str) -> Result<Self> {
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

        let mut dependents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut next = BTreeMap::new();
        let mut reached: BTreeSet<String> = metadata.workspace_members.iter().cloned().collect();
        let mut open: VecDeque<String> = metadata.workspace_members.into();
        while let Some(id) = open.pop_front() {
            for dependency in nodes.get(&id).into_iter().flatten() {
                dependents.entry(dependency.pkg.clone()).or_default().insert(id.clone());
                if reached.insert(dependency.pkg.clone()) {
                    next.insert(dependency.pkg.clone(), id.clone());
                    open.push_back(dependency.pkg.clone());
                }
            }
        }
        let packages = metadata.packages.into_iter().filter(|package| reached.contains(&package.id));
        let packages = packages.map(|package| (package.id.clone(), package)).collect();
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
        let mut way = String::new();
        let mut current = Some(from);
        while let Some(id) = current {
            let separator = if way.is_empty() { "<- " } else { " <- " };
            way += &format!("{separator}{}", self.packages.get(id).map_or_else(|| id.to_owned(), ToString::to_string));
            current = self.next.get(id).map(String::as_str);
        }
        way
    }
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
    fn only_packages_that_a_member_needs_are_in_the_graph() {
        let graph = Graph::parse(include_str!("fixture.json")).unwrap();
        let names: Vec<String> = graph.packages().map(ToString::to_string).collect();
        assert_eq!(names, ["app 0.1.0", "forked 0.1.0", "older 0.3.0", "twice 1.4.0", "twice 2.0.1"]);
        assert_eq!(graph.duplicates().keys().copied().collect::<Vec<_>>(), ["twice"]);
    }
}
