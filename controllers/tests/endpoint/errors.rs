//! Errors of adding the controller to a manager.

use std::{io, sync::Arc};
use steersman::{
    builder::BuildError, cache::CacheError, controller::WatchError, manager::ManagerError,
};
use steersman_controllers::endpoint::Error;

#[test]
fn endpoint_errors_print_each_cause_once() {
    let cache = || {
        CacheError::Connection(kube::Error::Service(Box::new(io::Error::other(
            "the cause",
        ))))
    };
    let watch = WatchError::Cache {
        source_name: "kind source: Secret".into(),
        error: Arc::new(cache()),
    };
    let failed = ManagerError::Failed {
        name: "endpoint".into(),
        error: cache().into(),
    };
    for error in [
        Error::Cache(cache()),
        Error::Build(BuildError::Watch(watch)),
        Error::Manager(failed),
    ] {
        let text = format!("{:#}", anyhow::Error::new(error));
        assert_eq!(text.matches("the cause").count(), 1, "{text}");
    }
}
