//! Tests of signals, in a child process that runs this binary.

use crate::support::{builder, server};
use futures::poll;
use std::{
    env,
    future::pending,
    io::{self, BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};
use steersman::{
    logging::{Format, subscriber},
    manager::{RunContext, Stage, signals},
};
use tracing::subscriber::set_global_default;

const PREFIX: &str = "signals: ";

/// Timeout for a process that ignores a signal. Long enough for a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

#[tokio::test]
#[ignore = "a helper: started in a process of its own, which is then told to stop"]
async fn helper_runs_until_a_signal() -> anyhow::Result<()> {
    let Ok(kind) = env::var("STEERSMAN_SIGNALS") else {
        return Ok(());
    };
    if kind == "dropped" || kind == "replaced" {
        let mut dropped = Box::pin(signals::shutdown());
        assert!(poll!(&mut dropped).is_pending());
        drop(dropped);
        let (log, _) = subscriber(Format::Human, "warn", io::stdout)?;
        set_global_default(log)?;
        if kind == "replaced" {
            let mut replacement = Box::pin(signals::shutdown());
            assert!(poll!(&mut replacement).is_pending());
            println!("{PREFIX}up");
            replacement.await;
            println!("{PREFIX}stopping");
        } else {
            println!("{PREFIX}up");
        }
        return pending().await;
    }
    let fails = kind == "fails";
    let server = server();
    let manager = builder(&server).grace_period(None).build()?;
    manager.add(Stage::Leader, "work", async move |cx: RunContext| {
        println!("{PREFIX}up");
        if kind == "blocked" {
            loop {
                std::thread::park();
            }
        }
        cx.stopped().await;
        println!("{PREFIX}stopping");
        if kind == "polite" {
            Ok(())
        } else {
            pending().await
        }
    })?;
    if fails {
        manager.add(Stage::Other, "failing", async |_cx: RunContext| {
            Err(anyhow::anyhow!("no luck"))
        })?;
    }
    manager.run_until(signals::shutdown()).await?;
    println!("{PREFIX}stopped");
    Ok(())
}

struct Program {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(kind: &str) -> anyhow::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args([
                "--ignored",
                "--exact",
                "signals::helper_runs_until_a_signal",
                "--nocapture",
            ])
            .env("STEERSMAN_SIGNALS", kind)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process
            .stdout
            .take()
            .ok_or_else(|| anyhow::anyhow!("no output"))?;
        Ok(Self {
            process,
            output: BufReader::new(output).lines(),
        })
    }

    fn wait_for_line(&mut self, text: &str) -> anyhow::Result<()> {
        for line in self.output.by_ref() {
            if line?
                .split_once(PREFIX)
                .is_some_and(|(_, printed)| printed == text)
            {
                return Ok(());
            }
        }
        anyhow::bail!("the process has ended without printing {text}")
    }

    /// Returns the remaining lines of a process that has ended.
    fn rest(&mut self) -> anyhow::Result<String> {
        let lines: Result<Vec<_>, _> = self.output.by_ref().collect();
        Ok(lines?.join("\n"))
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let process = self.process.id().to_string();
        let sent = Command::new("/bin/sh")
            .args(["-c", "kill -s $0 $1", name, &process])
            .status()?;
        anyhow::ensure!(sent.success(), "{name} was not sent");
        Ok(())
    }

    fn ends(&mut self) -> anyhow::Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            anyhow::ensure!(begun.elapsed() < LIMIT, "the signal has no effect");
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails for an ended process, which is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_first_signal_stops_everything_in_order() -> anyhow::Result<()> {
    for signal in ["TERM", "INT"] {
        let mut program = Program::start("polite")?;
        program.wait_for_line("up")?;
        program.signal(signal)?;
        program.wait_for_line("stopping")?;
        program.wait_for_line("stopped")?;
        assert_eq!(program.ends()?.code(), Some(0), "{signal}");
    }
    Ok(())
}

#[test]
fn the_second_signal_exits_with_status_1() -> anyhow::Result<()> {
    for (first, second) in [("TERM", "TERM"), ("TERM", "INT"), ("INT", "TERM")] {
        let mut program = Program::start("unresponsive")?;
        program.wait_for_line("up")?;
        program.signal(first)?;
        program.wait_for_line("stopping")?;
        // Otherwise it would wait forever.
        program.signal(second)?;
        assert_eq!(program.ends()?.code(), Some(1), "{first} and {second}");
        assert!(program.wait_for_line("stopped").is_err());
    }
    Ok(())
}

/// The helper's runtime has one thread, which never returns to the runtime.
#[test]
fn the_second_signal_ends_a_process_whose_runtime_is_blocked() -> anyhow::Result<()> {
    let mut program = Program::start("blocked")?;
    program.wait_for_line("up")?;
    // Two equal signals could be merged into one.
    program.signal("TERM")?;
    program.signal("INT")?;
    assert_eq!(program.ends()?.code(), Some(1));
    Ok(())
}

/// The manager stops because a runnable has failed, without a signal.
#[test]
fn signals_count_while_the_manager_stops_after_a_failure() -> anyhow::Result<()> {
    let mut program = Program::start("fails")?;
    program.wait_for_line("stopping")?;
    program.signal("TERM")?;
    // A second signal counts only once the first was handled, so it is repeated.
    let ended = loop {
        if let Some(ended) = program.process.try_wait()? {
            break ended;
        }
        program.signal("TERM").ok();
        sleep(Duration::from_millis(20));
    };
    assert_eq!(ended.code(), Some(1));
    Ok(())
}

#[test]
fn a_signal_without_a_waiting_future_has_its_default_effect() -> anyhow::Result<()> {
    for (signal, status) in [("TERM", 143), ("INT", 130)] {
        let mut program = Program::start("dropped")?;
        program.wait_for_line("up")?;
        program.signal(signal)?;
        assert_eq!(program.ends()?.code(), Some(status), "{signal}");
        let log = program.rest()?;
        assert!(log.contains("no future waits for the signal"), "{log}");
        assert!(!log.contains("second signal"), "{log}");
    }
    Ok(())
}

#[test]
fn a_dropped_future_does_not_consume_signals() -> anyhow::Result<()> {
    let mut program = Program::start("replaced")?;
    program.wait_for_line("up")?;
    program.signal("TERM")?;
    program.wait_for_line("stopping")?;
    program.signal("TERM")?;
    assert_eq!(program.ends()?.code(), Some(1));
    let log = program.rest()?;
    assert!(log.contains("second signal, exiting at once"), "{log}");
    Ok(())
}
