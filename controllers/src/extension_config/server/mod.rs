//! Server of a runtime extension: handlers of hooks behind HTTPS.
//!
//! Use it to write a runtime extension in Rust. Cluster API, or a
//! [runtime client](super::client::RuntimeClient), discovers the handlers and calls them.
//!
//! | path, always with POST | answer |
//! |---|---|
//! | `/<group>/<version>/discovery` | the registered handlers |
//! | `/<group>/<version>/<hook>/<handler>` | response of that handler; the hook is in lower case |
//!
//! The wire format is that of Cluster API's own server. Each call of a known path is answered with
//! the status code 200. A body that is too large, unreadable or not valid JSON, and a handler that
//! panics or takes too long, are answered with the status `Failure` and a message.
//!
//! A handler has 5 s more than the time limit that discovery announces, so that a client reaches the
//! limit first and applies the failure policy. A response with the status `Failure` would be an
//! error with both policies. A client that gives up closes its connection, which drops the handler's
//! future.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use steersman_controllers::extension_config::{
//!     catalog::{Catalog, hooks::{BeforeClusterCreate, BeforeClusterCreateResponse}},
//!     server::{Extension, ServingCertificate},
//! };
//! # let signed = steersman_apiserver::Authority::generate()?.server_certificate()?;
//! # let (chain, key) = (signed.certificate_pem, signed.key_pem);
//!
//! let extension = Extension::new(Catalog::new().with::<BeforeClusterCreate>())
//!     .on::<BeforeClusterCreate, _>("delay", |_request, _cx| async {
//!         BeforeClusterCreateResponse { retry_after_seconds: 30, ..Default::default() }
//!     })
//!     .timeout_seconds(5)
//!     .tls(ServingCertificate::pem(chain, key));
//! let running = extension.serve("127.0.0.1:0".parse()?).await?;
//! println!("serving on https://{}", running.local_addr());
//! running.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`Extension`] collects handlers and options, `handler` erases the types of a handler, `routes`
//! answers a request, and `serve` owns the connections.

mod body;
mod certificate;
mod error;
mod extension;
mod handler;
mod routes;
mod serve;

pub use self::{
    certificate::ServingCertificate,
    error::{RegistrationError, ServeError},
    extension::{DEFAULT_ADDRESS, Extension},
    handler::{CallContext, IntoResponse},
    serve::Running,
};
