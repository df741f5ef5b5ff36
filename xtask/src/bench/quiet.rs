//! Whether the machine was quiet: how much CPU other processes took while one of ours was measured.
//!
//! From Linux's `/proc`: what all CPUs did, less what we and our finished children used. Both count in ticks of 10 ms.

use std::fs;

/// Others may take this share of one core before a repetition counts as disturbed.
pub(super) const TOLERATED: f64 = 0.10;

/// Ticks forgiven because each counter rounds.
const ROUNDING: u64 = 2;

/// The counters at one moment.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    machine: Machine,
    ours: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Machine {
    /// Ticks all CPUs together worked, or were taken away by the hypervisor.
    busy: u64,
    /// Ticks that passed, on all CPUs together.
    total: u64,
    cpus: u64,
}

impl Reading {
    /// The counters now; nothing on systems that do not have them.
    pub(super) fn now() -> Option<Self> {
        let machine = machine(&fs::read_to_string("/proc/stat").ok()?)?;
        let ours = ours(&fs::read_to_string("/proc/self/stat").ok()?)?;
        Some(Self { machine, ours })
    }

    /// The share of one core that others took since then.
    pub(super) fn others_since(&self, then: &Self) -> f64 {
        let busy = self.machine.busy.saturating_sub(then.machine.busy);
        let ours = self.ours.saturating_sub(then.ours);
        let passed = self.machine.total.saturating_sub(then.machine.total) as f64 / self.machine.cpus as f64;
        let others = busy.saturating_sub(ours).saturating_sub(ROUNDING);
        if others == 0 { 0.0 } else { others as f64 / passed.max(1.0) }
    }
}

/// Reads `/proc/stat`: `cpu user nice system idle iowait irq softirq steal guest guest_nice` and a line for each CPU.
fn machine(text: &str) -> Option<Machine> {
    let mut lines = text.lines().filter(|line| line.starts_with("cpu"));
    let sum = lines.next()?.strip_prefix("cpu ")?;
    // Guests are counted in user and nice already.
    let ticks: Vec<u64> = sum.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq + steal;
    Some(Machine { busy, total: busy + idle + iowait, cpus: (lines.count() as u64).max(1) })
}

/// Reads `/proc/self/stat`: the time of this process and of its children that have ended.
fn ours(text: &str) -> Option<u64> {
    // The program's name, in parentheses, may contain anything.
    let (_, after_name) = text.rsplit_once(')')?;
    // utime, stime, cutime and cstime are the fields 14 to 17, and the name is the second.
    let times: Vec<u64> = after_name.split_whitespace().skip(11).take(4).map_while(|word| word.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 5 50 800 20 1 2 30 7 0\ncpu0 50 0 25 400 10 0 1 15 0 0\n\
                        cpu1 50 5 25 400 10 1 1 15 0 0\nintr 895285 0\nctxt 1245079\n";
    const SELF: &str = "16798 (a) name) R 16789 16789 7342 0 -1 4194304 103 0 0 0 10 20 300 4000 20 0 1 0 143191";

    #[test]
    fn the_machines_counters_are_read() {
        assert_eq!(machine(STAT), Some(Machine { busy: 188, total: 1008, cpus: 2 }));
        assert_eq!(machine("cpu  1 2 3"), None);
        assert_eq!(machine(""), None);
    }

    #[test]
    fn our_own_and_our_childrens_time_is_read() {
        assert_eq!(ours(SELF), Some(4330));
        assert_eq!(ours("1 (x) R 1"), None);
    }

    #[test]
    fn others_take_what_is_busy_without_us() {
        let reading = |busy, total, ours| Reading { machine: Machine { busy, total, cpus: 2 }, ours };
        let then = reading(1000, 10_000, 500);
        let share = |busy, total, ours| reading(busy, total, ours).others_since(&then);
        // One second on two CPUs is 200 ticks.
        assert!((share(1132, 10_200, 600) - 0.30).abs() < 1e-9);
        assert!(share(1102, 10_200, 600).abs() < 1e-9, "two ticks are rounding");
        assert!(share(1090, 10_200, 600).abs() < 1e-9, "our time may be rounded up");
        assert!(share(1000, 10_000, 500).abs() < 1e-9, "no tick passed");
    }
}
