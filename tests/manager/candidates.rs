//! Candidates for leader election in child processes, which run this binary.
//!
//! Each leader writes its token into an object as fast as it can, and prints what happens to it.

use super::{tcp_proxy::Proxy, write_history::Write};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube_client::{
    Api, Config,
    api::{Patch::Merge, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use std::{
    collections::BTreeSet,
    env,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use steersman::{
    client::{Client, Patch},
    manager::election::{Elector, Fence, LeaderElection},
    object::ObjectKey,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const LEDGER: &str = "ledger";
pub(crate) const PREFIX: &str = "candidate: ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a helper: started in processes of its own, which are then killed, stopped and cut off"]
async fn helper_is_a_candidate() -> anyhow::Result<()> {
    let Some(CandidateConfig {
        config,
        namespace,
        options,
        stop,
    }) = CandidateConfig::of_this_process().await?
    else {
        return Ok(());
    };
    let elector = Elector::new(config.clone(), options)?;
    let client = Client::new(config)?;
    while let Some(mut leadership) = elector.acquire(stop.cancelled()).await {
        let fence = leadership.fence();
        println!("{PREFIX}leads {}", fence.token());
        let ended = CancellationToken::new();
        let work = {
            let (client, fence, namespace, ended) = (
                client.clone(),
                fence.clone(),
                namespace.clone(),
                ended.clone(),
            );
            tokio::spawn(async move {
                fence
                    .scope(write(&client, &fence, &namespace, &ended))
                    .await;
            })
        };
        let held = leadership.hold(stop.cancelled()).await;
        match held {
            Ok(()) => ended.cancel(),
            // Only the client fences the writer, no other signal.
            Err(lost) => println!("{PREFIX}lost {} {lost}", fence.token()),
        }
        work.await?;
        leadership
            .release()
            .await
            .unwrap_or_else(|error| println!("{PREFIX}note {error}"));
    }
    println!("{PREFIX}ends");
    Ok(())
}

/// Sets the renew time decades back and ahead, and calls `then` after each.
pub(crate) async fn skew_renew_time(
    client: kube_client::Client,
    namespace: &str,
    mut then: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    for renewed in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let skewed = Merge(json!({"spec": {"renewTime": renewed}}));
        leases
            .patch("web", &PatchParams::default(), &skewed)
            .await?;
        then().await?;
    }
    Ok(())
}

/// Configuration of a child process.
pub(crate) struct CandidateConfig {
    pub(crate) config: Config,
    pub(crate) namespace: String,
    pub(crate) options: LeaderElection,
    pub(crate) stop: CancellationToken,
}

impl CandidateConfig {
    /// Returns `None` if this process was not started by a test.
    pub(crate) async fn of_this_process() -> anyhow::Result<Option<Self>> {
        let Ok(identity) = env::var("STEERSMAN_CANDIDATE") else {
            return Ok(None);
        };
        let namespace = env::var("STEERSMAN_CANDIDATE_NAMESPACE")?;
        let kubeconfig = Kubeconfig::read_from(env::var("STEERSMAN_CANDIDATE_KUBECONFIG")?)?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let options = LeaderElection {
            identity,
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(300),
            ..LeaderElection::new("web", &namespace)
        };
        // The parent ends this process by closing its standard input, at the latest when it exits.
        let stop = CancellationToken::new();
        let ended = stop.clone();
        thread::spawn(move || {
            let _ = io::stdin().read(&mut [0]);
            ended.cancel();
        });
        Ok(Some(Self {
            config,
            namespace,
            options,
            stop,
        }))
    }
}

/// Writes until it is cancelled or its client is fenced.
async fn write(client: &Client, fence: &Fence, namespace: &str, ended: &CancellationToken) {
    for number in 1_u64.. {
        if ended.is_cancelled() || !write_once(client, fence, namespace, number).await {
            return;
        }
    }
}

/// Writes once. Returns `false` if the client is fenced.
///
/// Sends no `resourceVersion`, which would reject late writes.
pub(crate) async fn write_once(
    client: &Client,
    fence: &Fence,
    namespace: &str,
    number: u64,
) -> bool {
    let (key, token) = (ObjectKey::new(namespace, LEDGER), fence.token());
    let patch =
        Patch::Merge(json!({"data": {"token": token.to_string(), "number": number.to_string()}}));
    let reported = fence.late_writes();
    let in_flight = InFlight { token, number };
    let written = client.patch::<ConfigMap>(&key, &patch).await;
    in_flight.finish();
    if fence.late_writes() > reported {
        println!("{PREFIX}late {token} {number}");
    }
    match written {
        Ok(_) => true,
        // The response was lost, so the write may still arrive.
        Err(error) if !error.is_fenced() => {
            println!("{PREFIX}unacknowledged {token} {number} {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            true
        }
        Err(_) => {
            println!("{PREFIX}fenced {token}");
            false
        }
    }
}

/// Reports a write as unacknowledged if it is dropped with its reconcile.
struct InFlight {
    token: u64,
    number: u64,
}

impl InFlight {
    fn finish(self) {
        std::mem::forget(self);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        println!(
            "{PREFIX}unacknowledged {} {} dropped",
            self.token, self.number
        );
    }
}

/// Candidates and their output.
pub(crate) struct Candidates {
    /// Name of the test that the child processes run.
    helper: &'static str,
    running: Vec<Candidate>,
    lines: mpsc::UnboundedReceiver<(usize, String)>,
    sender: mpsc::UnboundedSender<(usize, String)>,
    /// Writes that may arrive late, as reported by their senders.
    pub(crate) reported: BTreeSet<Write>,
    lost: BTreeSet<(usize, u64)>,
}

struct Candidate {
    process: Child,
    input: Option<ChildStdin>,
    proxy: Proxy,
}

impl Candidates {
    pub(crate) fn new(helper: &'static str) -> Self {
        let (sender, lines) = mpsc::unbounded_channel();
        Self {
            helper,
            running: Vec::new(),
            lines,
            sender,
            reported: BTreeSet::new(),
            lost: BTreeSet::new(),
        }
    }

    /// Starts a candidate behind a proxy of its own.
    pub(crate) async fn start(
        &mut self,
        kubeconfig: &Path,
        namespace: &str,
        directory: &Path,
    ) -> anyhow::Result<()> {
        let number = self.running.len();
        let text = std::fs::read_to_string(kubeconfig)?;
        let (_, server) = text
            .split_once("https://")
            .ok_or_else(|| anyhow::anyhow!("no server in the kubeconfig"))?;
        let server: String = server
            .chars()
            .take_while(|letter| !"\"' \n/".contains(*letter))
            .collect();
        let proxy = Proxy::to(server.parse()?).await?;
        let own = directory.join(format!("{number}.kubeconfig"));
        std::fs::write(&own, text.replace(&server, &proxy.address.to_string()))?;
        let mut process = Command::new(env::current_exe()?)
            .args(["--ignored", "--exact", self.helper, "--nocapture"])
            .env("STEERSMAN_CANDIDATE", format!("candidate-{number}"))
            .env("STEERSMAN_CANDIDATE_NAMESPACE", namespace)
            .env("STEERSMAN_CANDIDATE_KUBECONFIG", own)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output, sender) = (
            process.stdin.take(),
            process.stdout.take(),
            self.sender.clone(),
        );
        thread::spawn(move || {
            let lines = output
                .into_iter()
                .flat_map(|output| BufReader::new(output).lines())
                .map_while(Result::ok);
            for line in lines {
                if let Some((_, text)) = line.split_once(PREFIX) {
                    let _ = sender.send((number, text.to_owned()));
                }
            }
        });
        self.running.push(Candidate {
            process,
            input,
            proxy,
        });
        Ok(())
    }

    /// Waits for a leader other than `other`. Returns its index and token.
    pub(crate) async fn next_leader(
        &mut self,
        other: Option<usize>,
    ) -> anyhow::Result<(usize, u64)> {
        self.until(|index, line| {
            let token = line.strip_prefix("leads ")?.parse().ok()?;
            (Some(index) != other).then_some((index, token))
        })
        .await
    }

    /// Waits until the candidate reports the loss of this token.
    pub(crate) async fn wait_for_loss(&mut self, index: usize, token: u64) -> anyhow::Result<()> {
        // It may have reported the loss already.
        if self.lost.contains(&(index, token)) {
            return Ok(());
        }
        let words = format!("lost {token} ");
        self.until(|whose, line| (whose == index && line.starts_with(&words)).then_some(()))
            .await
    }

    /// Lets all candidates end, and reads all their output.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        for index in 0..self.running.len() {
            self.release(index);
        }
        for candidate in &mut self.running {
            let began = Instant::now();
            while candidate.process.try_wait()?.is_none() {
                anyhow::ensure!(
                    began.elapsed() < Duration::from_mins(1),
                    "a candidate does not end"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        // Dropping the last sender ends the loop after the readers are finished.
        (self.sender, _) = mpsc::unbounded_channel();
        while let Some((index, line)) = timeout(Duration::from_mins(1), self.lines.recv()).await? {
            self.record_line(index, &line);
        }
        Ok(())
    }

    async fn until<T>(
        &mut self,
        mut select: impl FnMut(usize, &str) -> Option<T>,
    ) -> anyhow::Result<T> {
        loop {
            let line = timeout(Duration::from_mins(1), self.lines.recv()).await;
            let (index, line) =
                line?.ok_or_else(|| anyhow::anyhow!("all candidates have ended"))?;
            self.record_line(index, &line);
            if let Some(selected) = select(index, &line) {
                return Ok(selected);
            }
        }
    }

    fn record_line(&mut self, index: usize, line: &str) {
        println!("candidate-{index}: {line}");
        let mut words = line.split(' ');
        let (report, mut number) = (words.next(), || words.next()?.parse().ok());
        match (report, number(), number()) {
            (Some("late" | "unacknowledged"), Some(token), Some(number)) => {
                self.reported.insert(Write { token, number });
            }
            (Some("lost"), Some(token), _) => {
                self.lost.insert((index, token));
            }
            _ => {}
        }
    }

    pub(crate) fn kill(&mut self, index: usize) -> io::Result<()> {
        self.running[index].process.kill()
    }

    /// Sends the signal `STOP` or `CONT`.
    pub(crate) fn signal(&self, index: usize, name: &str) -> anyhow::Result<()> {
        let process = self.running[index].process.id().to_string();
        let sent = Command::new("/bin/sh")
            .args(["-c", "kill -s $0 $1", name, &process])
            .status()?;
        anyhow::ensure!(sent.success(), "{name} was not sent");
        Ok(())
    }

    /// Lets the candidate end.
    pub(crate) fn release(&mut self, index: usize) {
        self.running[index].input = None;
    }

    pub(crate) fn proxy(&self, index: usize) -> &Proxy {
        &self.running[index].proxy
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // Also kills stopped processes. Fails for ended ones, which is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
