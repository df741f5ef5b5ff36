//! Event recorders of a manager.

use super::{ManagerError, ManagerHandle, Stage, stage::RunContext};
use crate::recorder::{Recorder, RecorderOptions};

impl ManagerHandle {
    /// Creates a recorder that writes Kubernetes events in the name of `controller`.
    ///
    /// The manager writes the events from its start until all other tasks have ended.
    pub fn recorder(&self, controller: &str) -> Result<Recorder, ManagerError> {
        self.recorder_with(controller, RecorderOptions::default())
    }

    /// Creates a recorder like [`Self::recorder`], with other limits.
    pub fn recorder_with(
        &self,
        controller: &str,
        options: RecorderOptions,
    ) -> Result<Recorder, ManagerError> {
        let recorder = Recorder::with(&self.0.client, controller, options)?;
        let runs = recorder.clone();
        // The first stage is stopped last, so other tasks can record events until they end.
        self.add(
            Stage::Server,
            &format!("events of {controller}"),
            async move |cx: RunContext| {
                cx.ready();
                runs.run_until(async move { cx.stopped().await }).await;
                Ok(())
            },
        )?;
        self.0.recorders.watch(&recorder);
        Ok(recorder)
    }
}
