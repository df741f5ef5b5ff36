//! Fields that requests and responses share.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of a call: those of the `ExtensionConfig`, overridden by those of the request.
pub type Settings = BTreeMap<String, String>;

/// Status of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ResponseStatus {
    /// The call succeeded.
    Success,
    /// The call failed.
    Failure,
    /// Any other status. Clients treat it as an error.
    Other(String),
    /// The response has no status. Clients treat it as an error.
    #[default]
    Missing,
}

impl From<String> for ResponseStatus {
    fn from(text: String) -> Self {
        match &*text {
            "Success" => Self::Success,
            "Failure" => Self::Failure,
            "" => Self::Missing,
            _ => Self::Other(text),
        }
    }
}

impl From<ResponseStatus> for String {
    fn from(status: ResponseStatus) -> Self {
        match status {
            ResponseStatus::Success => "Success".into(),
            ResponseStatus::Failure => "Failure".into(),
            ResponseStatus::Other(text) => text,
            ResponseStatus::Missing => Self::new(),
        }
    }
}

/// Implements [`Response`](crate::extension_config::catalog::Response) for a type with the fields
/// `status`, `message` and, with `retry`, `retry_after_seconds`.
macro_rules! response {
    ($type:ty) => { response!($type,); };
    ($type:ty, $($retry:ident)?) => {
        impl $crate::extension_config::catalog::Response for $type {
            fn status(&self) -> &$crate::extension_config::catalog::hooks::ResponseStatus {
                &self.status
            }

            fn message(&self) -> &str {
                &self.message
            }

            fn set_status(
                &mut self,
                status: $crate::extension_config::catalog::hooks::ResponseStatus,
                message: String,
            ) {
                self.status = status;
                self.message = message;
            }

            $(response!(@ $retry);)?
        }
    };
    (@ retry) => {
        fn retry_after_seconds(&self) -> i32 {
            self.retry_after_seconds
        }

        fn set_retry_after_seconds(&mut self, seconds: i32) {
            self.retry_after_seconds = seconds;
        }
    };
}

/// Implements [`Request`](crate::extension_config::catalog::Request) for a type with the field
/// `settings`.
macro_rules! request {
    ($type:ty) => {
        impl $crate::extension_config::catalog::Request for $type {
            fn settings_mut(
                &mut self,
            ) -> Option<&mut $crate::extension_config::catalog::hooks::Settings> {
                Some(&mut self.settings)
            }
        }
    };
}

pub(super) use {request, response};
