//! Call of one handler.

use super::{
    RuntimeClient,
    error::{CallError, CallFailure},
    exchange::{ExchangeError, Target, check_status},
    namespaces::ObjectNamespace,
    response_cache::{CacheEntry, CallOptions},
};
use crate::extension_config::{
    FailurePolicy,
    catalog::{Hook, Request, Response, hooks::ResponseStatus},
    registry::Registration,
};
use std::{borrow::Cow, collections::BTreeMap};
use steersman::object::ObjectKey;

impl RuntimeClient {
    /// Calls a handler by its registered name, `<handler>.<ExtensionConfig>`.
    ///
    /// Use it for hooks whose caller names the handler, such as the hooks of a `ClusterClass`.
    /// `for_object` is the object that the hook is called for. The handler must select its
    /// namespace. The request gets the settings of the `ExtensionConfig`, overridden by its own
    /// settings. The time limit of the handler includes opening a connection.
    ///
    /// With the failure policy `Ignore`, a failure of the HTTP step becomes a successful response
    /// without a message. A response with the status `Failure` or an unknown one is an error with
    /// both policies.
    ///
    /// The client repeats a request if the server closes an idle connection. Handlers must
    /// therefore be idempotent.
    ///
    /// Cancel safety: dropping the future closes the connection.
    pub async fn call_extension<H: Hook>(
        &self,
        for_object: &ObjectKey,
        name: &str,
        request: &H::Request,
        options: CallOptions<H>,
    ) -> Result<H::Response, CallError> {
        let result = self
            .try_call::<H>(for_object, name, request, &options)
            .await;
        result.map_err(|reason| CallError::Handler {
            handler: name.into(),
            reason,
        })
    }

    async fn try_call<H: Hook>(
        &self,
        for_object: &ObjectKey,
        name: &str,
        request: &H::Request,
        options: &CallOptions<H>,
    ) -> Result<H::Response, CallFailure> {
        let hook = H::group_version_hook();
        if !self.inner.catalog.contains(&hook) {
            return Err(CallFailure::UnknownHook(hook));
        }
        let registration = self.inner.registry.get(name)?;
        let served = &registration.hook;
        if (&served.group, &served.hook) != (&hook.group, &hook.hook) {
            return Err(CallFailure::OtherHook(hook.group_hook()));
        }
        let mut namespace = ObjectNamespace::new(&self.inner.client, for_object);
        let selector = &registration.namespace_selector;
        if !namespace.is_selected_by(selector).await? {
            return Err(CallFailure::NotSelected(for_object.clone()));
        }
        self.call_registration::<H>(&registration, request, options)
            .await
    }

    /// Calls a handler whose hook and namespaces were checked.
    pub(super) async fn call_registration<H: Hook>(
        &self,
        registration: &Registration,
        request: &H::Request,
        options: &CallOptions<H>,
    ) -> Result<H::Response, CallFailure> {
        if registration.hook.version != H::VERSION {
            return Err(CallFailure::OtherVersion(registration.hook.clone()));
        }
        let request = with_settings(request, &registration.settings);
        let cached = options.lookup(registration, &request);
        if let Some(response) = cached.as_ref().and_then(CacheEntry::response) {
            return Ok(response);
        }
        let suffix = format!(".{}", registration.extension_config_name);
        let target = Target {
            config: &registration.client_config,
            hook: &registration.hook,
            handler: registration
                .name
                .strip_suffix(&suffix)
                .unwrap_or(&registration.name),
            timeout: registration.timeout,
        };
        let response = match self.exchange::<H>(target, &request).await {
            Ok(response) => response,
            Err(ExchangeError::Http(error))
                if registration.failure_policy == FailurePolicy::Ignore =>
            {
                let (name, hook) = (&registration.name, H::NAME);
                tracing::warn!(%name, hook, %error, "call failed, ignored by failure policy");
                let mut response = H::Response::default();
                response.set_status(ResponseStatus::Success, String::new());
                return Ok(response);
            }
            Err(ExchangeError::Http(error)) => return Err(error.into()),
            Err(ExchangeError::Setup(error)) => return Err(error.into()),
        };
        check_status(&response)?;
        if let Some(entry) = cached {
            entry.store(&response);
        }
        Ok(response)
    }
}

/// Adds settings to a request. The request's own settings have precedence.
fn with_settings<'a, R: Request>(
    request: &'a R,
    settings: &BTreeMap<String, String>,
) -> Cow<'a, R> {
    if settings.is_empty() {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    if let Some(own) = request.settings_mut() {
        for (key, value) in settings {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    Cow::Owned(request)
}
