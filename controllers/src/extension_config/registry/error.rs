//! Errors of the registry, with the texts of Cluster API.

use super::SelectorError;
use crate::{cluster_api::joined, extension_config::catalog::GroupHook};

/// Error of an operation of the registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The registry was warmed up before.
    #[error(
        "failed to warm up registry: invalid operation: WarmUp cannot be called on a registry \
         which has already been warmed up"
    )]
    AlreadyWarmedUp,
    /// The warmup of the registry failed, because `ExtensionConfig`s cannot be added.
    #[error("failed to warm up registry: {}", texts(.0))]
    WarmUp(Vec<AddError>),
    /// The `ExtensionConfig` cannot be added.
    #[error(transparent)]
    Add(#[from] AddError),
    /// The registry is not ready, so that `ExtensionConfig`s cannot be added.
    #[error(
        "failed to add ExtensionConfig {config:?} to registry: invalid operation: Add cannot be \
         called on a registry which has not been warmed up"
    )]
    AddNotReady {
        /// Name of the `ExtensionConfig`.
        config: String,
    },
    /// The registry is not ready, so that `ExtensionConfig`s cannot be removed.
    #[error(
        "failed to remove ExtensionConfig {config:?} from registry: invalid operation: Remove \
         cannot be called on a registry which has not been warmed up"
    )]
    RemoveNotReady {
        /// Name of the `ExtensionConfig`.
        config: String,
    },
    /// The hook to list has no group.
    #[error(
        "failed to list extension handlers: invalid argument: when calling List gh.Group must not \
         be empty"
    )]
    EmptyGroup,
    /// The hook to list has no name.
    #[error(
        "failed to list extension handlers: invalid argument: when calling List gh.Hook must not \
         be empty"
    )]
    EmptyHook,
    /// The registry is not ready, so that handlers cannot be listed.
    #[error(
        "failed to list extension handlers for GroupHook \"{hook}\": invalid operation: List \
         cannot be called on a registry which has not been warmed up"
    )]
    ListNotReady {
        /// Hook to list.
        hook: GroupHook,
    },
    /// The registry is not ready, so that handlers cannot be read.
    #[error(
        "failed to get extension handler {name:?} from registry: invalid operation: Get cannot be \
         called on a registry not yet ready"
    )]
    GetNotReady {
        /// Name of the handler.
        name: String,
    },
    /// No handler is registered with this name.
    #[error(
        "failed to get extension handler {name:?} from registry: handler with name {name:?} has \
         not been registered"
    )]
    NotRegistered {
        /// Name of the handler.
        name: String,
    },
}

/// Error of adding an `ExtensionConfig` to the registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The namespace selector is invalid.
    #[error(
        "failed to add ExtensionConfig {config:?} to registry: failed to create \
         namespaceSelector: {error}"
    )]
    Selector {
        /// Name of the `ExtensionConfig`.
        config: String,
        /// Reason why the selector is invalid.
        error: SelectorError,
    },
    /// Handlers in the status are invalid.
    #[error("failed to add ExtensionConfig {config:?} to registry: {}", texts(.errors))]
    Handlers {
        /// Name of the `ExtensionConfig`.
        config: String,
        /// Errors, in the order of the handlers.
        errors: Vec<HandlerError>,
    },
}

/// Error of a handler whose hook has an `apiVersion` with more than one slash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to add extension handler {handler:?} to registry: failed to parse GroupVersion \
     {api_version:?} of handler {handler:?}: unexpected GroupVersion string: {api_version}"
)]
pub struct HandlerError {
    /// Name of the handler.
    pub handler: String,
    /// `apiVersion` of its hook.
    pub api_version: String,
}

fn texts(errors: &[impl ToString]) -> String {
    joined(errors.iter().map(ToString::to_string))
}
