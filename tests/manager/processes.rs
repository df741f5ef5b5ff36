//! Three processes and one Lease: whatever happens to them, no write arrives under an old token after a newer one was used, unless who sent it has said that it
//! was on its way.

use super::{
    candidates::{Candidates, LEDGER, jump},
    history::{History, Write, too_late},
};
use std::time::Instant;
use steersman::testing::{Embedded, Env, TestServer};
use steersman_apiserver::{ApiServer, Journal, Options};

/// So many that it is known to work.
pub(crate) const WRITES: usize = 100;

/// One whose journal keeps what was sent.
pub(crate) fn with_journal(env: Env) -> anyhow::Result<Env> {
    Ok(match env {
        Env::Embedded(_) => {
            let journal = Journal::new(1_000_000).with_bodies(512);
            Env::Embedded(Embedded::new(ApiServer::new(Options { journal, history: 1_000_000, ..Options::default() })?))
        }
        real => real,
    })
}

steersman::env_test! {
    async fn no_write_of_an_earlier_leader_comes_after_one_of_a_later_leader(env: Env) -> anyhow::Result<()> {
        let env = with_journal(env)?;
        let namespace = env.namespace("election").await?;
        let (kubeconfig, directory) = (env.kubeconfig().await?, tempfile::tempdir()?);
        let history = History::begin(env.client()?, &namespace).await?;
        let mut candidates = Candidates::new("candidates::helper_is_a_candidate");
        for _ in 0..3 {
            candidates.start(&kubeconfig, &namespace, directory.path()).await?;
        }
        let took = |what: &str, since: Instant| println!("{}: the next one leads {:?} after {what}", env.name(), since.elapsed());

        let (leader, token) = candidates.next_leader(None).await?;
        history.until_written(token, WRITES).await?;
        let since = Instant::now();
        candidates.kill(leader)?;
        let (leader, token) = candidates.next_leader(Some(leader)).await?;
        took("kill -9", since);

        history.until_written(token, WRITES).await?;
        let since = Instant::now();
        candidates.signal(leader, "STOP")?;
        let (stopped, old) = (leader, token);
        let (leader, token) = candidates.next_leader(Some(stopped)).await?;
        took("a stop", since);
        history.until_written(token, WRITES).await?;
        candidates.signal(stopped, "CONT")?;
        candidates.loses(stopped, old).await?;

        history.until_written(token, WRITES).await?;
        let since = Instant::now();
        candidates.wire(leader).cut();
        let (cut, old) = (leader, token);
        let (leader, token) = candidates.next_leader(Some(cut)).await?;
        took("a cut", since);
        history.until_written(token, WRITES).await?;
        candidates.wire(cut).mend();
        candidates.loses(cut, old).await?;

        jump(env.client()?, &namespace, async || history.until_written_more(token, WRITES).await).await?;

        let since = Instant::now();
        candidates.release(leader);
        let (_, token) = candidates.next_leader(Some(leader)).await?;
        took("a release, its last write included", since);
        history.until_written(token, WRITES).await?;
        candidates.end().await?;

        judge(&env, &history, &candidates, 5);
        Ok(())
    }
}

/// By the server's own record: of what became of the ledger, and of what was sent if it keeps that.
pub(crate) fn judge(env: &Env, history: &History, candidates: &Candidates, leaders: usize) {
    judge_writes(env, "its watch", &history.writes(), candidates, leaders);
    if let Env::Embedded(embedded) = env {
        let entries = embedded.server().journal().matching(&format!("PATCH configmaps {LEDGER}"));
        let sent: Vec<_> = entries.iter().filter_map(|entry| Write::of_patch(entry.body.as_deref()?)).collect();
        assert!(sent.len() >= history.writes().len() && sent.len() == entries.len());
        judge_writes(env, "the journal", &sent, candidates, leaders);
    }
}

fn judge_writes(env: &Env, by: &str, writes: &[Write], candidates: &Candidates, leaders: usize) {
    let mut tokens: Vec<_> = writes.iter().map(|write| write.token).collect();
    tokens.dedup();
    let late = too_late(writes);
    println!("{}, by {by}: {} writes under {tokens:?}, on their way too long: {late:?}", env.name(), writes.len());
    assert!(tokens.len() >= leaders, "{tokens:?}");
    let untold: Vec<_> = late.iter().filter(|write| !candidates.reported.contains(write)).collect();
    assert_eq!(untold, Vec::<&Write>::new(), "all that was reported: {:?}", candidates.reported);
}
