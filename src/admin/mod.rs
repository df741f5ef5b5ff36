//! Admin server with metrics, health checks and debug pages.
//!
//! Feature `admin`, on by default.
//!
//! | path | content |
//! |---|---|
//! | `/metrics` | [all metrics](ManagerHandle::metrics_page), as `OpenMetrics` |
//! | `/healthz`, `/readyz` | `ok`, or 500 with the checks that fail; `?verbose` shows all, `?exclude=a` leaves some out |
//! | `/healthz/a`, `/readyz/a` | one check |
//! | `/debug/controllers` | [`ManagerHandle::controllers`], with stuck reconciles |
//! | `/debug/queues` | [`ManagerHandle::queues`]: numbers, and the last 100 requests of each controller that ended with a terminal error |
//! | `/debug/queues/a?key=default/web` | [`ManagerHandle::queue`]: the one request with that key |
//! | `/debug/queues/a?limit=1000` | [`ManagerHandle::queue`]: the requests in the queue of controller `a`, each with the reasons of its next reconcile |
//! | `/debug/caches` | [`ManagerHandle::caches`] |
//! | `/debug/leases` | [`ManagerHandle::lease`] |
//! | `/debug/checks` | results of all checks, with reasons |
//!
//! Debug pages are the JSON of reports of the manager, with named fields and durations in seconds.
//! They contain names of objects and errors of the API server, but no object bodies.
//!
//! The server listens on loopback by default. If other machines can reach it, use [`TlsFiles`] and
//! [`Access::Reviewed`]. Without the latter, it then does not show debug pages, and health pages
//! contain no reasons.
//!
//! With [`Access::Open`], requests that a web page of another site can cause are answered with 403:
//!
//! - requests to a host that is neither loopback nor in [`Admin::hosts`], except for health pages:
//!   the kubelet sends the pod's address;
//! - requests with the `Origin` of another server, or with `Sec-Fetch-Site: cross-site`;
//! - requests of a browser with a body and without a content type.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use steersman::{admin::Admin, prelude::*, testing::{Env, TestServer}};
//!
//! let manager = Manager::builder(Env::embedded()?.client()?).build()?;
//! let admin = manager.serve_admin(Admin { address: "127.0.0.1:0".parse()?, ..Admin::default() })?;
//! println!("http://{}/readyz", admin.address()); // once the manager runs
//! # Ok(())
//! # }
//! ```

mod access;
mod debug;
mod error;
mod expiring_cache;
#[cfg(feature = "__internals")]
pub(crate) mod fuzz;
mod health;
mod pages;
mod serve;

pub use self::{access::Access, error::AdminError};
pub use crate::tls::{TlsError, TlsFiles};

use self::{access::Authorizer, pages::Pages, serve::Server};
use crate::{
    manager::{ManagerHandle, RunContext, Stage},
    tls::CertificateWatcher,
};
use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};
use steersman_browser_guard::BrowserGuard;
use tokio::select;

/// Options of the admin server. The defaults serve this machine only.
#[derive(Clone)]
pub struct Admin {
    /// Address to listen on. Port 0 selects a free port. Default: `127.0.0.1:8080`.
    pub address: SocketAddr,
    /// Certificate for HTTPS, reloaded when its files change. Default: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Access control. Default: [`Access::Open`].
    pub access: Access,
    /// Additional host names of the server: DNS names and IP addresses, without port.
    ///
    /// Loopback and the IP address in `address` are always accepted. Used only with
    /// [`Access::Open`]. Default: none.
    pub hosts: Vec<String>,
    /// Applies access control to health pages as well.
    ///
    /// The kubelet sends no token. Default: false.
    pub review_health: bool,
    /// Shows debug pages. Default: if the server is on loopback or access is reviewed.
    pub debug: Option<bool>,
    /// Limit of connections.
    ///
    /// A few more connections are accepted for health pages. Other requests on them receive 503.
    /// Default: 100.
    pub max_connections: usize,
    /// Additional pages, on paths that are not used. Default: none.
    pub routes: Option<axum::Router>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            tls: None,
            access: Access::default(),
            hosts: Vec::new(),
            review_health: false,
            debug: None,
            max_connections: 100,
            routes: None,
        }
    }
}

impl Admin {
    fn is_local(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// Returns `None` if callers need a token, which browsers do not send by themselves.
    fn browser_guard(&self) -> Result<Option<BrowserGuard>, AdminError> {
        let ip = self.address.ip();
        let own = (!ip.is_unspecified()).then(|| ip.to_string());
        let guard = BrowserGuard::new(self.hosts.iter().cloned().chain(own));
        let guard = guard.map_err(|error| AdminError::InvalidHost(error.0))?;
        Ok((self.access == Access::Open).then_some(guard))
    }

    fn shows_debug(&self) -> bool {
        self.debug
            .unwrap_or(self.is_local() || self.access == Access::Reviewed)
    }

    /// Returns whether the page of a single check contains the reason of its failure.
    fn shows_reason(&self) -> bool {
        self.shows_debug() && (self.access == Access::Open || self.review_health)
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("address", &self.address)
            .field("tls", &self.tls)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// Admin server that runs with the manager. Dropping this value does not stop it.
#[derive(Clone, Debug)]
pub struct AdminServer {
    address: SocketAddr,
}

impl AdminServer {
    /// Returns the address of the server, with the selected port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl ManagerHandle {
    /// Serves metrics, health and debug pages while the manager runs.
    ///
    /// The address is bound at once. Requests are answered once the manager runs.
    pub fn serve_admin(&self, admin: Admin) -> Result<AdminServer, AdminError> {
        if admin.access == Access::Reviewed && admin.tls.is_none() && !admin.is_local() {
            return Err(AdminError::Readable(admin.address));
        }
        let guard = admin.browser_guard()?;
        let certificates = admin.tls.clone().map(CertificateWatcher::new).transpose()?;
        let tls = certificates
            .as_ref()
            .map(CertificateWatcher::server_config)
            .transpose()?;
        let bind = |error| AdminError::bind(admin.address, error);
        let listener = TcpListener::bind(admin.address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;

        let authorizer = (admin.access == Access::Reviewed)
            .then(|| Authorizer::new(&self.client(), admin.review_health));
        let pages = Pages {
            manager: self.clone(),
            debug: admin.shows_debug(),
            shows_reason: admin.shows_reason(),
        };
        let server = Server {
            tls,
            guard,
            authorizer,
            router: pages.router(admin.routes),
            max_connections: admin.max_connections.max(1),
        };
        let fresh = certificates.clone();
        let named = format!("admin server on {address}");
        self.add_with_subtasks(Stage::Server, &named, Vec::new, async move |cx: RunContext| {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tracing::info!(%address, tls = fresh.is_some(), "serving metrics, health and debug pages");
            cx.ready();
            let fresh = async {
                match fresh {
                    Some(certificates) => certificates.run().await,
                    None => std::future::pending().await,
                }
            };
            select! {
                () = server.serve(listener, cx.stopped(), cx.aborted()) => Ok(()),
                () = fresh => Ok(()),
            }
        })?;
        if let Some(certificates) = &certificates {
            self.watch_certificates(certificates);
        }
        Ok(AdminServer { address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_server_is_an_accepted_host_unless_it_is_unspecified() {
        let accepts = |address: &str, host: &str| {
            let admin = Admin {
                address: address.parse().unwrap(),
                ..Admin::default()
            };
            let request = http::Request::get("/metrics")
                .header("host", host)
                .body(())
                .unwrap();
            admin
                .browser_guard()
                .unwrap()
                .unwrap()
                .check(&request.into_parts().0, false)
                .is_ok()
        };
        assert!(accepts("10.1.2.3:8080", "10.1.2.3:8080") && accepts("[fd00::1]:80", "[fd00::1]"));
        assert!(
            !accepts("10.1.2.3:8080", "10.1.2.4:8080") && !accepts("0.0.0.0:8080", "0.0.0.0:8080")
        );
    }
}
