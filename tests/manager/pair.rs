//! Two processes, each with a manager and a controller that writes: whichever is stopped and continued, cut off, or killed, no reconcile of it writes under an old
//! token after a newer one was used, unless it has said that the write was on its way. Who has lost ends, and is started anew, as a kubelet would.

use crate::{
    candidates::{Candidates, PREFIX, Part, jump, write_once},
    history::History,
    processes::{WRITES, judge, with_journal},
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
    let Some(Part { config, namespace, options, stop }) = Part::of_this_process().await? else { return Ok(()) };
    let manager = Manager::builder(config).leader_election_with(options).build()?;
    let (client, number, token) = (manager.client(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let led = token.clone();
    let reconciler = reconcile::from_fn(move |request: Request, _| {
        let (client, number, token) = (client.clone(), number.clone(), token.clone());
        async move {
            let fence = Fence::current().ok_or_else(|| anyhow::anyhow!("it does not lead"))?;
            if token.swap(fence.token(), SeqCst) == 0 {
                println!("{PREFIX}leads {}", fence.token());
            }
            let number = number.fetch_add(1, SeqCst) + 1;
            write_once(&client, &fence, request.namespace().unwrap_or_default(), number).await;
            Ok(Outcome::requeue_after(Duration::from_millis(1)))
        }
    });
    manager.controller("ledger").reconcile(reconciler)?.queue().add(Request::new(&namespace, "ledger"));
    if let Err(error) = manager.run_until(stop.cancelled()).await {
        println!("{PREFIX}lost {} {error}", led.load(SeqCst));
    }
    println!("{PREFIX}ends");
    Ok(())
}

steersman::env_test! {
    async fn no_reconcile_of_an_earlier_leader_writes_after_one_of_a_later_leader(env: Env) -> anyhow::Result<()> {
        let env = with_journal(env)?;
        let namespace = env.namespace("pair").await?;
        let (kubeconfig, directory) = (env.kubeconfig().await?, tempfile::tempdir()?);
        let history = History::begin(env.client()?, &namespace).await?;
        let mut candidates = Candidates::new("pair::helper_is_a_manager");
        for _ in 0..2 {
            candidates.start(&kubeconfig, &namespace, directory.path()).await?;
        }
        let (mut leader, mut token) = candidates.next_leader(None).await?;
        for what in ["a stop", "a cut", "kill -9"] {
            history.until_written(token, WRITES).await?;
            let since = Instant::now();
            match what {
                "a stop" => candidates.signal(leader, "STOP")?,
                "a cut" => candidates.wire(leader).cut(),
                _ => candidates.kill(leader)?,
            }
            let (gone, old) = (leader, token);
            (leader, token) = candidates.next_leader(Some(gone)).await?;
            println!("{}: the other one reconciles {:?} after {what}", env.name(), since.elapsed());
            history.until_written(token, WRITES).await?;
            match what {
                "a stop" => candidates.signal(gone, "CONT")?,
                "a cut" => candidates.wire(gone).mend(),
                _ => {}
            }
            if what != "kill -9" {
                candidates.loses(gone, old).await?;
            }
            candidates.start(&kubeconfig, &namespace, directory.path()).await?;
        }

        jump(env.client()?, &namespace, async || history.until_written_more(token, WRITES).await).await?;

        let since = Instant::now();
        candidates.release(leader);
        let (_, token) = candidates.next_leader(Some(leader)).await?;
        println!("{}: the other one reconciles {:?} after it was told to stop", env.name(), since.elapsed());
        history.until_written(token, WRITES).await?;
        candidates.end().await?;
        judge(&env, &history, &candidates, 5);
        Ok(())
    }
}
