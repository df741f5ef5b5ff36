//! The CPU time that other processes used during a measurement.
//!
//! It is the busy time of all CPUs, less the time of this process, its finished children and the
//! server of the workload. All counters are from Linux's `/proc`, in ticks of 10 ms.

use std::fs;

/// Share of a core that other processes may use before a repetition counts as disturbed.
pub(super) const TOLERATED_SHARE: f64 = 0.10;

/// Ticks to ignore, because each counter is rounded.
const ROUNDING: u64 = 2;

/// The counters at one time.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    machine: Machine,
    ours: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Machine {
    /// Ticks that all CPUs were busy or were taken by the hypervisor.
    busy: u64,
    /// Ticks that have passed, summed over all CPUs.
    total: u64,
    cpus: u64,
}

impl Reading {
    /// Reads the counters. Returns `None` on systems without them.
    ///
    /// The process `server` and its descendants count as our own.
    pub(super) fn now(server: Option<u32>) -> Option<Self> {
        let machine = machine(&fs::read_to_string("/proc/stat").ok()?)?;
        let ours = process(&fs::read_to_string("/proc/self/stat").ok()?)?.ticks;
        let servers = server.map_or(0, |server| tree_ticks(server, &processes()));
        Some(Self {
            machine,
            ours: ours + servers,
        })
    }

    /// Returns the share of a core that other processes have used since `then`.
    pub(super) fn others_since(&self, then: &Self) -> f64 {
        let busy = self.machine.busy.saturating_sub(then.machine.busy);
        let ours = self.ours.saturating_sub(then.ours);
        let passed =
            self.machine.total.saturating_sub(then.machine.total) as f64 / self.machine.cpus as f64;
        let others = busy.saturating_sub(ours).saturating_sub(ROUNDING);
        if others == 0 {
            0.0
        } else {
            others as f64 / passed.max(1.0)
        }
    }
}

/// Parses `/proc/stat`: `cpu user nice system idle iowait irq softirq steal guest guest_nice`, then
/// a line for each CPU.
fn machine(text: &str) -> Option<Machine> {
    let mut lines = text.lines().filter(|line| line.starts_with("cpu"));
    let sum = lines.next()?.strip_prefix("cpu ")?;
    // The time of guests is included in user and nice.
    let ticks: Vec<u64> = sum
        .split_whitespace()
        .take(8)
        .map_while(|word| word.parse().ok())
        .collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq + steal;
    Some(Machine {
        busy,
        total: busy + idle + iowait,
        cpus: (lines.count() as u64).max(1),
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    id: u32,
    parent: u32,
    /// Time of the process and of its finished children.
    ticks: u64,
}

/// Parses `/proc/PID/stat`.
fn process(text: &str) -> Option<Process> {
    // The name of the program, in parentheses, may contain parentheses and spaces.
    let (before_name, after_name) = text.rsplit_once(')')?;
    let id = before_name.split_whitespace().next()?.parse().ok()?;
    // Field 2 is the name, 4 the parent, 14 to 17 are utime, stime, cutime and cstime.
    let fields: Vec<&str> = after_name.split_whitespace().take(15).collect();
    let times: Vec<u64> = fields
        .get(11..15)?
        .iter()
        .map_while(|word| word.parse().ok())
        .collect();
    (times.len() == 4).then_some(())?;
    Some(Process {
        id,
        parent: fields[1].parse().ok()?,
        ticks: times.iter().sum(),
    })
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = entries.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .bytes()
            .all(|byte| byte.is_ascii_digit())
    });
    numbered
        .filter_map(|entry| process(&fs::read_to_string(entry.path().join("stat")).ok()?))
        .collect()
}

/// Returns the ticks of a process and its descendants.
fn tree_ticks(root: u32, all: &[Process]) -> u64 {
    let own: u64 = all
        .iter()
        .filter(|process| process.id == root)
        .map(|process| process.ticks)
        .sum();
    own + all
        .iter()
        .filter(|process| process.parent == root)
        .map(|child| tree_ticks(child.id, all))
        .sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 5 50 800 20 1 2 30 7 0\ncpu0 50 0 25 400 10 0 1 15 0 0\n\
                        cpu1 50 5 25 400 10 1 1 15 0 0\nintr 895285 0\nctxt 1245079\n";
    const SELF: &str =
        "16798 (a) name) R 16789 16789 7342 0 -1 4194304 103 0 0 0 10 20 300 4000 20 0 1 0 143191";

    #[test]
    fn the_counters_of_the_machine_are_parsed() {
        assert_eq!(
            machine(STAT),
            Some(Machine {
                busy: 188,
                total: 1008,
                cpus: 2
            })
        );
        assert_eq!(machine("cpu  1 2 3"), None);
        assert_eq!(machine(""), None);
    }

    #[test]
    fn the_time_of_a_process_includes_its_finished_children() {
        assert_eq!(
            process(SELF),
            Some(Process {
                id: 16798,
                parent: 16789,
                ticks: 4330
            })
        );
        assert_eq!(process("1 (x) R 1"), None);
    }

    #[test]
    fn the_time_of_a_server_includes_its_descendants() {
        let process = |id, parent, ticks| Process { id, parent, ticks };
        let all = [
            process(1, 0, 1),
            process(7, 1, 10),
            process(8, 7, 100),
            process(9, 8, 1000),
            process(5, 1, 5),
        ];
        assert_eq!(tree_ticks(7, &all), 1110);
        assert_eq!(tree_ticks(6, &all), 0);
    }

    #[test]
    fn other_processes_used_the_busy_time_that_is_not_our_own() {
        let reading = |busy, total, ours| Reading {
            machine: Machine {
                busy,
                total,
                cpus: 2,
            },
            ours,
        };
        let then = reading(1000, 10_000, 500);
        let share = |busy, total, ours| reading(busy, total, ours).others_since(&then);
        // One second on two CPUs is 200 ticks.
        assert!((share(1132, 10_200, 600) - 0.30).abs() < 1e-9);
        assert!(
            share(1102, 10_200, 600).abs() < 1e-9,
            "two ticks are rounding"
        );
        assert!(
            share(1090, 10_200, 600).abs() < 1e-9,
            "our time may be rounded up"
        );
        assert!(share(1000, 10_000, 500).abs() < 1e-9, "no tick passed");
    }
}
