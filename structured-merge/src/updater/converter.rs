//! Conversion between the versions of a kind.

use super::{UpdateError, Updater};
use crate::typed::TypedValue;
use std::{borrow::Cow, error::Error};

/// Converts values between the versions of a kind.
///
/// Managers own fields at the version that they wrote. The updater converts the object to each of
/// these versions.
pub trait Converter {
    /// Converts a value to `api_version`. Returns `None` if it has this version.
    ///
    /// Errors: [`ConvertError::MissingVersion`] for a version that is no longer served. The updater
    /// drops its managers.
    fn convert(
        &self,
        object: &TypedValue<'_>,
        api_version: &str,
    ) -> Result<Option<TypedValue<'static>>, ConvertError>;
}

/// Error of a conversion between versions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The kind does not have this version.
    #[error("no kind is registered for version {0:?}")]
    MissingVersion(String),
    /// The conversion failed.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

/// Result of a conversion to a version.
pub(super) enum Conversion {
    /// The object has this version.
    Same,
    Converted(TypedValue<'static>),
    /// The version does not exist.
    Missing,
}

impl<C: Converter> Updater<C> {
    pub(super) fn convert(
        &self,
        object: &TypedValue<'_>,
        api_version: &str,
    ) -> Result<Conversion, UpdateError> {
        match self.converter.convert(object, api_version) {
            Ok(None) => Ok(Conversion::Same),
            Ok(Some(converted)) => Ok(Conversion::Converted(converted)),
            Err(ConvertError::MissingVersion(_)) => Ok(Conversion::Missing),
            Err(cause) => Err(UpdateError::Convert {
                context: String::new(),
                cause,
            }),
        }
    }

    /// Converts an object to a version. Returns `None` if the version does not exist.
    pub(super) fn at<'o, 'v>(
        &self,
        object: &'o TypedValue<'v>,
        api_version: &str,
    ) -> Result<Option<Cow<'o, TypedValue<'v>>>, UpdateError> {
        Ok(match self.convert(object, api_version)? {
            Conversion::Same => Some(Cow::Borrowed(object)),
            Conversion::Converted(converted) => Some(Cow::Owned(converted)),
            Conversion::Missing => None,
        })
    }
}
