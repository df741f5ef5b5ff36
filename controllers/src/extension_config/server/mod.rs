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
//! The wire format is that of Cluster API's own server. Each call of a known path gets the status
//! code 200. The response has the status `Failure` and a message if the body is too large,
//! unreadable or not valid JSON, or if the handler panics or times out.
//!
//! A handler has 5 s more than the time limit that discovery announces. The client therefore
//! reaches the limit first and applies the failure policy. A response with the status `Failure`
//! would be an error with both policies. After its limit, the client closes the connection, which
//! drops the future of the handler.
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
//! finds the handler of a request, and `serve` owns the connections.

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
