//! Public errors print each cause once, also with `{:#}`, which appends what `source()` returns.

use crate::{
    admin::AdminError,
    builder::BuildError,
    cache::CacheError,
    manager::{ManagerError, election::ElectionError},
    object::{DecodeError, ObjectKey},
    reconcile::Failure,
    source::WatchError,
    testing,
};
use anyhow::anyhow;
use serde::de::Error as _;
use std::{io, sync::Arc};

const CAUSE: &str = "the cause";

fn io_error() -> io::Error {
    io::Error::other(CAUSE)
}

/// Error that prints its cause and returns it from `source()` as well.
fn kube_error() -> kube_client::Error {
    kube_client::Error::Service(Box::new(io_error()))
}

fn mismatch() -> DecodeError {
    let error = serde_json::Error::custom(CAUSE);
    DecodeError::Mismatch {
        kind: "Pod".into(),
        key: ObjectKey::new("shop", "web"),
        error,
    }
}

fn watch(error: CacheError) -> WatchError {
    WatchError::Cache {
        source_name: "kind source: Pod".into(),
        error: Arc::new(error),
    }
}

fn bind() -> AdminError {
    AdminError::Bind {
        address: ([127, 0, 0, 1], 80).into(),
        error: io_error(),
        hint: "choose another one in",
    }
}

fn failed(error: impl Into<anyhow::Error>) -> ManagerError {
    ManagerError::Failed {
        name: "server".into(),
        error: error.into(),
    }
}

#[test]
fn public_errors_print_each_cause_once() {
    let errors: Vec<anyhow::Error> = vec![
        bind().into(),
        AdminError::Manager(failed(io_error())).into(),
        BuildError::Watch(watch(mismatch().into())).into(),
        BuildError::Manager(ManagerError::Cache(Arc::new(CacheError::Connection(
            kube_error(),
        ))))
        .into(),
        CacheError::Connection(kube_error()).into(),
        CacheError::Decode(mismatch()).into(),
        mismatch().into(),
        ElectionError::Connection(kube_error()).into(),
        ManagerError::Election(ElectionError::Connection(kube_error())).into(),
        failed(bind()).into(),
        ManagerError::Several(vec![failed(watch(CacheError::Connection(kube_error())))]).into(),
        watch(CacheError::Connection(kube_error())).into(),
        WatchError::Failed {
            source_name: "stream".into(),
            error: Arc::new(anyhow!(CAUSE).context("stream")),
        }
        .into(),
        Failure::terminal(io_error()).into(),
        testing::Error::io("start etcd")(io_error()).into(),
        testing::Error::request("create a namespace")(kube_error()).into(),
    ];
    for error in errors {
        let text = format!("{error:#}");
        assert_eq!(text.matches(CAUSE).count(), 1, "{text}");
    }
}
