//! The program `steersman-apiserver`: serves the Kubernetes API on loopback, for kubectl and for programs in any language. Feature `binary`.
//!
//! A program that has it among its own commands takes [`Flags`] as arguments of one, and [`run`]s them.

mod signals;

use crate::{ApiServer, Authenticator, Authority, ConnectionLimits, Running, TemporaryKubeconfig};
use anyhow::{Context, Result};
use clap::Parser;
use std::{
    fs,
    io::{self, ErrorKind, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// A Kubernetes API server in one process: no etcd, nothing to install.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Flags {
    /// Where to listen; port 0 takes a free one. Anything but loopback needs --token-auth-file and --tls.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Serve TLS, by a certificate authority made for this run. kubectl sends tokens only over TLS.
    #[arg(long)]
    tls: bool,

    /// Who may call, as lines of `token,user,uid,"group1,group2"`. Without it every caller is admin.
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// DNS names and IP addresses, without port, by which clients may call the server besides loopback, separated by commas.
    /// Default: none. With --token-auth-file every host is accepted.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "token_auth_file")]
    host: Vec<String>,

    /// Where to write the kubeconfig. Without it: `kubeconfig` in the data directory, or else a file in the system's
    /// directory for temporary ones, which is removed at the end.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Keep objects here, so that they are there again at the next start. Without it they live as long as the process.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Most bytes of history that all resources keep together. A watch from before it is answered with 410.
    #[arg(long, value_name = "BYTES", default_value_t = crate::Options::default().history_bytes)]
    history_bytes: usize,

    /// Most open connections. Further clients wait until one is closed; each watch takes one.
    #[arg(long, value_name = "N", default_value_t = crate::ConnectionLimits::default().max_connections)]
    max_connections: usize,

    /// Custom resource definitions to begin with, as YAML or JSON.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    crd: Vec<PathBuf>,

    /// Answer a write only when it is on the disk itself, so that it survives a power failure too.
    #[arg(long, requires = "data_dir")]
    fsync: bool,
}

impl Flags {
    /// Where the kubeconfig goes. Nowhere in particular: then it is removed at the end, when it is of no use to anybody.
    fn kubeconfig(&self) -> Option<PathBuf> {
        self.kubeconfig.clone().or_else(|| self.data_dir.as_ref().map(|data| data.join("kubeconfig")))
    }

    fn authenticator(&self) -> Result<Authenticator> {
        let Some(path) = &self.token_auth_file else { return Ok(Authenticator::default()) };
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Authenticator::from_token_file(&text).with_context(|| format!("cannot use {}", path.display()))
    }
}

/// The server that `flags` ask for, with its door open.
async fn start(flags: &Flags, authenticator: Authenticator) -> Result<Running> {
    let server = ApiServer::new(crate::Options {
        authenticator,
        hosts: flags.host.clone(),
        data_dir: flags.data_dir.clone(),
        fsync: flags.fsync,
        history_bytes: flags.history_bytes,
        connections: ConnectionLimits { max_connections: flags.max_connections, ..ConnectionLimits::default() },
        ..crate::Options::default()
    })?;
    if let Some(note) = server.note() {
        eprintln!("note: {note}");
    }
    for path in &flags.crd {
        install(&server, path).await.with_context(|| format!("cannot install {}", path.display()))?;
    }
    let authority = if flags.tls { Some(Authority::generate()?) } else { None };
    Ok(server.listen(flags.listen, authority.as_ref()).await?)
}

/// Install the definitions of a file: one, a list of them, or several YAML documents.
async fn install(server: &ApiServer, path: &Path) -> Result<()> {
    let text = fs::read_to_string(path)?;
    for document in documents(&text)?.into_iter().filter(|document| !document.is_null()) {
        let items = document["items"].as_array().cloned().unwrap_or_else(|| vec![document.clone()]);
        for definition in items {
            server.install(definition).await?;
        }
    }
    Ok(())
}

/// The parser's limits are for files of strangers; these are the operator's own, and may hold all definitions of a cluster.
fn documents(text: &str) -> Result<Vec<serde_json::Value>> {
    let limits = serde_saphyr::budget! { max_nodes: 50_000_000, max_events: 100_000_000, max_documents: 100_000 };
    Ok(serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { budget: limits })?)
}

/// Serves until SIGINT or SIGTERM. A second signal ends the process with status 1. What it says to people and programs goes to stdout.
pub async fn run(flags: Flags) -> Result<()> {
    let authenticator = flags.authenticator()?;
    // Before anything is served: a signal that comes early must not leave files behind.
    let signal = signals::stop_signal().context("cannot listen to signals")?;
    let running = start(&flags, authenticator).await?;
    let kubeconfig = running.kubeconfig();
    let (path, _temporary) = if let Some(path) = flags.kubeconfig() {
        kubeconfig.write(&path)?;
        (path, None)
    } else {
        let temporary = TemporaryKubeconfig::write(&kubeconfig)?;
        (temporary.path().to_owned(), Some(temporary))
    };
    match writeln!(io::stdout(), "{}\nready {}", usage(&path, &flags), running.url()) {
        // Nobody wants to know: it serves all the same.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        said => said.context("cannot write to stdout")?,
    }
    signal.await;
    running.stop().await;
    Ok(())
}

/// For people; the line for programs, `ready URL`, comes after it.
fn usage(kubeconfig: &Path, flags: &Flags) -> String {
    let callers = match (&flags.token_auth_file, flags.tls) {
        (None, _) => "every caller is admin",
        (Some(_), true) => "the kubeconfig is the admin's; others bring their token",
        (Some(_), false) => "callers bring their token; kubectl does so only over TLS: start with --tls to use it",
    };
    format!(
        "Use it (from another shell)\n  export KUBECONFIG='{}'\n  kubectl get ns\n{callers}; stop with Ctrl-C, a second one ends it at once",
        kubeconfig.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &str) -> Result<Flags, clap::Error> {
        Flags::try_parse_from(["steersman-apiserver"].into_iter().chain(flags.split_whitespace()))
    }

    #[test]
    fn without_flags_it_listens_on_a_free_loopback_port_and_everybody_is_admin() {
        let options = parse("").unwrap();
        assert!(options.listen.ip().is_loopback() && options.listen.port() == 0 && !options.tls);
        assert!(!options.authenticator().unwrap().is_configured());
    }

    #[test]
    fn several_definitions_may_follow_one_flag() {
        let options = parse("--crd a.yaml b.yaml --tls").unwrap();
        assert_eq!((options.crd.len(), options.tls), (2, true));
    }

    #[test]
    fn a_file_of_definitions_may_be_large() {
        let text = format!("[{}]\n{}", "0,".repeat(260_000), "---\na: 1\n".repeat(1_100));
        assert_eq!(documents(&text).unwrap().len(), 1_101);
    }

    #[test]
    fn the_budget_of_history_is_a_flag() {
        assert_eq!(parse("").unwrap().history_bytes, 128 << 20);
        assert_eq!(parse("--history-bytes 1000").unwrap().history_bytes, 1000);
    }

    #[test]
    fn the_number_of_connections_is_a_flag() {
        assert_eq!(parse("").unwrap().max_connections, 1_000);
        assert_eq!(parse("--max-connections 7").unwrap().max_connections, 7);
    }

    #[test]
    fn syncing_needs_somewhere_to_sync_to() {
        assert!(parse("--fsync").unwrap_err().to_string().contains("--data-dir"));
        assert!(parse("--fsync --data-dir d").unwrap().fsync);
    }

    #[test]
    fn the_kubeconfig_goes_where_it_is_told_then_to_the_data_and_else_is_temporary() {
        let place = |flags| parse(flags).unwrap().kubeconfig();
        assert_eq!(place("--kubeconfig k --data-dir d"), Some("k".into()));
        assert_eq!(place("--data-dir d"), Some(Path::new("d").join("kubeconfig")));
        assert_eq!(place(""), None);
    }

    #[test]
    fn a_token_file_that_is_not_there_is_named() {
        let error = parse("--token-auth-file no-such-file").unwrap().authenticator().unwrap_err();
        assert!(format!("{error:#}").contains("no-such-file"));
    }

    #[test]
    fn usage_says_what_to_type() {
        let text = usage(Path::new("k"), &parse("").unwrap());
        assert!(text.contains("export KUBECONFIG='k'") && text.contains("kubectl get ns"), "{text}");
    }
}
