//! Errors of contract lookups.

use crate::external::Failed;
use steersman::client;

/// Error of a contract lookup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The metadata of the CRD cannot be read, or the CRD does not exist.
    #[error(transparent)]
    Metadata(Failed<client::Error>),
    /// The contract to be compatible with is empty.
    #[error("current contract version cannot be empty")]
    NoCurrentContract,
    /// No label of the CRD lists versions for a compatible contract.
    #[error(
        "cannot find any versions matching contract versions [{}] for CRD {crd} as contract \
         version label(s) are either missing or empty (see https://cluster-api.sigs.k8s.io/\
         developer/providers/contracts/overview.html#api-version-labels)",
        quoted(contracts)
    )]
    NoVersions {
        /// Name of the CRD.
        crd: String,
        /// Compatible contracts, the newest first.
        contracts: Vec<String>,
    },
    /// No label of the CRD lists the version.
    #[error("cannot find any contract version matching version {version} for CRD {crd}")]
    NoContract {
        /// Name of the CRD.
        crd: String,
        /// Version of the kind.
        version: String,
    },
    /// Another error, with the operation that failed.
    #[error(transparent)]
    Lookup(Failed<ContractError>),
}

impl ContractError {
    pub(super) fn context(self, context: impl Into<String>) -> Self {
        Self::Lookup(Failed::new(context, self))
    }

    /// Returns whether the API server reported that the CRD does not exist.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Metadata(failed) => failed.cause().is_not_found(),
            Self::Lookup(failed) => failed.cause().is_not_found(),
            _ => false,
        }
    }

    /// Returns the error of the client, if the request failed.
    pub fn request(&self) -> Option<&client::Error> {
        match self {
            Self::Metadata(failed) => Some(failed.cause()),
            Self::Lookup(failed) => failed.cause().request(),
            _ => None,
        }
    }
}

/// Returns names in quotes, separated by spaces, as Go's `%q` prints them.
fn quoted(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(" ")
}
