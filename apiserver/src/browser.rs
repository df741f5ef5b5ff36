//! Rejects requests of web pages while every caller is admin.

use crate::{
    auth::Authenticator,
    server::StartError,
    status::{Details, Failure, Reason},
};
use steersman_browser_guard::{BrowserGuard, Rejection};

/// Creates the guard of the sockets. Returns `None` if callers need a token, which browsers do not
/// send by themselves.
pub(crate) fn guard(
    authenticator: &Authenticator,
    hosts: &[String],
) -> Result<Option<BrowserGuard>, StartError> {
    let guard = BrowserGuard::new(hosts).map_err(|error| StartError::InvalidHost(error.0))?;
    Ok((!authenticator.is_configured()).then_some(guard))
}

/// Returns the rejection as a 403 that says how to configure the server.
pub(crate) fn forbidden(rejection: &Rejection) -> Box<Failure> {
    let fix = match rejection {
        Rejection::Host(_) | Rejection::NoHost => {
            "use localhost, add the host to `Options::hosts` (--host), or require tokens (--token-auth-file)"
        }
        _ => "use a program other than a browser, or require tokens (--token-auth-file)",
    };
    Failure::new(
        403,
        Reason::Forbidden,
        format!("forbidden: {rejection}; {fix}"),
    )
    .about(Details::default())
}
