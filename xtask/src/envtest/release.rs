//! The programs to build, and the Go commands that build them.
//!
//! The Kubernetes release is the one that `xtask/envtest/go.mod` requires.

use std::{
    env::consts::{ARCH, OS},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

/// A program and its Go package.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    /// Whether the linker must set the version, as Kubernetes' release scripts do.
    versioned: bool,
}

/// In build order. The smallest comes first, so that problems with Go or the network show early.
pub(super) const PROGRAMS: [Program; 4] = [
    Program {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        versioned: false,
    },
    Program {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        versioned: true,
    },
    Program {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        versioned: true,
    },
    Program {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
        versioned: true,
    },
];

/// Flags of `go list` and `go build`. They must be equal, since Go's build cache depends on them.
const FLAGS: [&str; 2] = ["-mod=readonly", "-trimpath"];

/// The release that the Go module in the checkout requires.
pub(super) struct Release {
    module: PathBuf,
    /// Version such as `v1.37.1`.
    pub(super) version: String,
    /// Everything that the binaries depend on. If it changes, they are built again.
    pub(super) inputs: String,
}

impl Release {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let module = root.join("xtask/envtest");
        let text = |name: &str| {
            let path = module.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let requirements = text("go.mod")?;
        let sums = text("go.sum")?;
        let version = version(&requirements)
            .context("cannot determine the Kubernetes release; require k8s.io/kubernetes in xtask/envtest/go.mod")?
            .to_owned();
        let commands = PROGRAMS.map(|program| {
            let flags = [&FLAGS[..], &["-ldflags", &linker_flags(program, &version)]]
                .concat()
                .join(" ");
            format!("{} {} {flags}\n", program.name, program.package)
        });
        let inputs = format!("{OS} {ARCH}\n{}\n{requirements}\n{sums}", commands.concat());
        Ok(Self {
            module,
            version,
            inputs,
        })
    }

    /// Returns the command that prints `stale` or `fresh` for each package of `programs`.
    ///
    /// Go has to compile the stale packages. The command downloads missing modules.
    pub(super) fn list(&self, programs: &[Program]) -> Command {
        let mut command = self.go("list");
        command.args(["-deps", "-f", "{{if .Stale}}stale{{else}}fresh{{end}}"]);
        command.args(programs.iter().map(|program| program.package));
        command
    }

    /// Returns the command that builds `program` to `output` and prints each compiled package.
    pub(super) fn build(&self, program: Program, output: &Path) -> Command {
        let mut command = self.go("build");
        command
            .args([
                "-v",
                "-ldflags",
                &linker_flags(program, &self.version),
                "-o",
            ])
            .arg(output)
            .arg(program.package);
        command
    }

    fn go(&self, verb: &str) -> Command {
        let mut command = Command::new("go");
        command.arg(verb).args(FLAGS).current_dir(&self.module);
        // A Go workspace in a parent directory, or a C compiler, would change the binaries.
        command.env("CGO_ENABLED", "0").env("GOWORK", "off");
        command
    }
}

fn linker_flags(program: Program, version: &str) -> String {
    if !program.versioned {
        return "-s -w".into();
    }
    let mut numbers = version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    let values = [
        ("gitVersion", version),
        ("gitMajor", major),
        ("gitMinor", minor),
    ];
    let set = values
        .map(|(variable, value)| format!(" -X k8s.io/component-base/version.{variable}={value}"));
    format!("-s -w{}", set.concat())
}

/// Returns the Kubernetes release that a `go.mod` requires.
fn version(requirements: &str) -> Option<&str> {
    requirements.lines().find_map(|line| {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| *word == "require");
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
        let block =
            "require (\n\tk8s.io/kube-openapi v0.0.1\n\tk8s.io/kubernetes v1.37.1 // indirect\n)\n";
        assert_eq!(version(block), Some("v1.37.1"));
        assert_eq!(
            version("require k8s.io/kubernetes v1.38.0-rc.1\n"),
            None,
            "a release candidate"
        );
        assert_eq!(
            version("require k8s.io/kubernetes v1.38.0\n"),
            Some("v1.38.0")
        );
        assert_eq!(
            version("replace k8s.io/kubernetes => ../kubernetes\n"),
            None
        );
        assert_eq!(version("tool k8s.io/kubernetes/cmd/kubectl\n"), None);
    }

    #[test]
    fn the_go_module_pins_a_release_and_lists_all_programs_as_tools() {
        let requirements = include_str!("../../envtest/go.mod");
        assert_eq!(version(requirements), Some(pinned().version.as_str()));
        for Program { package, .. } in PROGRAMS {
            assert!(
                requirements.lines().any(|line| line.trim() == package),
                "{package} is a tool of the module"
            );
        }
    }

    #[test]
    fn kubernetes_programs_are_linked_with_their_version() {
        let flags = PROGRAMS.map(|program| linker_flags(program, "v1.37.1"));
        assert_eq!(flags[0], "-s -w");
        assert_eq!(
            flags[3],
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.1 -X k8s.io/component-base/version.gitMajor=1 \
             -X k8s.io/component-base/version.gitMinor=37"
        );
    }

    #[test]
    fn the_inputs_contain_the_flags_and_both_files() {
        let release = pinned();
        assert!(
            release.inputs.contains(
                "etcd go.etcd.io/etcd/server/v3 -mod=readonly -trimpath -ldflags -s -w\n"
            )
        );
        for file in [
            include_str!("../../envtest/go.mod"),
            include_str!("../../envtest/go.sum"),
        ] {
            assert!(release.inputs.contains(file));
        }
    }
}
