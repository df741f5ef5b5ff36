//! Public errors print each cause once, also with `{:#}`, which appends what `source()` returns.

use crate::{Credentials, Kubeconfig, ListenError, StartError, TlsError, persist};
use std::{error::Error, io, iter::successors, path::Path};

const CAUSE: &str = "the cause";

fn io_error() -> io::Error {
    io::Error::other(CAUSE)
}

/// Renders an error as anyhow's `{:#}` does.
fn render(error: &(dyn Error + 'static)) -> String {
    successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[test]
fn public_errors_print_each_cause_once() {
    let errors: Vec<Box<dyn Error>> = vec![
        ListenError::Bind(([127, 0, 0, 1], 80).into(), io_error()).into(),
        ListenError::Tls(TlsError::new(io_error())).into(),
        TlsError::new(io_error()).into(),
        StartError::from(persist::Error::Io("data".into(), io_error())).into(),
        persist::Error::Io("data".into(), io_error()).into(),
        StartError::InvalidHost(CAUSE.into()).into(),
    ];
    for error in errors {
        let text = render(&*error);
        assert_eq!(text.matches(CAUSE).count(), 1, "{text}");
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_written_prints_the_cause_once() {
    let kubeconfig = Kubeconfig {
        server: String::new(),
        ca_pem: None,
        credentials: Credentials::None,
    };
    let error = kubeconfig.write(Path::new("/")).unwrap_err();
    let text = render(&error);
    let cause = io::Error::from(io::ErrorKind::IsADirectory).to_string();
    assert_eq!(text.matches(&cause).count(), 1, "{text}");
}
