//! Tests of two processes with a manager and a writing controller each.
//!
//! The processes are paused, disconnected and killed. Invariant: no reconcile writes with an old
//! token after a newer one was used, unless its process has reported the write as in flight. A
//! process that loses the lease exits and is restarted, as a kubelet would do.

use crate::{
    candidate_processes::{WRITES, assert_no_late_writes, with_journal},
    candidates::{CandidateConfig, Candidates, PREFIX, skew_renew_time, write_once},
    write_history::History,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use steersman::{
    manager::election::Fence,
    prelude::*,
    testing::{Env, TestServer},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a helper: started in processes of its own, which are then killed, stopped and cut off"]
async fn helper_is_a_manager() -> anyhow::Result<()> {
    let Some(CandidateConfig {
        config,
        namespace,
        options,
        stop,
    }) = CandidateConfig::of_this_process().await?
    else {
        return Ok(());
    };
    let manager = Manager::builder(config)
        .leader_election_with(options)
        .build()?;
    let (client, number, token) = (
        manager.client(),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let led = token.clone();
    let reconciler = reconcile::from_fn(move |request: Request, _| {
        let (client, number, token) = (client.clone(), number.clone(), token.clone());
        async move {
            let fence = Fence::current().ok_or_else(|| anyhow::anyhow!("not the leader"))?;
            if token.swap(fence.token(), SeqCst) == 0 {
                println!("{PREFIX}leads {}", fence.token());
            }
            let number = number.fetch_add(1, SeqCst) + 1;
            write_once(
                &client,
                &fence,
                request.namespace().unwrap_or_default(),
                number,
            )
            .await;
            Ok(Outcome::requeue_after(Duration::from_millis(1)))
        }
    });
    manager
        .controller("ledger")
        .reconcile(reconciler)?
        .queue()
        .add(Request::new(&namespace, "ledger"));
    if let Err(error) = manager.run_until(stop.cancelled()).await {
        println!("{PREFIX}lost {} {error}", led.load(SeqCst));
    }
    println!("{PREFIX}ends");
    Ok(())
}

steersman::env_test! {
    async fn no_reconcile_of_an_old_leader_writes_after_one_of_a_new_leader(env: Env) -> anyhow::Result<()> {
        let env = with_journal(env)?;
        let namespace = env.namespace("pair").await?;
        let (kubeconfig, directory) = (env.kubeconfig().await?, tempfile::tempdir()?);
        let history = History::begin(env.client()?, &namespace).await?;
        let mut candidates = Candidates::new("two_managers::helper_is_a_manager");
        for _ in 0..2 {
            candidates.start(&kubeconfig, &namespace, directory.path()).await?;
        }
        let (mut leader, mut token) = candidates.next_leader(None).await?;
        for what in ["a stop", "a cut", "kill -9"] {
            history.until_written(token, WRITES).await?;
            let since = Instant::now();
            match what {
                "a stop" => candidates.signal(leader, "STOP")?,
                "a cut" => candidates.proxy(leader).cut(),
                _ => candidates.kill(leader)?,
            }
            let (gone, old) = (leader, token);
            (leader, token) = candidates.next_leader(Some(gone)).await?;
            println!("{}: the standby reconciles {:?} after {what}", env.name(), since.elapsed());
            history.until_written(token, WRITES).await?;
            match what {
                "a stop" => candidates.signal(gone, "CONT")?,
                "a cut" => candidates.proxy(gone).restore(),
                _ => {}
            }
            if what != "kill -9" {
                candidates.wait_for_loss(gone, old).await?;
            }
            candidates.start(&kubeconfig, &namespace, directory.path()).await?;
        }

        skew_renew_time(env.client()?, &namespace, async || history.until_written_more(token, WRITES).await).await?;

        let since = Instant::now();
        candidates.release(leader);
        let (_, token) = candidates.next_leader(Some(leader)).await?;
        println!("{}: the standby reconciles {:?} after the stop", env.name(), since.elapsed());
        history.until_written(token, WRITES).await?;
        candidates.end().await?;
        assert_no_late_writes(&env, &history, &candidates, 5);
        Ok(())
    }
}
