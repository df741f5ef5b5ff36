//! Tests of three processes that compete for one Lease.
//!
//! Invariant: no write arrives with an old token after a newer one was used, unless its sender has
//! reported the write as in flight.

use super::{
    candidates::{Candidates, LEDGER, skew_renew_time},
    write_history::{History, Write, late_writes_in},
};
use std::time::Instant;
use steersman::testing::{Embedded, Env, TestServer};
use steersman_apiserver::{ApiServer, Journal, Options};

/// Number of writes that shows that a leader works.
pub(crate) const WRITES: usize = 100;

/// Replaces an embedded server by one whose journal keeps request bodies.
pub(crate) fn with_journal(env: Env) -> anyhow::Result<Env> {
    Ok(match env {
        Env::Embedded(_) => {
            let journal = Journal::new(1_000_000).with_bodies(512);
            Env::Embedded(Embedded::new(ApiServer::new(Options {
                journal,
                history: 1_000_000,
                ..Options::default()
            })?))
        }
        real => real,
    })
}

steersman::env_test! {
    async fn no_write_of_an_old_leader_arrives_after_one_of_a_new_leader(env: Env) -> anyhow::Result<()> {
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
        candidates.wait_for_loss(stopped, old).await?;

        history.until_written(token, WRITES).await?;
        let since = Instant::now();
        candidates.proxy(leader).cut();
        let (cut, old) = (leader, token);
        let (leader, token) = candidates.next_leader(Some(cut)).await?;
        took("a cut", since);
        history.until_written(token, WRITES).await?;
        candidates.proxy(cut).restore();
        candidates.wait_for_loss(cut, old).await?;

        skew_renew_time(env.client()?, &namespace, async || history.until_written_more(token, WRITES).await).await?;

        let since = Instant::now();
        candidates.release(leader);
        let (_, token) = candidates.next_leader(Some(leader)).await?;
        took("a release", since);
        history.until_written(token, WRITES).await?;
        candidates.end().await?;

        assert_no_late_writes(&env, &history, &candidates, 5);
        Ok(())
    }
}

/// Checks the invariant by the watch of the ledger.
///
/// Also checks the journal of an embedded server.
pub(crate) fn assert_no_late_writes(
    env: &Env,
    history: &History,
    candidates: &Candidates,
    leaders: usize,
) {
    assert_no_late_writes_in(env, "watch", &history.writes(), candidates, leaders);
    if let Env::Embedded(embedded) = env {
        let entries = embedded
            .server()
            .journal()
            .matching(&format!("PATCH configmaps {LEDGER}"));
        let sent: Vec<_> = entries
            .iter()
            .filter_map(|entry| Write::of_patch(entry.body.as_deref()?))
            .collect();
        assert!(sent.len() >= history.writes().len() && sent.len() == entries.len());
        assert_no_late_writes_in(env, "journal", &sent, candidates, leaders);
    }
}

fn assert_no_late_writes_in(
    env: &Env,
    by: &str,
    writes: &[Write],
    candidates: &Candidates,
    leaders: usize,
) {
    let mut tokens: Vec<_> = writes.iter().map(|write| write.token).collect();
    tokens.dedup();
    let late = late_writes_in(writes);
    println!(
        "{}, by {by}: {} writes under {tokens:?}, late: {late:?}",
        env.name(),
        writes.len()
    );
    assert!(tokens.len() >= leaders, "{tokens:?}");
    let unreported: Vec<_> = late
        .iter()
        .filter(|write| !candidates.reported.contains(write))
        .collect();
    assert_eq!(
        unreported,
        Vec::<&Write>::new(),
        "reported: {:?}",
        candidates.reported
    );
}
