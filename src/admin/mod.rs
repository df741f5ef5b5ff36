//! A server for operators and what they operate with: metrics, health, debug pages. Feature `admin`, on by default.
//!
//! | path | |
//! |---|---|
//! | `/metrics` | [all metrics](ManagerHandle::metrics_page), as `OpenMetrics` |
//! | `/healthz`, `/readyz` | `ok`, or 500 with the checks that fail; `?verbose` shows all, `?exclude=a` leaves some out |
//! | `/healthz/a`, `/readyz/a` | one check |
//! | `/debug/controllers` | [`ManagerHandle::controllers`], with stuck reconciles |
//! | `/debug/queues` | [`ManagerHandle::queues`]: numbers, and the last 100 requests of each controller that ended with a terminal error |
//! | `/debug/queues/a?limit=1000` | [`ManagerHandle::queue`]: the requests in the queue of controller `a`, each with the reasons of its next reconcile |
//! | `/debug/caches` | [`ManagerHandle::caches`] |
//! | `/debug/leases` | [`ManagerHandle::lease`] |
//! | `/debug/checks` | what all checks say, with reasons |
//!
//! Debug pages are JSON of what the manager says by functions: names of objects, errors in the server's words, never bodies of objects.
//!
//! It listens on loopback unless it is told otherwise. What others than this machine can reach should be behind [`TlsFiles`] and [`Access::Reviewed`]; without
//! the latter, debug pages are then not shown, and health pages never say why.
//!
//! With [`Access::Open`], requests that a web page of another site can cause are answered with 403:
//!
//! - requests to a host that is neither loopback nor in [`Admin::hosts`], except for health pages: the kubelet sends the pod's address;
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
#[cfg(feature = "bench-internals")]
pub(crate) mod fuzz;
mod health;
mod memory;
mod pages;
mod serve;

pub use self::{access::Access, error::AdminError};
pub use crate::tls::{TlsError, TlsFiles};

use self::{access::Gate, pages::Pages, serve::Door};
use crate::{
    manager::{ManagerHandle, RunContext, Stage},
    tls::Certificates,
};
use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};
use steersman_browser_guard::BrowserGuard;
use tokio::select;

/// How the server serves. The defaults are for this machine only.
#[derive(Clone)]
pub struct Admin {
    /// Where it listens; port 0 takes any that is free. `127.0.0.1:8080` by default.
    pub address: SocketAddr,
    /// HTTPS with this certificate, which is read again when its files change. Plain HTTP by default.
    pub tls: Option<TlsFiles>,
    /// Who may ask. Everybody who can reach it by default.
    pub access: Access,
    /// DNS names and IP addresses, without port, by which clients may call the server, besides loopback and the IP address in `address`. They matter only with
    /// [`Access::Open`]. Default: none.
    pub hosts: Vec<String>,
    /// Whether health pages, too, are only for those who may ask. Not by default: the kubelet has no name there.
    pub review_health: bool,
    /// Whether debug pages are shown. By default if only this machine can ask, or access is reviewed.
    pub debug: Option<bool>,
    /// How many connections there can be. Beyond that health pages are served all the same, on a few more connections, and others are told to ask again. 100 by default.
    pub max_connections: usize,
    /// Pages of your own, for paths that are not taken.
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
        self.debug.unwrap_or(self.is_local() || self.access == Access::Reviewed)
    }

    /// Whether one that asks for a single check is told why it fails.
    fn tells_why(&self) -> bool {
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

/// A server that the manager runs. Dropping this changes nothing.
#[derive(Clone, Debug)]
pub struct AdminServer {
    address: SocketAddr,
}

impl AdminServer {
    /// Where it listens, with the port that was found.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl ManagerHandle {
    /// Serve metrics, health and debug pages for as long as the manager runs. The address is taken at once, and answers are given once the manager runs.
    pub fn serve_admin(&self, admin: Admin) -> Result<AdminServer, AdminError> {
        if admin.access == Access::Reviewed && admin.tls.is_none() && !admin.is_local() {
            return Err(AdminError::Readable(admin.address));
        }
        let guard = admin.browser_guard()?;
        let certificates = admin.tls.clone().map(Certificates::read).transpose()?;
        let tls = certificates.as_ref().map(Certificates::config).transpose()?;
        let bind = |error| AdminError::bind(admin.address, error);
        let listener = TcpListener::bind(admin.address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;

        let gate = (admin.access == Access::Reviewed).then(|| Gate::new(&self.client(), admin.review_health));
        let pages = Pages { manager: self.clone(), debug: admin.shows_debug(), tells_why: admin.tells_why() };
        let door = Door { tls, guard, gate, router: pages.router(admin.routes), most: admin.max_connections.max(1) };
        let fresh = certificates.clone();
        let named = format!("admin server on {address}");
        self.add_with_parts(Stage::Server, &named, Vec::new, async move |cx: RunContext| {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tracing::info!(%address, tls = fresh.is_some(), "serving metrics, health and debug pages");
            cx.ready();
            let fresh = async {
                match fresh {
                    Some(certificates) => certificates.keep_fresh().await,
                    None => std::future::pending().await,
                }
            };
            select! {
                () = door.serve(listener, cx.stopped(), cx.forsaken()) => Ok(()),
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
            let admin = Admin { address: address.parse().unwrap(), ..Admin::default() };
            let request = http::Request::get("/metrics").header("host", host).body(()).unwrap();
            admin.browser_guard().unwrap().unwrap().check(&request.into_parts().0, false).is_ok()
        };
        assert!(accepts("10.1.2.3:8080", "10.1.2.3:8080") && accepts("[fd00::1]:80", "[fd00::1]"));
        assert!(!accepts("10.1.2.3:8080", "10.1.2.4:8080") && !accepts("0.0.0.0:8080", "0.0.0.0:8080"));
    }
}
