//! The real server as one test sees it. Namespaces that the test made in an existing cluster are deleted after it; in an environment
//! they go with it.

use super::{Environment, Error, TestServer, apart::apart, control_plane::client, definitions, namespaces};
use kube_client::Client;
use parking_lot::Mutex;
use serde::Serialize;
use std::{path::PathBuf, sync::Arc};

/// An [`Environment`] as one test sees it.
#[derive(Debug)]
pub struct Real {
    environment: Environment,
    made: Arc<Made>,
}

/// The namespaces that a test made; outlives the test, however that ends.
#[derive(Debug, Default)]
pub(super) struct Made(Mutex<Vec<String>>);

impl Made {
    /// Take away what was made in an existing cluster.
    pub(super) async fn tidy_up(&self, environment: &Environment) -> Result<(), Error> {
        let made = std::mem::take(&mut *self.0.lock());
        if !environment.is_existing() || made.is_empty() {
            return Ok(());
        }
        let config = environment.config();
        apart(move || async move { namespaces::delete(&client(config)?, &made).await }).await
    }
}

impl Real {
    /// For one test.
    pub fn new(environment: Environment) -> Self {
        Self { environment, made: Arc::default() }
    }

    /// What it runs on.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(super) fn made(&self) -> Arc<Made> {
        self.made.clone()
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

    async fn install(&self, definitions: impl IntoIterator<Item: Serialize> + Send) -> Result<(), Error> {
        let definitions = definitions::values(definitions)?;
        self.environment.install(definitions).await
    }

    async fn restart(&self) -> Result<(), Error> {
        self.environment.restart_apiserver().await
    }

    async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let name = namespaces::create(&self.client()?, prefix).await?;
        self.made.0.lock().push(name.clone());
        Ok(name)
    }

    async fn kubeconfig(&self) -> Result<PathBuf, Error> {
        self.environment.kubeconfig().map(Into::into)
    }
}
