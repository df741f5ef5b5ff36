//! The binary `steersman`: runs the controllers of this repository.
//!
//! | file | content |
//! |---|---|
//! | `demo` | default command: API server, controllers and a demonstration in one process |
//! | `run` | runs the controllers on a cluster |
//! | `doctor` | checks whether the controllers can run on a cluster |
//! | `extension` | calls a handler of a runtime extension by hand |
//! | `manifests` | prints CRDs and permissions |
//! | `admin` | flags of the admin server |
//! | `connect` | finds the cluster and connects to it |
//! | `permissions` | checks the permissions of the controllers |
//! | `controller_table` | table of the controllers |
//! | `sync`, `terminal` | shows the progress of the cache |
//! | `stdout`, `exit_code` | output on stdout, and exit codes |

mod admin;
mod connect;
mod controller_table;
mod demo;
mod doctor;
mod exit_code;
mod extension;
mod manifests;
mod permissions;
mod run;
mod stdout;
mod sync;
mod terminal;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::{
    io::{Write, stderr},
    process::ExitCode,
};
use steersman_apiserver::program;

/// Controllers for Kubernetes, built on the framework of the same name.
///
/// Without a command, it runs a demonstration: an API server and the controllers in this process, which needs no installation. Use
/// `steersman run` on a cluster, after you have applied the output of `steersman crds` and `steersman rbac`. `steersman doctor` reports what is missing.
#[derive(Debug, Parser)]
#[command(name = "steersman", version, max_term_width = 100, after_help = exit_code::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a demonstration in one process, without a cluster. This is the default command.
    Demo(demo::Flags),
    /// Run the controllers on a cluster, until SIGINT or SIGTERM.
    Run(run::Flags),
    /// Run only the embedded Kubernetes API server, without etcd.
    Apiserver(program::Flags),
    /// Print the CRDs to install: `steersman crds | kubectl apply -f -`.
    Crds(manifests::Crds),
    /// Print the roles that the controllers need: `steersman rbac --service-account NS/NAME | kubectl apply -f -`.
    Rbac(manifests::Rbac),
    /// Check whether the controllers can run on a cluster: connection, clock, CRDs and permissions.
    Doctor(doctor::Flags),
    /// Call runtime extensions by hand.
    #[command(subcommand)]
    Extension(extension::Command),
    /// Print completions for a shell: `source <(steersman completions bash)`.
    Completions {
        /// Shell.
        shell: Shell,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let command = command.unwrap_or_else(|| Command::Demo(demo::Flags::default()));
    let ended = program::block_on(run_command(command))
        .map_err(anyhow::Error::from)
        .flatten();
    let Err(error) = ended else {
        return ExitCode::SUCCESS;
    };
    // Fails if the reader has closed stderr.
    drop(writeln!(stderr(), "error: {error:#}"));
    exit_code::code(&error)
}

async fn run_command(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(flags) => demo::run(flags).await,
        Command::Run(flags) => run::run(flags).await,
        Command::Apiserver(flags) => program::run(flags).await,
        Command::Crds(flags) => manifests::print(&flags.manifests()?),
        Command::Rbac(flags) => manifests::print(&flags.manifests()),
        Command::Doctor(flags) => doctor::run(flags).await,
        Command::Extension(command) => extension::run(command).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "steersman", &mut script);
            stdout::write(&script)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_valid_and_its_help_is_complete() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        for word in [
            "Run the controllers on a cluster",
            "doctor",
            "Exit codes",
            "  3  ",
        ] {
            assert!(help.contains(word), "{word} in {help}");
        }
    }
}
