//! The cells of a pod: what its containers together come to.

use super::age;
use super::cells::{NONE, has_condition, items, number, text};
use crate::clock::Clock;
use serde_json::Value;
use std::collections::HashSet;

/// What the containers of a pod come to.
#[derive(Debug, Default)]
struct Summary {
    ready: usize,
    total: usize,
    status: String,
    restarts: i64,
    /// When a container last ended.
    ended: String,
}

pub(super) fn ready(pod: &Value, _: &Clock) -> Value {
    let it = summary(pod);
    format!("{}/{}", it.ready, it.total).into()
}

pub(super) fn status(pod: &Value, _: &Clock) -> Value {
    summary(pod).status.into()
}

pub(super) fn restarts(pod: &Value, clock: &Clock) -> Value {
    let it = summary(pod);
    match it.ended.as_str() {
        ended if it.restarts > 0 && !ended.is_empty() => {
            format!("{} ({} ago)", it.restarts, age::age(&ended.into(), clock.now())).into()
        }
        _ => it.restarts.to_string().into(),
    }
}

pub(super) fn ip(pod: &Value, _: &Clock) -> Value {
    let ip = [text(pod, "/status/podIPs/0/ip"), text(pod, "/status/podIP"), NONE];
    ip.into_iter().find(|it| !it.is_empty()).into()
}

pub(super) fn gates(pod: &Value, _: &Clock) -> Value {
    let gates = items(pod, "/spec/readinessGates");
    let open = gates.iter().filter(|gate| has_condition(pod, text(gate, "/conditionType"))).count();
    if gates.is_empty() { NONE.into() } else { format!("{open}/{}", gates.len()).into() }
}

fn summary(pod: &Value) -> Summary {
    let phase = text(pod, "/status/phase");
    let reason = text(pod, "/status/reason");
    let mut it = Summary {
        total: items(pod, "/spec/containers").len(),
        status: if reason.is_empty() { phase } else { reason }.into(),
        ..Summary::default()
    };
    if items(pod, "/status/conditions").iter().any(|it| text(it, "/reason") == "SchedulingGated") {
        it.status = "SchedulingGated".into();
    }
    if !initializing(pod, &mut it) || has_condition(pod, "Initialized") {
        running(pod, &mut it);
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if reason == "NodeLost" {
            it.status = "Unknown".into();
        } else if phase != "Succeeded" && phase != "Failed" {
            it.status = "Terminating".into();
        }
    }
    it
}

/// Goes through the init containers up to the one that is not done; says whether there is one.
fn initializing(pod: &Value, it: &mut Summary) -> bool {
    let specs = items(pod, "/spec/initContainers");
    // One that restarts always runs beside the others: a sidecar.
    let sidecars = || specs.iter().filter(|it| text(it, "/restartPolicy") == "Always");
    let names: HashSet<_> = sidecars().map(|it| text(it, "/name")).collect();
    it.total += sidecars().count();
    let mut before = (0, String::new());
    for (index, container) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
        let sidecar = names.contains(text(container, "/name"));
        count_restarts(container, it);
        if sidecar {
            before = (it.restarts, it.ended.clone());
        }
        let ended = container.pointer("/state/terminated");
        if ended.is_some_and(|ended| number(ended, "/exitCode") == 0) {
            continue;
        }
        if sidecar && container["started"] == true {
            it.ready += usize::from(container["ready"] == true);
            continue;
        }
        it.status = match (ended, text(container, "/state/waiting/reason")) {
            (Some(ended), _) => format!("Init:{}", end(ended)),
            (None, "" | "PodInitializing") => format!("Init:{index}/{}", specs.len()),
            (None, reason) => format!("Init:{reason}"),
        };
        return true;
    }
    // What init containers took to come through no longer counts once they have.
    (it.restarts, it.ended) = before;
    false
}

fn running(pod: &Value, it: &mut Summary) {
    let (mut runs, mut failed) = (false, None);
    for container in items(pod, "/status/containerStatuses").iter().rev() {
        count_restarts(container, it);
        let waiting = text(container, "/state/waiting/reason");
        if !waiting.is_empty() {
            it.status = waiting.into();
        } else if let Some(ended) = container.pointer("/state/terminated") {
            it.status = end(ended);
            if number(ended, "/exitCode") != 0 {
                failed = Some(it.status.clone());
            }
        } else if container["ready"] == true && container.pointer("/state/running").is_some() {
            runs = true;
            it.ready += 1;
        }
    }
    if it.status == "Completed" {
        it.status = match failed {
            _ if runs && has_condition(pod, "Ready") => "Running".into(),
            Some(failed) => failed,
            None if runs => "NotReady".into(),
            None => "Completed".into(),
        };
    }
}

fn count_restarts(container: &Value, it: &mut Summary) {
    it.restarts += number(container, "/restartCount");
    // Time stamps in UTC are ordered as texts.
    let ended = text(container, "/lastState/terminated/finishedAt");
    if it.ended.as_str() < ended {
        it.ended = ended.into();
    }
}

fn end(ended: &Value) -> String {
    match (text(ended, "/reason"), number(ended, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(ended, "/exitCode")),
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
    async fn a_pod_that_begins_shows_how_far_its_init_containers_are() {
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
    async fn a_pod_of_which_nobody_reports_shows_its_phase() {
        let pod = json!({"spec": {"containers": [{}]}, "status": {"phase": "Pending"}});
        assert_eq!((ready(&pod, &clock()), status(&pod, &clock())), (json!("0/1"), json!("Pending")));
        assert_eq!((restarts(&pod, &clock()), ip(&pod, &clock())), (json!("0"), json!(NONE)));
    }
}
