//! Errors of operations on external objects.

use super::{ContractError, Failed, FieldError};
use steersman::client;

/// Error of an operation on an external object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no reference to read.
    #[error("cannot get object - object reference not set")]
    NothingToGet,
    /// There is no reference to delete.
    #[error("cannot delete object - object reference not set")]
    NothingToDelete,
    /// The object cannot be read, or does not exist.
    #[error(transparent)]
    Retrieve(Failed<RequestError>),
    /// The object cannot be deleted, or does not exist.
    #[error(transparent)]
    Delete(Failed<RequestError>),
    /// The object cannot be created.
    #[error(transparent)]
    Create(Failed<RequestError>),
    /// The CRD of a reference does not exist.
    ///
    /// Contains only the text, because [`is_not_found`](Self::is_not_found) is about the object.
    #[error("failed to get object from ref: {0}")]
    NoDefinition(String),
    /// The version of a reference cannot be determined.
    #[error(transparent)]
    Contract(Failed<ContractError>),
    /// A field of the object has another type.
    #[error(transparent)]
    Field(Failed<FieldError>),
}

impl Error {
    /// Returns whether the API server reported that the object does not exist.
    ///
    /// False if its CRD does not exist.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Retrieve(failed) | Self::Delete(failed) | Self::Create(failed) => {
                failed.cause().is_not_found()
            }
            _ => false,
        }
    }

    /// Returns the error of the client, if a request failed.
    pub fn request(&self) -> Option<&client::Error> {
        match self {
            Self::Retrieve(failed) | Self::Delete(failed) | Self::Create(failed) => {
                match failed.cause() {
                    RequestError::Client(error) => Some(error),
                    _ => None,
                }
            }
            Self::Contract(failed) => failed.cause().request(),
            _ => None,
        }
    }
}

/// Reports that an object cannot be read because the version of its reference is not known.
impl From<ContractError> for Error {
    fn from(error: ContractError) -> Self {
        if error.is_not_found() {
            Self::NoDefinition(error.to_string())
        } else {
            Self::Contract(Failed::new("failed to get object from ref", error))
        }
    }
}

/// Cause of an operation that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request failed, or was not sent.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// A field of the reference is empty.
    #[error("object reference has no {0}; set it")]
    Incomplete(&'static str),
    /// The version of the reference is not a valid version of an API.
    #[error("invalid apiVersion `{0}` of object reference; use `group/version`")]
    ApiVersion(String),
}

impl RequestError {
    fn is_not_found(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_not_found())
    }
}
