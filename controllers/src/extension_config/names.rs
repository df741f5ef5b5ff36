//! Names of registered handlers.

/// Error of splitting a registered name that does not have two parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "registered handler name {0} was not in the expected format (`HANDLER_NAME.EXTENSION_NAME)"
)]
pub struct NameError(pub String);

/// Returns the name under which a handler of an `ExtensionConfig` is registered.
///
/// ```
/// use steersman_controllers::extension_config::{registered_name, split_registered_name};
///
/// let name = registered_name("check-quota", "quota");
/// assert_eq!(name, "check-quota.quota");
/// assert_eq!(split_registered_name(&name), Ok(("check-quota", "quota")));
/// ```
pub fn registered_name(handler: &str, config: &str) -> String {
    format!("{handler}.{config}")
}

/// Returns the name of the handler and the name of its `ExtensionConfig`.
///
/// Neither of the two has a dot, because both are DNS labels.
///
/// Errors: [`NameError`] if the name does not have exactly one dot.
pub fn split_registered_name(name: &str) -> Result<(&str, &str), NameError> {
    match name.split_once('.') {
        Some((handler, config)) if !config.contains('.') => Ok((handler, config)),
        _ => Err(NameError(name.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_name_has_exactly_one_dot() {
        assert_eq!(split_registered_name("a.b"), Ok(("a", "b")));
        for name in ["", "a", "a.b.c", "a..b"] {
            let error = split_registered_name(name).expect_err(name);
            assert_eq!(
                error.to_string(),
                format!(
                    "registered handler name {name} was not in the expected format \
                     (`HANDLER_NAME.EXTENSION_NAME)"
                )
            );
        }
    }
}
