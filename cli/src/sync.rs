//! Shows the progress of the cache.
//!
//! On a terminal this is one changing line, otherwise one line per kind.

use crate::terminal::Terminal;
use std::{collections::HashMap, time::Duration};
use steersman::{
    cache::{Cache, InformerReport, InformerState},
    manager::{ManagerError, ManagerHandle, Stage},
};
use tokio::{select, task::spawn_blocking, time::interval};

/// Interval of updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// Shows the progress until all informers are synced or have failed.
pub(crate) fn show_progress(
    manager: &ManagerHandle,
    terminal: &Terminal,
) -> Result<(), ManagerError> {
    let (cache, terminal) = (manager.cache(), terminal.clone());
    manager.add(Stage::Server, "progress of the cache", async move |cx| {
        cx.ready();
        select! {
            () = cx.stopped() => {}
            () = until_synced(cache, &terminal) => {}
        }
        if Terminal::is_terminal() {
            terminal.show(None);
        }
        Ok(())
    })
}

async fn until_synced(cache: Cache, terminal: &Terminal) {
    let (mut ticks, mut logged_states) = (interval(UPDATE_INTERVAL), HashMap::new());
    loop {
        ticks.tick().await;
        let cache = cache.clone();
        // Reads every object.
        let Ok(reports) = spawn_blocking(move || cache.informers()).await else {
            return;
        };
        let waiting = reports
            .iter()
            .filter(|report| !has_result(report))
            .map(name)
            .collect::<Vec<_>>();
        for report in &reports {
            log_state_change(report, &mut logged_states);
        }
        if waiting.is_empty() {
            return;
        }
        if Terminal::is_terminal() {
            terminal.show(Some(&summary(reports.len(), &waiting)));
        }
    }
}

/// Returns the progress as one line.
fn summary(all: usize, waiting: &[String]) -> String {
    let done = all - waiting.len();
    let others = match waiting {
        [_] | [] => String::new(),
        [_, others @ ..] => format!(" and {} more", others.len()),
    };
    format!(
        "syncing: {done} of {all} kinds, waiting for {}{others}",
        waiting.first().map_or("", String::as_str)
    )
}

/// Returns whether an informer is synced or has reported why not.
fn has_result(report: &InformerReport) -> bool {
    !matches!(report.state, InformerState::Idle | InformerState::Starting)
}

fn name(report: &InformerReport) -> String {
    match report.scope.as_str() {
        "" => report.gvk.kind.clone(),
        scope => format!("{} ({scope})", report.gvk.kind),
    }
}

/// Logs the state of an informer if it has changed.
fn log_state_change(report: &InformerReport, logged_states: &mut HashMap<String, String>) {
    let (kind, objects) = (name(report), report.stats.objects);
    let state = match &report.state {
        InformerState::Synced => "synced".to_owned(),
        InformerState::KindNotFound { error } | InformerState::Degraded { error, .. } => {
            error.clone()
        }
        _ => return,
    };
    if logged_states.get(&kind) == Some(&state) {
        return;
    }
    if report.state == InformerState::Synced {
        tracing::info!(kind, objects, "informer synced");
    } else {
        tracing::warn!(kind, error = state, "informer not synced, waiting");
    }
    logged_states.insert(kind, state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_one_line() {
        let waiting = |names: &[&str]| {
            summary(
                3,
                &names
                    .iter()
                    .map(|&name| name.to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            waiting(&["Cluster"]),
            "syncing: 2 of 3 kinds, waiting for Cluster"
        );
        assert_eq!(
            waiting(&["Cluster", "Secret"]),
            "syncing: 1 of 3 kinds, waiting for Cluster and 1 more"
        );
    }
}
