//! Reporter of events.

use super::{
    RecorderError,
    event_key::{WORD, cut},
};

/// Controller and host that report an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reporter {
    pub(super) controller: String,
    pub(super) instance: String,
}

impl Reporter {
    pub(super) fn new(controller: &str) -> Result<Self, RecorderError> {
        let host = hostname::get().map_or_else(
            |_| "unknown".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        Self::on(controller, &host)
    }

    fn on(controller: &str, host: &str) -> Result<Self, RecorderError> {
        if !is_qualified(controller) {
            return Err(RecorderError::Name(controller.to_owned()));
        }
        let instance = cut(&format!("{controller}-{host}"), WORD).to_owned();
        Ok(Self {
            controller: controller.to_owned(),
            instance,
        })
    }
}

/// Returns whether a name is valid: `web-operator` or `example.com/web-operator`.
fn is_qualified(text: &str) -> bool {
    let (prefix, name) = text
        .rsplit_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let of = |part: &str, most: usize, also: &[u8]| {
        let bytes = part.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        part.len() <= most
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || also.contains(byte))
            && ends
                .iter()
                .all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
    };
    let domain = |prefix: &str| {
        prefix.len() <= 253
            && prefix == prefix.to_ascii_lowercase()
            && prefix.split('.').all(|part| of(part, 253, b"-"))
    };
    of(name, 63, b"-_.") && prefix.is_none_or(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_and_host_are_valid_for_the_server() {
        let web = Reporter::on("example.com/web", "node-1").unwrap();
        assert_eq!(
            (&*web.controller, &*web.instance),
            ("example.com/web", "example.com/web-node-1")
        );
        let long = Reporter::on(&"c".repeat(63), &"h".repeat(100)).unwrap();
        assert_eq!((long.controller.len(), long.instance.len()), (63, 128));
        assert!(!Reporter::new("web").unwrap().instance.ends_with('-'));
    }

    #[test]
    fn a_name_that_the_server_would_reject_is_an_error() {
        for name in [
            "",
            "web operator",
            "-web",
            "web/",
            "/web",
            "A.com/web",
            "a/b/c",
            &"n".repeat(64),
        ] {
            let error = Reporter::on(name, "h").unwrap_err().to_string();
            assert!(error.contains("at most 63"), "{name}: {error}");
        }
    }
}
