//! Fields that requests and responses share.

use serde::{Deserialize, Deserializer, Serialize};
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

/// Deserializes `null` as the default, because Go writes empty lists and bytes as `null`.
pub(super) fn null_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares a hook and binds it to its request and response types.
macro_rules! hook {
    ($(#[$meta:meta])* $hook:ident($request:ty) -> $response:ty) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $hook;

        impl $crate::extension_config::catalog::Hook for $hook {
            const NAME: &'static str = stringify!($hook);
            type Request = $request;
            type Response = $response;
        }
    };
}

/// Declares a response with the fields `status`, `message` and, with `retry`,
/// `retry_after_seconds`.
macro_rules! plain_response {
    ($(#[$meta:meta])* $type:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $type {
            /// Status of the call.
            #[serde(default, deserialize_with = "super::common::null_default")]
            pub status: $crate::extension_config::catalog::hooks::ResponseStatus,
            /// Message for people.
            #[serde(
                default,
                deserialize_with = "super::common::null_default",
                skip_serializing_if = "String::is_empty"
            )]
            pub message: String,
        }

        super::common::response!($type);
    };
    ($(#[$meta:meta])* $type:ident, retry) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $type {
            /// Status of the call.
            #[serde(default, deserialize_with = "super::common::null_default")]
            pub status: $crate::extension_config::catalog::hooks::ResponseStatus,
            /// Message for people.
            #[serde(
                default,
                deserialize_with = "super::common::null_default",
                skip_serializing_if = "String::is_empty"
            )]
            pub message: String,
            /// Delay in seconds until Cluster API calls the hook again. 0: the hook blocks nothing.
            #[serde(default, deserialize_with = "super::common::null_default")]
            pub retry_after_seconds: i32,
        }

        super::common::response!($type, retry);
    };
}

/// Implements [`Response`](crate::extension_config::catalog::Response) for a type with the fields
/// `status`, `message` and, with `retry`, `retry_after_seconds`.
macro_rules! response {
    ($type:ty) => {
        super::common::response!($type,);
    };
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

            $(super::common::response!(@ $retry);)?
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

pub(super) use {hook, plain_response, request, response};
