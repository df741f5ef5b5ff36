//! Candidates in processes of their own: this binary again. Each that leads writes its token into an object as fast as it can, and says what happens to it.

use super::{history::Write, proxy::Proxy};
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
    let Some(Part { config, namespace, options, stop }) = Part::of_this_process().await? else { return Ok(()) };
    let elector = Elector::new(config.clone(), options)?;
    let client = Client::new(config)?;
    while let Some(mut leadership) = elector.acquire(stop.cancelled()).await {
        let fence = leadership.fence();
        println!("{PREFIX}leads {}", fence.token());
        let ended = CancellationToken::new();
        let work = {
            let (client, fence, namespace, ended) = (client.clone(), fence.clone(), namespace.clone(), ended.clone());
            tokio::spawn(async move { fence.scope(write(&client, &fence, &namespace, &ended)).await })
        };
        let held = leadership.hold(stop.cancelled()).await;
        match held {
            Ok(()) => ended.cancel(),
            // Nothing tells the work to end but its client.
            Err(lost) => println!("{PREFIX}lost {} {lost}", fence.token()),
        }
        work.await?;
        leadership.release().await.unwrap_or_else(|error| println!("{PREFIX}note {error}"));
    }
    println!("{PREFIX}ends");
    Ok(())
}

/// Somebody's clock is decades off, as others see it: the leader goes on.
pub(crate) async fn jump(
    client: kube_client::Client,
    namespace: &str,
    mut then: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    for renewed in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let skewed = Merge(json!({"spec": {"renewTime": renewed}}));
        leases.patch("web", &PatchParams::default(), &skewed).await?;
        then().await?;
    }
    Ok(())
}

/// What a process was started for.
pub(crate) struct Part {
    pub(crate) config: Config,
    pub(crate) namespace: String,
    pub(crate) options: LeaderElection,
    pub(crate) stop: CancellationToken,
}

impl Part {
    /// `None` if it was not started by a test.
    pub(crate) async fn of_this_process() -> anyhow::Result<Option<Self>> {
        let Ok(identity) = env::var("STEERSMAN_CANDIDATE") else { return Ok(None) };
        let namespace = env::var("STEERSMAN_CANDIDATE_NAMESPACE")?;
        let kubeconfig = Kubeconfig::read_from(env::var("STEERSMAN_CANDIDATE_KUBECONFIG")?)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let options = LeaderElection {
            identity,
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(300),
            ..LeaderElection::new("web", &namespace)
        };
        // Whoever started it ends it by the end of its input, at the latest when that process ends itself.
        let stop = CancellationToken::new();
        let ended = stop.clone();
        thread::spawn(move || {
            let _ = io::stdin().read(&mut [0]);
            ended.cancel();
        });
        Ok(Some(Self { config, namespace, options, stop }))
    }
}

/// Until it is told to end, or its client refuses.
async fn write(client: &Client, fence: &Fence, namespace: &str, ended: &CancellationToken) {
    for number in 1_u64.. {
        if ended.is_cancelled() || !write_once(client, fence, namespace, number).await {
            return;
        }
    }
}

/// False if its client refuses. Without a `resourceVersion`, which would keep late writes out.
pub(crate) async fn write_once(client: &Client, fence: &Fence, namespace: &str, number: u64) -> bool {
    let (key, token) = (ObjectKey::new(namespace, LEDGER), fence.token());
    let patch = Patch::Merge(json!({"data": {"token": token.to_string(), "number": number.to_string()}}));
    let reported = fence.late_writes();
    let written = client.patch::<ConfigMap>(&key, &patch).await;
    if fence.late_writes() > reported {
        println!("{PREFIX}late {token} {number}");
    }
    match written {
        Ok(_) => true,
        // An answer that was not heard: it may arrive.
        Err(error) if !error.is_fenced() => {
            println!("{PREFIX}unheard {token} {number} {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            true
        }
        Err(_) => {
            println!("{PREFIX}refused {token}");
            false
        }
    }
}

/// Some candidates, and what they have said.
pub(crate) struct Candidates {
    /// The test that they run.
    helper: &'static str,
    running: Vec<Candidate>,
    said: mpsc::UnboundedReceiver<(usize, String)>,
    sender: mpsc::UnboundedSender<(usize, String)>,
    /// What may arrive late, by their own words.
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
        let (sender, said) = mpsc::unbounded_channel();
        Self { helper, running: Vec::new(), said, sender, reported: BTreeSet::new(), lost: BTreeSet::new() }
    }

    /// One more, behind a wire of its own.
    pub(crate) async fn start(&mut self, kubeconfig: &Path, namespace: &str, directory: &Path) -> anyhow::Result<()> {
        let number = self.running.len();
        let text = std::fs::read_to_string(kubeconfig)?;
        let (_, server) = text.split_once("https://").ok_or_else(|| anyhow::anyhow!("no server in the kubeconfig"))?;
        let server: String = server.chars().take_while(|letter| !"\"' \n/".contains(*letter)).collect();
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
        let (input, output, sender) = (process.stdin.take(), process.stdout.take(), self.sender.clone());
        thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok);
            for line in lines {
                if let Some((_, text)) = line.split_once(PREFIX) {
                    let _ = sender.send((number, text.to_owned()));
                }
            }
        });
        self.running.push(Candidate { process, input, proxy });
        Ok(())
    }

    /// Wait for somebody to lead who is not `other`: who, and by which token.
    pub(crate) async fn next_leader(&mut self, other: Option<usize>) -> anyhow::Result<(usize, u64)> {
        self.until(|who, said| {
            let token = said.strip_prefix("leads ")?.parse().ok()?;
            (Some(who) != other).then_some((who, token))
        })
        .await
    }

    /// Wait for this one to say that it does not lead by this token any more.
    pub(crate) async fn loses(&mut self, who: usize, token: u64) -> anyhow::Result<()> {
        // Perhaps it has said so already.
        if self.lost.contains(&(who, token)) {
            return Ok(());
        }
        let words = format!("lost {token} ");
        self.until(|whose, said| (whose == who && said.starts_with(&words)).then_some(())).await
    }

    /// Let all end by themselves, and hear all that they say.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        for who in 0..self.running.len() {
            self.release(who);
        }
        for candidate in &mut self.running {
            let began = Instant::now();
            while candidate.process.try_wait()?.is_none() {
                anyhow::ensure!(began.elapsed() < Duration::from_mins(1), "a candidate does not end");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        // Those who read on their behalf have come to the end.
        (self.sender, _) = mpsc::unbounded_channel();
        while let Some((who, said)) = timeout(Duration::from_mins(1), self.said.recv()).await? {
            self.hear(who, &said);
        }
        Ok(())
    }

    async fn until<T>(&mut self, mut heard: impl FnMut(usize, &str) -> Option<T>) -> anyhow::Result<T> {
        loop {
            let said = timeout(Duration::from_mins(1), self.said.recv()).await;
            let (who, said) = said?.ok_or_else(|| anyhow::anyhow!("all candidates have ended"))?;
            self.hear(who, &said);
            if let Some(heard) = heard(who, &said) {
                return Ok(heard);
            }
        }
    }

    fn hear(&mut self, who: usize, said: &str) {
        println!("candidate-{who}: {said}");
        let mut words = said.split(' ');
        let (what, mut number) = (words.next(), || words.next()?.parse().ok());
        match (what, number(), number()) {
            (Some("late" | "unheard"), Some(token), Some(number)) => {
                self.reported.insert(Write { token, number });
            }
            (Some("lost"), Some(token), _) => {
                self.lost.insert((who, token));
            }
            _ => {}
        }
    }

    pub(crate) fn kill(&mut self, who: usize) -> io::Result<()> {
        self.running[who].process.kill()
    }

    /// `STOP` or `CONT`.
    pub(crate) fn signal(&self, who: usize, name: &str) -> anyhow::Result<()> {
        let process = self.running[who].process.id().to_string();
        let sent = Command::new("/bin/sh").args(["-c", "kill -s $0 $1", name, &process]).status()?;
        anyhow::ensure!(sent.success(), "{name} was not sent");
        Ok(())
    }

    /// Let it end by itself.
    pub(crate) fn release(&mut self, who: usize) {
        self.running[who].input = None;
    }

    pub(crate) fn wire(&self, who: usize) -> &Proxy {
        &self.running[who].proxy
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // Also what is stopped; what has ended already is no matter.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
