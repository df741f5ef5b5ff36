//! The binary `steersman`: the first-party controllers, on a cluster, or on an API server of their own in this process.
//!
//! | file | what it does |
//! |---|---|
//! | `demo` | without arguments: server, controllers and a story, in one process |
//! | `run` | the controllers on a cluster |
//! | `doctor` | whether they could run there |
//! | `manifests` | what to install before |
//! | `admin` | flags of the admin server |
//! | `connect` | how a cluster is found and reached |
//! | `permissions` | what they are allowed to do there |
//! | `first_party` | which controllers there are |
//! | `sync`, `terminal` | how far the cache is, told while it fills |
//! | `say`, `ending` | what is said on stdout, and exit codes |

mod admin;
mod connect;
mod demo;
mod doctor;
mod ending;
mod first_party;
mod manifests;
mod permissions;
mod run;
mod say;
mod sync;
mod terminal;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::{
    io::{Write, stderr},
    process::ExitCode,
};

/// Controllers for Kubernetes, built on the framework of the same name.
///
/// Without a command it shows what it does: an API server in this process, the controllers on it, and a story that can be followed line by line. Nothing has to be
/// installed. On a cluster it is `steersman run`, after what `steersman crds` and `steersman rbac` print has been applied; `steersman doctor` says what is missing.
#[derive(Debug, Parser)]
#[command(name = "steersman", version, max_term_width = 100, after_help = ending::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show everything in one process, with nothing installed. This is what happens without a command.
    Demo(demo::Flags),
    /// Run the controllers on a cluster, until SIGINT or SIGTERM.
    Run(run::Flags),
    /// Serve the embedded Kubernetes API alone: no etcd, nothing to install.
    Apiserver(steersman_apiserver::program::Flags),
    /// Print the definitions to install: `steersman crds | kubectl apply -f -`.
    Crds(manifests::Crds),
    /// Print the permissions that the controllers need: `steersman rbac --service-account NS/NAME | kubectl apply -f -`.
    Rbac(manifests::Rbac),
    /// Look whether the controllers could run on a cluster: is it there, are the definitions, which permissions are missing, do the clocks agree.
    Doctor(doctor::Flags),
    /// Print completions for a shell: `source <(steersman completions bash)`.
    Completions {
        /// Which one.
        shell: Shell,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = obey(Cli::parse().command.unwrap_or_else(|| Command::Demo(demo::Flags::default()))).await else {
        return ExitCode::SUCCESS;
    };
    // Who reads may have stopped to.
    drop(writeln!(stderr(), "error: {error:#}"));
    ending::code(&error)
}

async fn obey(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(flags) => demo::run(flags).await,
        Command::Run(flags) => run::run(flags).await,
        Command::Apiserver(flags) => steersman_apiserver::program::run(flags).await,
        Command::Crds(flags) => manifests::print(&flags.manifests()),
        Command::Rbac(flags) => manifests::print(&flags.manifests()),
        Command::Doctor(flags) => doctor::run(flags).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "steersman", &mut script);
            say::write(&script)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound_and_its_help_teaches() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        for word in ["Run the controllers on a cluster", "doctor", "Exit codes", "  3  "] {
            assert!(help.contains(word), "{word} in {help}");
        }
    }
}
