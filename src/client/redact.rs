//! Removes secrets from errors, which are logged and shown on debug pages.

use kube_client::{Error, client::AuthError};
use std::iter::successors;

/// Removes the input and output of a credential plugin from an error of kube.
pub(super) fn redact(error: Error) -> Error {
    let first: &(dyn std::error::Error + 'static) = &error;
    let failed = successors(Some(first), |error| error.source()).find_map(|cause| {
        match cause.downcast_ref() {
            Some(AuthError::AuthExecRun { out, .. }) => Some(out.status),
            _ => None,
        }
    });
    match failed {
        Some(status) => {
            let text =
                format!("credential plugin of the kubeconfig failed ({status}); run it by hand");
            Error::Auth(AuthError::AuthExec(text))
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
        let (status, stdout, stderr) = (
            ExitStatus::from_raw(7 << 8),
            b"hunter2".to_vec(),
            b"hunter2".to_vec(),
        );
        AuthError::AuthExecRun {
            cmd: "plugin --secret=hunter2".into(),
            out: Box::new(Output {
                status,
                stdout,
                stderr,
            }),
        }
    }

    #[test]
    fn output_and_arguments_of_a_plugin_are_removed() {
        for error in [Error::Auth(plugin()), Error::Service(Box::new(plugin()))] {
            let error = anyhow::Error::new(redact(error));
            let shown = format!("{error:#} {error:?}");
            assert!(
                shown.contains("exit status: 7") && !shown.contains("hunter2"),
                "{shown}"
            );
        }
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        assert!(matches!(
            redact(Error::LinesCodecMaxLineLengthExceeded),
            Error::LinesCodecMaxLineLengthExceeded
        ));
    }
}
