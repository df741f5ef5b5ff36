//! Errors are logged, and shown as states and on pages: what is secret must not be in them.

use kube_client::{Error, client::AuthError};
use std::iter::successors;

/// Without what a plugin for credentials was given and has said, all of which kube's error shows.
pub(super) fn discreet(error: Error) -> Error {
    let first: &(dyn std::error::Error + 'static) = &error;
    let failed = successors(Some(first), |error| error.source()).find_map(|cause| match cause.downcast_ref() {
        Some(AuthError::AuthExecRun { out, .. }) => Some(out.status),
        _ => None,
    });
    match failed {
        Some(status) => {
            let words =
                format!("the plugin of the kubeconfig that brings credentials has failed ({status}); run it by hand");
            Error::Auth(AuthError::AuthExec(words))
        }
        None => error,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::{
        os::unix::process::ExitStatusExt,
        process::{ExitStatus, Output},
    };

    fn plugin() -> AuthError {
        let (status, stdout, stderr) = (ExitStatus::from_raw(7 << 8), b"hunter2".to_vec(), b"hunter2".to_vec());
        AuthError::AuthExecRun {
            cmd: "plugin --secret=hunter2".into(),
            out: Box::new(Output { status, stdout, stderr }),
        }
    }

    #[test]
    fn nothing_is_left_of_what_a_plugin_was_given_and_has_said() {
        for error in [Error::Auth(plugin()), Error::Service(Box::new(plugin()))] {
            let error = anyhow::Error::new(discreet(error));
            let shown = format!("{error:#} {error:?}");
            assert!(shown.contains("exit status: 7") && !shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        assert!(matches!(discreet(Error::LinesCodecMaxLineLengthExceeded), Error::LinesCodecMaxLineLengthExceeded));
    }
}
