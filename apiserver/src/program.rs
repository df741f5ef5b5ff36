//! The program `steersman-apiserver`: serves the Kubernetes API on a socket. Needs the feature
//! `binary`.
//!
//! To offer it as a command of another program, use [`Flags`] as the arguments of the command and
//! pass them to [`run`].

mod signals;

use crate::{
    ApiServer, Authenticator, Authority, ConnectionLimits, RunningServer, TemporaryKubeconfig,
};
use anyhow::{Context, Result};
use clap::Parser;
use std::{
    fs,
    io::{self, ErrorKind, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::runtime;

/// A Kubernetes API server in one process, without etcd.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Flags {
    /// Address to listen on; port 0 takes a free one. Addresses other than loopback need
    /// --token-auth-file and --tls.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Serve TLS with a certificate authority generated for this run. kubectl sends tokens only
    /// over TLS.
    #[arg(long)]
    tls: bool,

    /// File of tokens, with lines of `token,user,uid,"group1,group2"`. Without it every caller is
    /// admin.
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// Comma-separated DNS names and IP addresses, without port, that clients may use as host
    /// besides loopback. Default: none. With --token-auth-file every host is accepted.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "token_auth_file"
    )]
    host: Vec<String>,

    /// File to write the kubeconfig to. Default: `kubeconfig` in the data directory, or else a file
    /// in the system's temporary directory that is removed at exit.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Directory to keep objects in across restarts. Without it they are lost at exit.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Maximum bytes of history of all resources together. Older watches get 410.
    #[arg(long, value_name = "BYTES", default_value_t = crate::Options::default().history_bytes)]
    history_bytes: usize,

    /// Maximum number of open connections. Each watch uses one. Further clients wait until one is
    /// closed.
    #[arg(long, value_name = "N", default_value_t = crate::ConnectionLimits::default().max_connections)]
    max_connections: usize,

    /// Files of custom resource definitions (CRDs) to install at the start, as YAML or JSON.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    crd: Vec<PathBuf>,

    /// Acknowledge a write only when it is synced to disk, so that it survives a power failure.
    #[arg(long, requires = "data_dir")]
    fsync: bool,
}

impl Flags {
    /// Returns the path of the kubeconfig, `None` for a temporary file that is removed at exit.
    fn kubeconfig_path(&self) -> Option<PathBuf> {
        self.kubeconfig
            .clone()
            .or_else(|| self.data_dir.as_ref().map(|data| data.join("kubeconfig")))
    }

    fn authenticator(&self) -> Result<Authenticator> {
        let Some(path) = &self.token_auth_file else {
            return Ok(Authenticator::default());
        };
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Authenticator::from_token_file(&text)
            .with_context(|| format!("cannot use {}", path.display()))
    }
}

/// Starts the server that `flags` describe and listens on its socket.
async fn start(flags: &Flags, authenticator: Authenticator) -> Result<RunningServer> {
    let server = ApiServer::new(crate::Options {
        authenticator,
        hosts: flags.host.clone(),
        data_dir: flags.data_dir.clone(),
        fsync: flags.fsync,
        history_bytes: flags.history_bytes,
        connections: ConnectionLimits {
            max_connections: flags.max_connections,
            ..ConnectionLimits::default()
        },
        ..crate::Options::default()
    })?;
    if let Some(note) = server.recovery_note() {
        eprintln!("note: {note}");
    }
    for path in &flags.crd {
        install_crds(&server, path)
            .await
            .with_context(|| format!("cannot install {}", path.display()))?;
    }
    let authority = if flags.tls {
        Some(Authority::generate()?)
    } else {
        None
    };
    Ok(server.listen(flags.listen, authority.as_ref()).await?)
}

/// Installs the CRDs of a file, which may be one, a list, or several YAML documents.
async fn install_crds(server: &ApiServer, path: &Path) -> Result<()> {
    let text = fs::read_to_string(path)?;
    for document in parse_documents(&text)?
        .into_iter()
        .filter(|document| !document.is_null())
    {
        let items = document["items"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![document.clone()]);
        for crd in items {
            server.install(crd).await?;
        }
    }
    Ok(())
}

/// Parses the YAML documents of a file.
///
/// The limits are higher than the parser's, since the operator's own file may contain all CRDs of a
/// cluster.
fn parse_documents(text: &str) -> Result<Vec<serde_json::Value>> {
    let limits = serde_saphyr::budget! { max_nodes: 50_000_000, max_events: 100_000_000, max_documents: 100_000 };
    Ok(serde_saphyr::from_multiple_with_options(
        text,
        serde_saphyr::options! { budget: limits },
    )?)
}

/// Longest time that threads of the runtime delay the end of the program.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a future on a new runtime, then stops the runtime.
///
/// Use it in `main` instead of `tokio::main`, which waits for every request that a thread still
/// computes. This function waits for one second.
///
/// # Errors
/// If the runtime cannot start.
pub fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let output = runtime.block_on(future);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    Ok(output)
}

/// Serves until SIGINT or SIGTERM, and writes the URL and instructions to stdout. A second signal
/// exits with status 1.
pub async fn run(flags: Flags) -> Result<()> {
    let authenticator = flags.authenticator()?;
    // Before any file is written, so that an early signal does not leave it behind.
    let signal = signals::stop_signal().context("cannot install the signal handlers")?;
    let running = start(&flags, authenticator).await?;
    let kubeconfig = running.kubeconfig();
    let (path, _temporary) = if let Some(path) = flags.kubeconfig_path() {
        kubeconfig.write(&path)?;
        (path, None)
    } else {
        let temporary = TemporaryKubeconfig::write(&kubeconfig)?;
        (temporary.path().to_owned(), Some(temporary))
    };
    match writeln!(
        io::stdout(),
        "{}\nready {}",
        usage(&path, &flags),
        running.url()
    ) {
        // The reader of stdout is gone, which is not a reason to stop.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to stdout")?,
    }
    signal.await;
    running.stop().await;
    Ok(())
}

/// Returns instructions for the user. The line for programs, `ready URL`, follows them.
fn usage(kubeconfig: &Path, flags: &Flags) -> String {
    let callers = match (&flags.token_auth_file, flags.tls) {
        (None, _) => "every caller is admin",
        (Some(_), true) => "the kubeconfig is the admin's; other callers send a token",
        (Some(_), false) => {
            "callers send a token; kubectl does so only over TLS, so start with --tls to use it"
        }
    };
    format!(
        "Use it (from another shell)\n  export KUBECONFIG='{}'\n  kubectl get ns\n{callers}; stop with Ctrl-C, press it again to exit at once",
        kubeconfig.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn parse(flags: &str) -> Result<Flags, clap::Error> {
        Flags::try_parse_from(
            ["steersman-apiserver"]
                .into_iter()
                .chain(flags.split_whitespace()),
        )
    }

    #[test]
    fn without_flags_the_server_listens_on_loopback_and_every_caller_is_admin() {
        let options = parse("").unwrap();
        assert!(options.listen.ip().is_loopback() && options.listen.port() == 0 && !options.tls);
        assert!(!options.authenticator().unwrap().is_configured());
    }

    #[test]
    fn a_thread_of_the_runtime_does_not_delay_the_end_of_the_program() {
        let (release, released) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        block_on(async {
            tokio::task::spawn_blocking(move || {
                // Ends by itself, so that the test fails instead of waiting for ever.
                let _ = released.recv_timeout(Duration::from_secs(20));
                let _ = done.send(());
            });
        })
        .unwrap();
        assert!(is_done.try_recv().is_err(), "the thread was waited for");
        drop(release);
    }

    #[test]
    fn one_crd_flag_takes_several_files() {
        let options = parse("--crd a.yaml b.yaml --tls").unwrap();
        assert_eq!((options.crd.len(), options.tls), (2, true));
    }

    #[test]
    fn a_file_of_crds_may_be_large() {
        let text = format!(
            "[{}]\n{}",
            "0,".repeat(260_000),
            "---\na: 1\n".repeat(1_100)
        );
        assert_eq!(parse_documents(&text).unwrap().len(), 1_101);
    }

    #[test]
    fn history_bytes_is_a_flag() {
        assert_eq!(parse("").unwrap().history_bytes, 128 << 20);
        assert_eq!(parse("--history-bytes 1000").unwrap().history_bytes, 1000);
    }

    #[test]
    fn max_connections_is_a_flag() {
        assert_eq!(parse("").unwrap().max_connections, 1_000);
        assert_eq!(parse("--max-connections 7").unwrap().max_connections, 7);
    }

    #[test]
    fn fsync_requires_a_data_dir() {
        assert!(
            parse("--fsync")
                .unwrap_err()
                .to_string()
                .contains("--data-dir")
        );
        assert!(parse("--fsync --data-dir d").unwrap().fsync);
    }

    #[test]
    fn the_kubeconfig_path_is_the_flag_or_in_the_data_dir_or_else_temporary() {
        let path = |flags| parse(flags).unwrap().kubeconfig_path();
        assert_eq!(path("--kubeconfig k --data-dir d"), Some("k".into()));
        assert_eq!(
            path("--data-dir d"),
            Some(Path::new("d").join("kubeconfig"))
        );
        assert_eq!(path(""), None);
    }

    #[test]
    fn a_missing_token_file_is_named_in_the_error() {
        let error = parse("--token-auth-file no-such-file")
            .unwrap()
            .authenticator()
            .unwrap_err();
        assert!(format!("{error:#}").contains("no-such-file"));
    }

    #[test]
    fn usage_contains_the_commands_to_run() {
        let text = usage(Path::new("k"), &parse("").unwrap());
        assert!(
            text.contains("export KUBECONFIG='k'") && text.contains("kubectl get ns"),
            "{text}"
        );
    }
}
