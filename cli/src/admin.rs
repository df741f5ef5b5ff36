//! Flags of the admin server.

use anyhow::{Result, anyhow};
use std::{net::SocketAddr, path::PathBuf};
use steersman::{
    admin::{Access, Admin, AdminError, TlsFiles},
    prelude::*,
};

/// Admin server of `steersman run`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminFlags {
    /// Address of metrics, health and debug pages. Port 0 selects a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    admin: SocketAddr,

    /// Certificate of the admin server with its chain, as PEM; it is read again when the file changes. Default: plain HTTP.
    #[arg(long, value_name = "FILE", requires = "admin_tls_key")]
    admin_tls_cert: Option<PathBuf>,

    /// Private key of the certificate, as PEM. Default: plain HTTP.
    #[arg(long, value_name = "FILE", requires = "admin_tls_cert")]
    admin_tls_key: Option<PathBuf>,

    /// Callers that can read the pages of the admin server, other than health.
    #[arg(long, value_enum, default_value_t = AdminAccess::Open)]
    admin_access: AdminAccess,

    /// DNS names and IP addresses, without port, by which clients may call the admin server, separated by commas. Default: only
    /// loopback and the address of --admin. Health pages answer any host, and so do all pages with --admin-access=reviewed.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    admin_host: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum AdminAccess {
    /// Every caller that can connect.
    Open,
    /// Callers with a token of the cluster, whose roles allow the path. Needs TLS outside of loopback, and the cluster role
    /// `system:auth-delegator` for this process.
    Reviewed,
}

impl AdminFlags {
    /// Starts the admin server and returns its address.
    pub(crate) fn serve(&self, manager: &Manager) -> Result<SocketAddr> {
        let tls = self.admin_tls_cert.clone().zip(self.admin_tls_key.clone());
        let admin = Admin {
            address: self.admin,
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
            access: match self.admin_access {
                AdminAccess::Open => Access::Open,
                AdminAccess::Reviewed => Access::Reviewed,
            },
            hosts: self.admin_host.clone(),
            ..Admin::default()
        };
        serve(manager, admin)
    }
}

/// Starts an admin server and returns its address. Errors name flags instead of options.
pub(crate) fn serve(manager: &Manager, admin: Admin) -> Result<SocketAddr> {
    let error = match manager.serve_admin(admin) {
        Ok(admin) => return Ok(admin.address()),
        Err(error) => error,
    };
    Err(match error {
        AdminError::Bind {
            address,
            error,
            hint,
        } => anyhow!("cannot listen on {address}: {error}; {hint} --admin"),
        AdminError::Readable(address) => anyhow!(
            "cannot accept tokens on {address} without TLS: others could read them; set --admin-tls-cert and \
             --admin-tls-key, or listen on loopback"
        ),
        AdminError::InvalidHost(host) => {
            anyhow!(
                "invalid host `{host}` in --admin-host; use a DNS name or an IP address, without scheme and port"
            )
        }
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        admin: AdminFlags,
    }

    fn parse(flags: &str) -> Result<AdminFlags, clap::Error> {
        Ok(Line::try_parse_from(["steersman"].into_iter().chain(flags.split_whitespace()))?.admin)
    }

    #[test]
    fn the_admin_server_is_open_on_loopback_without_flags() {
        let flags = parse("").unwrap();
        assert_eq!(
            (flags.admin, flags.admin_access),
            (Admin::default().address, AdminAccess::Open)
        );
        assert!(flags.admin_tls_cert.is_none() && flags.admin_host.is_empty());
    }

    #[test]
    fn a_certificate_needs_its_key() {
        for (flags, missing) in [
            ("--admin-tls-cert c", "--admin-tls-key"),
            ("--admin-tls-key k", "--admin-tls-cert"),
        ] {
            let error = parse(flags).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
        assert!(parse("--admin-tls-cert c --admin-tls-key k --admin-access reviewed").is_ok());
    }
}
