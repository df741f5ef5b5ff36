//! The real API server behind the interface of [`TestServer`].
//!
//! Namespaces that a test has created in an existing cluster are deleted after the test.

use super::{
    Environment, Error, TestServer, control_plane::client, definitions, namespaces,
    own_runtime::run_on_own_runtime,
};
use kube_client::Client;
use parking_lot::Mutex;
use serde::Serialize;
use std::{path::PathBuf, sync::Arc};

/// An [`Environment`] for one test.
#[derive(Debug)]
pub struct Real {
    environment: Environment,
    created: Arc<CreatedNamespaces>,
}

/// Namespaces that a test has created. Outlives the test, even if it panics.
#[derive(Debug, Default)]
pub(super) struct CreatedNamespaces(Mutex<Vec<String>>);

impl CreatedNamespaces {
    /// Deletes the namespaces in an existing cluster.
    pub(super) async fn clean_up(&self, environment: &Environment) -> Result<(), Error> {
        let created = std::mem::take(&mut *self.0.lock());
        if !environment.is_existing() || created.is_empty() {
            return Ok(());
        }
        let config = environment.config();
        run_on_own_runtime(
            move || async move { namespaces::delete(&client(config)?, &created).await },
        )
        .await
    }
}

impl Real {
    /// Creates the server of one test.
    pub fn new(environment: Environment) -> Self {
        Self {
            environment,
            created: Arc::default(),
        }
    }

    /// Returns the environment.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(super) fn created(&self) -> Arc<CreatedNamespaces> {
        self.created.clone()
    }
}

impl TestServer for Real {
    fn name(&self) -> &'static str {
        "real"
    }

    fn client(&self) -> Result<Client, Error> {
        self.environment.client()
    }

    fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, Error> {
        self.environment.user(user, groups)?.client()
    }

    async fn install(
        &self,
        definitions: impl IntoIterator<Item: Serialize> + Send,
    ) -> Result<(), Error> {
        let definitions = definitions::values(definitions)?;
        self.environment.install(definitions).await
    }

    async fn restart(&self) -> Result<(), Error> {
        self.environment.restart_apiserver().await
    }

    async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let name = namespaces::create(&self.client()?, prefix).await?;
        self.created.0.lock().push(name.clone());
        Ok(name)
    }

    async fn kubeconfig(&self) -> Result<PathBuf, Error> {
        self.environment.kubeconfig().map(Into::into)
    }
}
