//! Call of all handlers of a hook.

use super::{
    RuntimeClient,
    error::{CallError, ListFailure},
    namespaces::ObjectNamespace,
    response_cache::CallOptions,
};
use crate::extension_config::{
    catalog::{Hook, Response, hooks::ResponseStatus},
    registry::Registration,
};
use std::sync::Arc;
use steersman::object::ObjectKey;

impl RuntimeClient {
    /// Calls all handlers of a hook that select the namespace of `for_object`.
    ///
    /// Use it for lifecycle hooks. Handlers are called one after another, in the order of
    /// their registered names. The first error of a handler, as in
    /// [`call_extension`](Self::call_extension), stops the calls.
    ///
    /// The returned response has the status `Success`, the messages that are not empty, joined by
    /// `, `, and the lowest `retryAfterSeconds` that is not 0. Other fields have their defaults.
    /// If the hook has no handlers, the response is successful.
    ///
    /// Cancel safety: dropping the future closes the connection. Later handlers are not called.
    pub async fn call_all_extensions<H: Hook>(
        &self,
        for_object: &ObjectKey,
        request: &H::Request,
    ) -> Result<H::Response, CallError> {
        let result = self.try_call_all::<H>(for_object, request).await;
        result.map_err(|error| CallError::Handlers {
            hook: H::group_version_hook().group_hook(),
            error: Box::new(error),
        })
    }

    /// Returns the registered names of the handlers that
    /// [`call_all_extensions`](Self::call_all_extensions) calls, in that order.
    pub async fn get_all_extensions<H: Hook>(
        &self,
        for_object: &ObjectKey,
    ) -> Result<Vec<String>, CallError> {
        let registrations = self.registrations::<H>(for_object).await?;
        let names = registrations.iter().map(|it| it.name.clone());
        Ok(names.collect())
    }

    async fn try_call_all<H: Hook>(
        &self,
        for_object: &ObjectKey,
        request: &H::Request,
    ) -> Result<H::Response, CallError> {
        let mut messages = Vec::new();
        let mut retry_after = 0;
        for registration in self.registrations::<H>(for_object).await? {
            let options = CallOptions::default();
            let response = self
                .call_registration::<H>(&registration, request, &options)
                .await
                .map_err(|reason| CallError::Handler {
                    handler: registration.name.clone(),
                    reason,
                })?;
            retry_after = lowest_non_zero(retry_after, response.retry_after_seconds());
            messages.push(response.message().to_owned());
        }
        messages.retain(|message| !message.is_empty());
        let mut response = H::Response::default();
        response.set_status(ResponseStatus::Success, messages.join(", "));
        response.set_retry_after_seconds(retry_after);
        Ok(response)
    }

    /// Returns the handlers of a hook for the namespace of an object.
    async fn registrations<H: Hook>(
        &self,
        for_object: &ObjectKey,
    ) -> Result<Vec<Arc<Registration>>, CallError> {
        let result = self.try_registrations::<H>(for_object).await;
        result.map_err(|reason| CallError::List {
            hook: H::group_version_hook().group_hook(),
            reason,
        })
    }

    async fn try_registrations<H: Hook>(
        &self,
        for_object: &ObjectKey,
    ) -> Result<Vec<Arc<Registration>>, ListFailure> {
        let hook = H::group_version_hook();
        if !self.inner.catalog.contains(&hook) {
            return Err(ListFailure::UnknownHook(hook));
        }
        let mut namespace = ObjectNamespace::new(&self.inner.client, for_object);
        let mut selected = Vec::new();
        for registration in self.inner.registry.list(&hook.group_hook())? {
            let selector = &registration.namespace_selector;
            let is_selected = namespace.is_selected_by(selector).await;
            if is_selected.map_err(|error| ListFailure::Namespace {
                handler: registration.name.clone(),
                error,
            })? {
                selected.push(registration);
            }
        }
        Ok(selected)
    }
}

/// Returns the lower of two numbers. 0 means that a number is not set.
fn lowest_non_zero(one: i32, other: i32) -> i32 {
    match (one, other) {
        (0, number) | (number, 0) => number,
        _ => one.min(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_retry_is_not_0() {
        for (one, other, lowest) in [(0, 0, 0), (0, 5, 5), (5, 0, 5), (3, 5, 3), (5, 3, 3)] {
            assert_eq!(lowest_non_zero(one, other), lowest, "{one} and {other}");
        }
    }
}
