//! Tests of the server of runtime extensions.

mod client;
mod example;
mod limits;
mod registration;
mod tls;
mod wire;

use self::client::Connection;
use steersman_apiserver::Authority;
use steersman_controllers::extension_config::{
    catalog::{
        Catalog,
        hooks::{BeforeClusterCreate, BeforeClusterCreateResponse},
    },
    server::{Extension, Running, ServingCertificate},
};

/// Path of the handler `answer` of [`BeforeClusterCreate`].
const ANSWER: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclustercreate/answer";
const DISCOVERY: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery";

/// A running extension, and the CA of its certificate.
struct Served {
    running: Running,
    ca: String,
}

impl Served {
    async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.running.local_addr(), &self.ca, None).await
    }
}

/// Returns an extension without handlers, whose catalog has one hook.
fn extension() -> Extension {
    Extension::new(Catalog::new().with::<BeforeClusterCreate>())
}

/// Serves an extension with a new certificate on a free port.
async fn serve(extension: Extension) -> anyhow::Result<Served> {
    let authority = Authority::generate()?;
    let running = extension
        .tls(certificate(&authority)?)
        .serve("127.0.0.1:0".parse()?)
        .await?;
    let ca = authority.ca_pem();
    Ok(Served { running, ca })
}

fn certificate(authority: &Authority) -> anyhow::Result<ServingCertificate> {
    let signed = authority.server_certificate()?;
    Ok(ServingCertificate::pem(
        signed.certificate_pem,
        signed.key_pem,
    ))
}

fn message(text: impl Into<String>) -> BeforeClusterCreateResponse {
    BeforeClusterCreateResponse {
        message: text.into(),
        ..BeforeClusterCreateResponse::default()
    }
}
