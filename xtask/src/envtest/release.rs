//! What is built: the four programs of one Kubernetes release, and how. The release is the one that
//! `xtask/envtest/go.mod` requires; it is named nowhere else.

use std::{
    env::consts::{ARCH, OS},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

/// A program and the Go package it is built from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    /// Whether it is Kubernetes' own, and has to be told its version: only Kubernetes' release scripts know it.
    versioned: bool,
}

/// In the order in which they are built: the small one first, so that what is wrong with Go or the network shows soon.
pub(super) const PROGRAMS: [Program; 4] = [
    Program { name: "etcd", package: "go.etcd.io/etcd/server/v3", versioned: false },
    Program { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver", versioned: true },
    Program {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        versioned: true,
    },
    Program { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl", versioned: true },
];

/// Given to `go list` and `go build` alike: what Go has compiled already depends on them.
const FLAGS: [&str; 2] = ["-mod=readonly", "-trimpath"];

/// The pinned release, as the checkout's Go module describes it.
pub(super) struct Release {
    module: PathBuf,
    /// As in `v1.37.1`.
    pub(super) version: String,
    /// Everything the binaries depend on; kept beside them, so that a change of it builds them anew.
    pub(super) inputs: String,
}

impl Release {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let module = root.join("xtask/envtest");
        let text = |name: &str| {
            let path = module.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}: is it checked out?", path.display()))
        };
        let (requirements, sums) = (text("go.mod")?, text("go.sum")?);
        let version = version(&requirements)
            .context("xtask/envtest/go.mod requires no release of k8s.io/kubernetes such as v1.37.1: add it there")?
            .to_owned();
        let commands = PROGRAMS.map(|program| {
            let flags = [&FLAGS[..], &["-ldflags", &linker_flags(program, &version)]].concat().join(" ");
            format!("{} {} {flags}\n", program.name, program.package)
        });
        let inputs = format!("{OS} {ARCH}\n{}\n{requirements}\n{sums}", commands.concat());
        Ok(Self { module, version, inputs })
    }

    /// Lists every package that `programs` consist of, a line each: `stale` if Go has yet to compile it, else `fresh`.
    /// Modules that are not here are downloaded for it.
    pub(super) fn list(&self, programs: &[Program]) -> Command {
        let mut command = self.go("list");
        command.args(["-deps", "-f", "{{if .Stale}}stale{{else}}fresh{{end}}"]);
        command.args(programs.iter().map(|program| program.package));
        command
    }

    /// Builds `program` as the file `output`; prints each package that is compiled for it.
    pub(super) fn build(&self, program: Program, output: &Path) -> Command {
        let mut command = self.go("build");
        command.args(["-v", "-ldflags", &linker_flags(program, &self.version), "-o"]).arg(output).arg(program.package);
        command
    }

    fn go(&self, verb: &str) -> Command {
        let mut command = Command::new("go");
        command.arg(verb).args(FLAGS).current_dir(&self.module);
        // A workspace file somewhere above, or a C compiler, would make other binaries of the same inputs.
        command.env("CGO_ENABLED", "0").env("GOWORK", "off");
        command
    }
}

fn linker_flags(program: Program, version: &str) -> String {
    if !program.versioned {
        return "-s -w".into();
    }
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let values = [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)];
    let set = values.map(|(variable, value)| format!(" -X k8s.io/component-base/version.{variable}={value}"));
    format!("-s -w{}", set.concat())
}

/// The release of Kubernetes that a `go.mod` requires.
fn version(requirements: &str) -> Option<&str> {
    requirements.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word == "require");
        let version = (words.next()? == "k8s.io/kubernetes").then(|| words.next())??;
        let mut numbers = version.strip_prefix('v')?.split('.').map(str::parse::<u16>);
        (numbers.clone().count() == 3 && numbers.all(|number| number.is_ok())).then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned() -> Release {
        Release::read(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap()
    }

    #[test]
    fn the_version_is_the_one_that_go_mod_requires() {
        let block = "require (\n\tk8s.io/kube-openapi v0.0.1\n\tk8s.io/kubernetes v1.37.1 // indirect\n)\n";
        assert_eq!(version(block), Some("v1.37.1"));
        assert_eq!(version("require k8s.io/kubernetes v1.38.0-rc.1\n"), None, "a release, not a candidate");
        assert_eq!(version("require k8s.io/kubernetes v1.38.0\n"), Some("v1.38.0"));
        assert_eq!(version("replace k8s.io/kubernetes => ../kubernetes\n"), None);
        assert_eq!(version("tool k8s.io/kubernetes/cmd/kubectl\n"), None);
    }

    #[test]
    fn the_checkout_pins_a_release_and_its_module_builds_all_four() {
        let requirements = include_str!("../../envtest/go.mod");
        assert_eq!(version(requirements), Some(pinned().version.as_str()));
        for Program { package, .. } in PROGRAMS {
            assert!(requirements.lines().any(|line| line.trim() == package), "{package} is a tool of the module");
        }
    }

    #[test]
    fn kubernetes_programs_are_told_their_version() {
        let flags = PROGRAMS.map(|program| linker_flags(program, "v1.37.1"));
        assert_eq!(flags[0], "-s -w");
        assert_eq!(
            flags[3],
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.1 -X k8s.io/component-base/version.gitMajor=1 \
             -X k8s.io/component-base/version.gitMinor=37"
        );
    }

    #[test]
    fn the_inputs_hold_the_flags_and_both_files() {
        let release = pinned();
        assert!(release.inputs.contains("etcd go.etcd.io/etcd/server/v3 -mod=readonly -trimpath -ldflags -s -w\n"));
        for file in [include_str!("../../envtest/go.mod"), include_str!("../../envtest/go.sum")] {
            assert!(release.inputs.contains(file));
        }
    }
}
