//! How far the cache is, told while it fills: on a terminal in one line that changes, otherwise a line for each kind.

use crate::terminal::Terminal;
use std::{collections::HashMap, time::Duration};
use steersman::{
    cache::{Cache, InformerReport, InformerState},
    manager::{ManagerError, ManagerHandle, Stage},
};
use tokio::{select, task::spawn_blocking, time::interval};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Tell it, once the manager runs and until everything is synced that can be.
pub(crate) fn tell(manager: &ManagerHandle, terminal: &Terminal) -> Result<(), ManagerError> {
    let (cache, terminal) = (manager.cache(), terminal.clone());
    manager.add(Stage::Server, "progress of the cache", async move |cx| {
        cx.ready();
        select! {
            () = cx.stopped() => {}
            () = until_synced(cache, &terminal) => {}
        }
        if Terminal::is_one() {
            terminal.show(None);
        }
        Ok(())
    })
}

async fn until_synced(cache: Cache, terminal: &Terminal) {
    let (mut ticks, mut told) = (interval(PAUSE), HashMap::new());
    loop {
        ticks.tick().await;
        let cache = cache.clone();
        // It looks at every object.
        let Ok(reports) = spawn_blocking(move || cache.informers()).await else { return };
        let waiting = reports.iter().filter(|report| !is_settled(report)).map(name).collect::<Vec<_>>();
        for report in &reports {
            news(report, &mut told);
        }
        if waiting.is_empty() {
            return;
        }
        if Terminal::is_one() {
            terminal.show(Some(&summary(reports.len(), &waiting)));
        }
    }
}

/// Short enough for one line.
fn summary(all: usize, waiting: &[String]) -> String {
    let done = all - waiting.len();
    let others = match waiting {
        [_] | [] => String::new(),
        [_, others @ ..] => format!(" and {} more", others.len()),
    };
    format!("syncing: {done} of {all} kinds, waiting for {}{others}", waiting.first().map_or("", String::as_str))
}

/// It is there, or why not is told: when it mends is the server's affair.
fn is_settled(report: &InformerReport) -> bool {
    !matches!(report.state, InformerState::Idle | InformerState::Starting)
}

fn name(report: &InformerReport) -> String {
    match report.scope.as_str() {
        "" => report.gvk.kind.clone(),
        scope => format!("{} ({scope})", report.gvk.kind),
    }
}

/// What is not what was told last.
fn news(report: &InformerReport, told: &mut HashMap<String, String>) {
    let (kind, objects) = (name(report), report.stats.objects);
    let state = match &report.state {
        InformerState::Synced => "synced".to_owned(),
        InformerState::Absent { error } | InformerState::Degraded { error, .. } => error.clone(),
        _ => return,
    };
    if told.get(&kind) == Some(&state) {
        return;
    }
    if report.state == InformerState::Synced {
        tracing::info!(kind, objects, "cache: synced");
    } else {
        tracing::warn!(kind, error = state, "cache: waiting");
    }
    told.insert(kind, state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_is_fits_on_a_line() {
        let waiting = |names: &[&str]| summary(3, &names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(waiting(&["Cluster"]), "syncing: 2 of 3 kinds, waiting for Cluster");
        assert_eq!(waiting(&["Cluster", "Secret"]), "syncing: 1 of 3 kinds, waiting for Cluster and 1 more");
    }
}
