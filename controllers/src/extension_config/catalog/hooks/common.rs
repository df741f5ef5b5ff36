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

/// Declares a struct of the wire format. A field that is missing or `null` is the default, as in Go.
macro_rules! wire {
    (
        $(#[$meta:meta])*
        pub struct $type:ident { $($(#[$field_meta:meta])* pub $field:ident: $of:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $type {
            $(
                $(#[$field_meta])*
                #[serde(default, deserialize_with = "super::common::null_default")]
                pub $field: $of,
            )*
        }
    };
}

/// Declares a request with the field `settings` and others.
macro_rules! request {
    ($(#[$meta:meta])* pub struct $type:ident { $($fields:tt)* }) => {
        super::common::wire! {
            $(#[$meta])*
            pub struct $type {
                /// Settings of the handler.
                #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
                pub settings: $crate::extension_config::catalog::hooks::Settings,
                $($fields)*
            }
        }

        impl $crate::extension_config::catalog::Request for $type {
            fn settings_mut(
                &mut self,
            ) -> Option<&mut $crate::extension_config::catalog::hooks::Settings> {
                Some(&mut self.settings)
            }
        }
    };
}

/// Declares a response with the fields `status`, `message` and others.
macro_rules! response {
    ($(#[$meta:meta])* pub struct $type:ident { $($fields:tt)* } $($methods:item)*) => {
        super::common::wire! {
            $(#[$meta])*
            pub struct $type {
                /// Status of the call.
                pub status: $crate::extension_config::catalog::hooks::ResponseStatus,
                /// Message for people.
                #[serde(skip_serializing_if = "String::is_empty")]
                pub message: String,
                $($fields)*
            }
        }

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

            $($methods)*
        }
    };
}

/// Declares a response with the fields `status`, `message` and `retry_after_seconds`.
macro_rules! retry_response {
    ($(#[$meta:meta])* pub struct $type:ident {}) => {
        super::common::response! {
            $(#[$meta])*
            pub struct $type {
                /// Delay in seconds until Cluster API calls the hook again. 0: the hook blocks nothing.
                pub retry_after_seconds: i32,
            }

            fn retry_after_seconds(&self) -> i32 {
                self.retry_after_seconds
            }

            fn set_retry_after_seconds(&mut self, seconds: i32) {
                self.retry_after_seconds = seconds;
            }
        }
    };
}

pub(super) use {hook, request, response, retry_response, wire};
