//! Discovery of the handlers of an extension server.

use super::{
    RuntimeClient,
    error::{DiscoveryError, DiscoveryFailure},
    exchange::{ExchangeError, Target, check_status},
    quote::shorten,
};
use crate::extension_config::{
    ExtensionConfig, ExtensionHandler, FailurePolicy,
    admission::dns,
    catalog::{
        Catalog, GroupVersionHook, Hook,
        hooks::{Discovery, DiscoveryHandler, DiscoveryRequest},
    },
    registered_name,
};
use kube::ResourceExt;
use std::{collections::HashSet, time::Duration};

/// Time limit of a discovery.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit in seconds of a handler without `timeoutSeconds`.
const DEFAULT_TIMEOUT_SECONDS: i32 = 10;

/// Maximum time limit in seconds of a handler.
const MAX_TIMEOUT_SECONDS: i32 = 30;

/// Maximum number of handlers, as in the CRD for the status.
const MAX_HANDLERS: usize = 512;

/// Maximum number of problems in an error.
const MAX_PROBLEMS: usize = 16;

impl RuntimeClient {
    /// Discovers the handlers of an extension server.
    ///
    /// Returns the handlers for the status of the `ExtensionConfig`, in the order of the response,
    /// with their registered names. Does not change the registry. The time limit is 10 s.
    ///
    /// Cancel safety: dropping the future closes the connection.
    ///
    /// Errors: there is no response, or the response is not valid. One invalid handler makes the
    /// whole response invalid. Equal failures have equal texts. A text from the server is cut.
    pub async fn discover(
        &self,
        config: &ExtensionConfig,
    ) -> Result<Vec<ExtensionHandler>, DiscoveryError> {
        tracing::debug!(name = config.name_any(), "discovering extension");
        self.try_discover(config)
            .await
            .map_err(|reason| DiscoveryError {
                extension: config.name_any(),
                reason,
            })
    }

    async fn try_discover(
        &self,
        config: &ExtensionConfig,
    ) -> Result<Vec<ExtensionHandler>, DiscoveryFailure> {
        let target = Target {
            config: &config.spec.client_config,
            hook: &Discovery::group_version_hook(),
            handler: "",
            timeout: TIMEOUT,
        };
        let response = self
            .exchange::<Discovery>(target, &DiscoveryRequest {})
            .await
            .map_err(|error| match error {
                ExchangeError::Setup(error) => DiscoveryFailure::Setup(error),
                ExchangeError::Http(error) => DiscoveryFailure::Http(error),
            })?;
        check_status(&response)?;
        let handlers = validate(&self.inner.catalog, response.handlers);
        let mut handlers = handlers.map_err(DiscoveryFailure::Invalid)?;
        for handler in &mut handlers {
            handler.name = registered_name(&handler.name, &config.name_any());
        }
        Ok(handlers)
    }
}

/// Sets defaults and returns the handlers.
///
/// Errors: a text for each problem, at most [`MAX_PROBLEMS`] and the number of further problems.
fn validate(
    catalog: &Catalog,
    handlers: Vec<DiscoveryHandler>,
) -> Result<Vec<ExtensionHandler>, Vec<String>> {
    if handlers.len() > MAX_HANDLERS {
        let problem = format!(
            "{} handlers are more than {MAX_HANDLERS}; distribute them over several extensions",
            handlers.len()
        );
        return Err(vec![problem]);
    }
    let mut names = HashSet::new();
    let mut problems = Vec::new();
    let mut valid = Vec::new();
    for handler in handlers {
        if !names.insert(handler.name.clone()) {
            problems.push(format!("duplicate name for handler {} found", handler.name));
        }
        valid.extend(validate_handler(catalog, handler, &mut problems));
    }
    if problems.is_empty() {
        return Ok(valid);
    }
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    let mut problems: Vec<_> = problems.iter().map(|text| shorten(text)).collect();
    if more > 0 {
        problems.push(format!("{more} more problems"));
    }
    Err(problems)
}

/// Returns the handler for the status. If it is not valid, adds its problems and returns `None`.
fn validate_handler(
    catalog: &Catalog,
    handler: DiscoveryHandler,
    problems: &mut Vec<String>,
) -> Option<ExtensionHandler> {
    let before = problems.len();
    let DiscoveryHandler {
        name,
        request_hook,
        timeout_seconds,
        failure_policy,
    } = handler;
    let reasons = dns::label_1123(&name);
    if !reasons.is_empty() {
        let reasons = reasons.join(" ");
        problems.push(format!("handler name {name} is not valid: [{reasons}]"));
    }
    let timeout = timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    if !(0..=MAX_TIMEOUT_SECONDS).contains(&timeout) {
        problems.push(format!(
            "handler {name} timeoutSeconds {timeout} must be between 0 and {MAX_TIMEOUT_SECONDS}"
        ));
    }
    let failure_policy = match failure_policy.as_deref() {
        None | Some("Fail") => FailurePolicy::Fail,
        Some("Ignore") => FailurePolicy::Ignore,
        Some(other) => {
            problems.push(format!(
                "handler {name} failurePolicy {other} must equal \"Ignore\" or \"Fail\""
            ));
            FailurePolicy::Fail
        }
    };
    let api_version = &request_hook.api_version;
    match parse_hook(api_version, &request_hook.hook) {
        None => problems.push(format!(
            "handler {name} requestHook APIVersion {api_version} is not valid: unexpected \
             GroupVersion string: {api_version}"
        )),
        Some(hook) if !catalog.contains(&hook) => problems.push(format!(
            "handler {name} requestHook {api_version}/{} is not in the Runtime SDK catalog",
            hook.hook
        )),
        Some(_) => {}
    }
    (problems.len() == before).then_some(ExtensionHandler {
        name,
        request_hook,
        // 0 means the default. The CRD does not allow 0 in the status.
        timeout_seconds: Some(timeout).filter(|&timeout| timeout > 0),
        failure_policy: Some(failure_policy),
    })
}

/// Returns the hook of a handler; `None` if the API version has more than one slash.
fn parse_hook(api_version: &str, hook: &str) -> Option<GroupVersionHook> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (!version.contains('/')).then(|| GroupVersionHook {
        group: group.into(),
        version: version.into(),
        hook: hook.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension_config::{
        HookReference,
        catalog::{HOOKS_API_VERSION, hooks::BeforeClusterCreate},
    };

    fn handler(name: &str) -> DiscoveryHandler {
        DiscoveryHandler {
            name: name.into(),
            request_hook: HookReference {
                api_version: HOOKS_API_VERSION.into(),
                hook: BeforeClusterCreate::NAME.into(),
            },
            timeout_seconds: None,
            failure_policy: None,
        }
    }

    fn check(handlers: Vec<DiscoveryHandler>) -> Result<Vec<ExtensionHandler>, Vec<String>> {
        validate(&Catalog::new().with::<BeforeClusterCreate>(), handlers)
    }

    #[test]
    fn absent_fields_have_defaults() {
        let handlers = check(vec![handler("a")]).expect("valid");
        assert_eq!(handlers[0].timeout_seconds, Some(10));
        assert_eq!(handlers[0].failure_policy, Some(FailurePolicy::Fail));
    }

    #[test]
    fn a_discovery_without_handlers_is_valid() {
        assert_eq!(check(Vec::new()), Ok(Vec::new()));
    }

    #[test]
    fn timeouts_from_0_to_30_are_valid() {
        let with_timeout = |timeout| DiscoveryHandler {
            timeout_seconds: Some(timeout),
            ..handler("a")
        };
        let stored = |timeout| check(vec![with_timeout(timeout)]).map(|it| it[0].timeout_seconds);
        assert_eq!(stored(0), Ok(None));
        assert_eq!(stored(30), Ok(Some(30)));
        for timeout in [-1, 31] {
            let text = format!("handler a timeoutSeconds {timeout} must be between 0 and 30");
            assert_eq!(stored(timeout), Err(vec![text]));
        }
    }

    #[test]
    fn all_problems_of_all_handlers_are_reported() {
        let mut unknown = handler("b");
        unknown.request_hook.hook = "Unknown".into();
        unknown.failure_policy = Some("Retry".into());
        let mut other = handler("c");
        other.request_hook.api_version = "a/b/c".into();
        let problems = check(vec![
            handler("a"),
            handler("a"),
            handler("A.b"),
            unknown,
            other,
        ]);
        let problems = problems.expect_err("invalid");
        assert_eq!(problems[0], "duplicate name for handler a found");
        assert!(problems[1].starts_with("handler name A.b is not valid: [a lowercase RFC 1123"));
        assert_eq!(
            problems[2..],
            [
                "handler b failurePolicy Retry must equal \"Ignore\" or \"Fail\"".to_owned(),
                format!(
                    "handler b requestHook {HOOKS_API_VERSION}/Unknown is not in the Runtime SDK \
                     catalog"
                ),
                "handler c requestHook APIVersion a/b/c is not valid: unexpected GroupVersion \
                 string: a/b/c"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn an_error_does_not_grow_with_the_response() {
        let handlers = (0..MAX_HANDLERS).map(|_| handler(&"x".repeat(100_000)));
        let problems = check(handlers.collect()).expect_err("invalid");
        assert_eq!(problems.len(), MAX_PROBLEMS + 1);
        assert!(problems.concat().len() < 100_000);
        let too_many = (0..=MAX_HANDLERS).map(|index| handler(&format!("h{index}")));
        let problems = check(too_many.collect()).expect_err("too many");
        assert!(problems[0].starts_with("513 handlers are more than 512;"));
    }
}
