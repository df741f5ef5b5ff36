//! Signals, in a process of its own: this binary again.

use crate::support::{builder, server};
use std::{
    env,
    future::pending,
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
};
use steersman::manager::{RunContext, Stage, signals};

const PREFIX: &str = "signals: ";

#[tokio::test]
#[ignore = "a helper: started in a process of its own, which is then told to stop"]
async fn helper_runs_until_a_signal() -> anyhow::Result<()> {
    let Ok(kind) = env::var("STEERSMAN_SIGNALS") else { return Ok(()) };
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
        if kind == "polite" { Ok(()) } else { pending().await }
    })?;
    if fails {
        manager.add(Stage::Other, "failing", async |_cx: RunContext| Err(anyhow::anyhow!("no luck")))?;
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
            .args(["--ignored", "--exact", "signals::helper_runs_until_a_signal", "--nocapture"])
            .env("STEERSMAN_SIGNALS", kind)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or_else(|| anyhow::anyhow!("no output"))?;
        Ok(Self { process, output: BufReader::new(output).lines() })
    }

    fn until_it_says(&mut self, what: &str) -> anyhow::Result<()> {
        for line in self.output.by_ref() {
            if line?.split_once(PREFIX).is_some_and(|(_, said)| said == what) {
                return Ok(());
            }
        }
        anyhow::bail!("it has ended without saying {what}")
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let process = self.process.id().to_string();
        let sent = Command::new("/bin/sh").args(["-c", "kill -s $0 $1", name, &process]).status()?;
        anyhow::ensure!(sent.success(), "{name} was not sent");
        Ok(())
    }

    fn ends(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.process.wait()?)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // What has ended already is no matter.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_first_signal_stops_everything_in_order() -> anyhow::Result<()> {
    for signal in ["TERM", "INT"] {
        let mut program = Program::start("polite")?;
        program.until_it_says("up")?;
        program.signal(signal)?;
        program.until_it_says("stopping")?;
        program.until_it_says("stopped")?;
        assert_eq!(program.ends()?.code(), Some(0), "{signal}");
    }
    Ok(())
}

#[test]
fn the_second_signal_ends_the_process_at_once_with_status_1() -> anyhow::Result<()> {
    for (first, second) in [("TERM", "TERM"), ("TERM", "INT"), ("INT", "TERM")] {
        let mut program = Program::start("deaf")?;
        program.until_it_says("up")?;
        program.signal(first)?;
        program.until_it_says("stopping")?;
        // It would wait for ever.
        program.signal(second)?;
        assert_eq!(program.ends()?.code(), Some(1), "{first} and {second}");
        assert!(program.until_it_says("stopped").is_err());
    }
    Ok(())
}

/// The helper's runtime has one thread, which never returns to the runtime.
#[test]
fn the_second_signal_ends_a_process_whose_runtime_is_blocked() -> anyhow::Result<()> {
    let mut program = Program::start("blocked")?;
    program.until_it_says("up")?;
    // Two signals of one kind could be merged into one.
    program.signal("TERM")?;
    program.signal("INT")?;
    assert_eq!(program.ends()?.code(), Some(1));
    Ok(())
}

/// Nobody has told it to stop: somebody has failed.
#[test]
fn while_it_stops_by_itself_signals_count_as_well() -> anyhow::Result<()> {
    let mut program = Program::start("fails")?;
    program.until_it_says("stopping")?;
    program.signal("TERM")?;
    // The first one is heard, some time: until then another one is no second one.
    let ended = loop {
        if let Some(ended) = program.process.try_wait()? {
            break ended;
        }
        program.signal("TERM").ok();
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert_eq!(ended.code(), Some(1));
    Ok(())
}
