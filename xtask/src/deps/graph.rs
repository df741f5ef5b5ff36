//! The graph of packages that the workspace is built from.
//!
//! `cargo metadata` has all data, but also lists optional dependencies that no feature enables.
//! `cargo tree` lists exactly the packages that are built.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, iter,
};

use anyhow::{Context, Result};
use serde::Deserialize;

/// Maximum number of dependency paths printed for a package.
const MAX_PATHS: usize = 5;

#[derive(Deserialize)]
pub(super) struct Package {
    id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    /// Registry or repository. `None` for a path dependency.
    pub(super) source: Option<String>,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// The packages that members of the workspace depend on, with their dependents.
pub(super) struct Graph {
    packages: BTreeMap<String, Package>,
    /// Direct dependents of each package.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Next package on a shortest path from each package to a member. Members have no entry.
    next: BTreeMap<String, String>,
}

impl Graph {
    /// Parses the JSON of `cargo metadata` and the lines `name vVERSION …` of
    /// `cargo tree --prefix none`.
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

        let metadata: Metadata =
            serde_json::from_str(metadata).context("cannot parse cargo's metadata")?;
        let nodes: BTreeMap<String, Vec<Dependency>> = metadata
            .resolve
            .nodes
            .into_iter()
            .map(|node| (node.id, node.deps))
            .collect();

        let built: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
        let mut packages: BTreeMap<String, Package> = metadata
            .packages
            .into_iter()
            .map(|package| (package.id.clone(), package))
            .collect();
        packages.retain(|_, package| {
            built.contains(&(package.name.as_str(), package.version.as_str()))
        });

        let mut dependents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut next = BTreeMap::new();
        let mut reached: BTreeSet<String> = metadata.workspace_members.iter().cloned().collect();
        let mut open: VecDeque<String> = metadata.workspace_members.into();
        while let Some(id) = open.pop_front() {
            let dependencies = nodes.get(&id).into_iter().flatten();
            for dependency in
                dependencies.filter(|dependency| packages.contains_key(&dependency.pkg))
            {
                dependents
                    .entry(dependency.pkg.clone())
                    .or_default()
                    .insert(id.clone());
                if reached.insert(dependency.pkg.clone()) {
                    next.insert(dependency.pkg.clone(), id.clone());
                    open.push_back(dependency.pkg.clone());
                }
            }
        }
        Ok(Self {
            packages,
            dependents,
            next,
        })
    }

    pub(super) fn packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.values()
    }

    /// Returns the crates with more than one version, each with its versions in ascending order.
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

    /// Returns the names of the direct dependents of `package`.
    pub(super) fn dependents(&self, package: &Package) -> impl Iterator<Item = &str> {
        let ids = self.dependents.get(&package.id).into_iter().flatten();
        ids.map(|id| {
            self.packages
                .get(id)
                .map_or(id.as_str(), |package| &package.name)
        })
    }

    /// Formats the paths from `package` to the workspace, one line per direct dependent.
    pub(super) fn pulled_in_by(&self, package: &Package) -> String {
        let Some(dependents) = self.dependents.get(&package.id) else {
            return "  a member of the workspace".into();
        };
        let mut lines: Vec<String> = dependents
            .iter()
            .take(MAX_PATHS)
            .map(|id| format!("  {}", self.path_to_member(id)))
            .collect();
        if dependents.len() > MAX_PATHS {
            let Package { name, version, .. } = package;
            let more = dependents.len() - MAX_PATHS;
            lines.push(format!(
                "  and {more} more: cargo tree --workspace --invert {name}@{version}"
            ));
        }
        lines.join("\n")
    }

    fn path_to_member(&self, from: &str) -> String {
        let ids = iter::successors(Some(from), |id| self.next.get(*id).map(String::as_str));
        let shown = |id: &str| {
            self.packages
                .get(id)
                .map_or_else(|| id.to_owned(), ToString::to_string)
        };
        ids.map(|id| format!("<- {}", shown(id)))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Parses a line such as `toml v1.1.8+spec-1.1.0 (*)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

/// Returns the leading numbers of a version, to sort by. Ignores pre-releases.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split(['.', '-', '+'])
        .map_while(|part| part.parse().ok())
        .collect()
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
        let graph =
            Graph::parse(include_str!("fixture.json"), include_str!("fixture.txt")).unwrap();
        let names: Vec<String> = graph.packages().map(ToString::to_string).collect();
        assert_eq!(
            names,
            [
                "app 0.1.0",
                "forked 0.1.0",
                "older 0.3.0",
                "twice 1.4.0",
                "twice 2.0.1"
            ]
        );
        assert_eq!(
            graph.duplicates().keys().copied().collect::<Vec<_>>(),
            ["twice"]
        );
    }
}
