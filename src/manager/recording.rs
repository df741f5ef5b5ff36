//! Events of a manager's controllers.

use super::{ManagerError, ManagerHandle, Stage, stage::RunContext};
use crate::recorder::{Recorder, RecorderOptions};

impl ManagerHandle {
    /// Tell people about objects, as this controller. The manager writes what is said, from its start to after everybody else has ended.
    pub fn recorder(&self, controller: &str) -> Result<Recorder, ManagerError> {
        self.recorder_with(controller, RecorderOptions::default())
    }

    /// [`Self::recorder`] with other limits.
    pub fn recorder_with(&self, controller: &str, options: RecorderOptions) -> Result<Recorder, ManagerError> {
        let recorder = Recorder::with(&self.0.client, controller, options)?;
        let runs = recorder.clone();
        // Stopped after all who may still have something to say.
        self.add(Stage::Server, &format!("events of {controller}"), async move |cx: RunContext| {
            cx.ready();
            runs.run_until(async move { cx.stopped().await }).await;
            Ok(())
        })?;
        self.0.recorders.watch(&recorder);
        Ok(recorder)
    }
}
