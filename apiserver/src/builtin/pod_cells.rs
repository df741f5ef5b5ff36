//! Cells of pods, which summarize their containers.

use super::age;
use super::cells::{NONE, has_condition, items, number, text};
use crate::clock::Clock;
use serde_json::Value;
use std::collections::HashSet;

/// Summary of a pod's containers.
#[derive(Debug, Default)]
struct Summary {
    ready: usize,
    total: usize,
    status: String,
    restarts: i64,
    /// Time when a container last terminated.
    last_terminated: String,
}

pub(super) fn ready(pod: &Value, _: &Clock) -> Value {
    let summary = summarize(pod);
    format!("{}/{}", summary.ready, summary.total).into()
}

pub(super) fn status(pod: &Value, _: &Clock) -> Value {
    summarize(pod).status.into()
}

pub(super) fn restarts(pod: &Value, clock: &Clock) -> Value {
    let summary = summarize(pod);
    match summary.last_terminated.as_str() {
        last_terminated if summary.restarts > 0 && !last_terminated.is_empty() => format!(
            "{} ({} ago)",
            summary.restarts,
            age::age(&last_terminated.into(), clock.now())
        )
        .into(),
        _ => summary.restarts.to_string().into(),
    }
}

pub(super) fn ip(pod: &Value, _: &Clock) -> Value {
    let ip = [
        text(pod, "/status/podIPs/0/ip"),
        text(pod, "/status/podIP"),
        NONE,
    ];
    ip.into_iter().find(|summary| !summary.is_empty()).into()
}

pub(super) fn gates(pod: &Value, _: &Clock) -> Value {
    let gates = items(pod, "/spec/readinessGates");
    let open = gates
        .iter()
        .filter(|gate| has_condition(pod, text(gate, "/conditionType")))
        .count();
    if gates.is_empty() {
        NONE.into()
    } else {
        format!("{open}/{}", gates.len()).into()
    }
}

fn summarize(pod: &Value) -> Summary {
    let phase = text(pod, "/status/phase");
    let reason = text(pod, "/status/reason");
    let mut summary = Summary {
        total: items(pod, "/spec/containers").len(),
        status: if reason.is_empty() { phase } else { reason }.into(),
        ..Summary::default()
    };
    if items(pod, "/status/conditions")
        .iter()
        .any(|summary| text(summary, "/reason") == "SchedulingGated")
    {
        summary.status = "SchedulingGated".into();
    }
    if !initializing(pod, &mut summary) || has_condition(pod, "Initialized") {
        running(pod, &mut summary);
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if reason == "NodeLost" {
            summary.status = "Unknown".into();
        } else if phase != "Succeeded" && phase != "Failed" {
            summary.status = "Terminating".into();
        }
    }
    summary
}

/// Evaluates the init containers up to the first incomplete one. Returns whether there is one.
fn initializing(pod: &Value, summary: &mut Summary) -> bool {
    let specs = items(pod, "/spec/initContainers");
    // An init container that always restarts is a sidecar.
    let sidecars = || {
        specs
            .iter()
            .filter(|summary| text(summary, "/restartPolicy") == "Always")
    };
    let names: HashSet<_> = sidecars().map(|summary| text(summary, "/name")).collect();
    summary.total += sidecars().count();
    let mut before = (0, String::new());
    for (index, container) in items(pod, "/status/initContainerStatuses")
        .iter()
        .enumerate()
    {
        let sidecar = names.contains(text(container, "/name"));
        count_restarts(container, summary);
        if sidecar {
            before = (summary.restarts, summary.last_terminated.clone());
        }
        let last_terminated = container.pointer("/state/terminated");
        if last_terminated.is_some_and(|last_terminated| number(last_terminated, "/exitCode") == 0)
        {
            continue;
        }
        if sidecar && container["started"] == true {
            summary.ready += usize::from(container["ready"] == true);
            continue;
        }
        summary.status = match (last_terminated, text(container, "/state/waiting/reason")) {
            (Some(last_terminated), _) => format!("Init:{}", termination_reason(last_terminated)),
            (None, "" | "PodInitializing") => format!("Init:{index}/{}", specs.len()),
            (None, reason) => format!("Init:{reason}"),
        };
        return true;
    }
    // Restarts of completed init containers are not counted.
    (summary.restarts, summary.last_terminated) = before;
    false
}

fn running(pod: &Value, summary: &mut Summary) {
    let (mut runs, mut failed) = (false, None);
    for container in items(pod, "/status/containerStatuses").iter().rev() {
        count_restarts(container, summary);
        let waiting = text(container, "/state/waiting/reason");
        if !waiting.is_empty() {
            summary.status = waiting.into();
        } else if let Some(last_terminated) = container.pointer("/state/terminated") {
            summary.status = termination_reason(last_terminated);
            if number(last_terminated, "/exitCode") != 0 {
                failed = Some(summary.status.clone());
            }
        } else if container["ready"] == true && container.pointer("/state/running").is_some() {
            runs = true;
            summary.ready += 1;
        }
    }
    if summary.status == "Completed" {
        summary.status = match failed {
            _ if runs && has_condition(pod, "Ready") => "Running".into(),
            Some(failed) => failed,
            None if runs => "NotReady".into(),
            None => "Completed".into(),
        };
    }
}

fn count_restarts(container: &Value, summary: &mut Summary) {
    summary.restarts += number(container, "/restartCount");
    // Timestamps in UTC sort as text.
    let last_terminated = text(container, "/lastState/terminated/finishedAt");
    if summary.last_terminated.as_str() < last_terminated {
        summary.last_terminated = last_terminated.into();
    }
}

fn termination_reason(last_terminated: &Value) -> String {
    match (
        text(last_terminated, "/reason"),
        number(last_terminated, "/signal"),
    ) {
        ("", 0) => format!("ExitCode:{}", number(last_terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn clock() -> Clock {
        Clock::new("2026-01-02T03:04:05Z".parse().ok())
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_pod_counts_its_ready_containers_and_restarts() {
        let pod = json!({
            "spec": {"containers": [{}, {}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"ready": true, "restartCount": 2, "state": {"running": {}},
                 "lastState": {"terminated": {"finishedAt": "2026-01-02T02:59:05Z"}}},
                {"ready": false, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ]},
        });
        assert_eq!(ready(&pod, &clock()), "1/2");
        assert_eq!(status(&pod, &clock()), "CrashLoopBackOff");
        assert_eq!(restarts(&pod, &clock()), "3 (5m ago)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_starting_pod_shows_the_progress_of_its_init_containers() {
        let mut pod = json!({
            "spec": {"containers": [{}], "initContainers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0}}},
                {"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}},
            ]},
        });
        assert_eq!(status(&pod, &clock()), "Init:1/2");
        pod["status"]["initContainerStatuses"][1]["state"] = json!({"terminated": {"exitCode": 3}});
        assert_eq!(status(&pod, &clock()), "Init:ExitCode:3");
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        assert_eq!(status(&pod, &clock()), "Terminating");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_without_container_statuses_shows_its_phase() {
        let pod = json!({"spec": {"containers": [{}]}, "status": {"phase": "Pending"}});
        assert_eq!(
            (ready(&pod, &clock()), status(&pod, &clock())),
            (json!("0/1"), json!("Pending"))
        );
        assert_eq!(
            (restarts(&pod, &clock()), ip(&pod, &clock())),
            (json!("0"), json!(NONE))
        );
    }
}
