//! Logs to stderr, as text or JSON, with levels that can change at run time.
//!
//! Feature `logging`. This crate logs with `tracing` and is silent without a subscriber. [`init`]
//! sets one. A program with its own subscriber does not need this module. There is no global state
//! but that of `tracing`.
//!
//! ```
//! use steersman::logging::{self, Format, LoggingError};
//! use tracing::level_filters::LevelFilter;
//!
//! let levels = logging::init(Format::Json, "info,kube_client=warn")?;
//! tracing::info!(controller = "website", "started");
//! levels.set("steersman::cache", LevelFilter::DEBUG); // from now on
//! assert_eq!(levels.to_string(), "steersman::cache=debug,kube_client=warn,info");
//!
//! let twice = logging::init(Format::Human, "debug").unwrap_err();
//! assert!(matches!(twice, LoggingError::AlreadySet));
//! # Ok::<_, LoggingError>(())
//! ```

use serde::Serialize;
use std::{fmt, io::stderr};
use tracing::{Subscriber, level_filters::LevelFilter, subscriber::set_global_default};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{MakeWriter, layer},
    layer::SubscriberExt,
    reload,
};

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Text for a terminal.
    #[default]
    Human,
    /// One JSON object per line, for log collectors.
    ///
    /// Fields are beside `message`; the enclosing spans are in `spans`.
    Json,
}

/// Logs everything that passes the filter to stderr.
///
/// A filter is a level such as `info`, or a list with levels of targets:
/// `info,steersman::cache=debug,kube_client=off`. An empty filter is `info`.
pub fn init(format: Format, filter: &str) -> Result<Levels, LoggingError> {
    let (subscriber, levels) = subscriber(format, filter, stderr)?;
    set_global_default(subscriber).map_err(|_| LoggingError::AlreadySet)?;
    Ok(levels)
}

/// Returns a subscriber like that of [`init`], for any writer.
///
/// Use it with `tracing::subscriber::with_default` for a part of a program.
pub fn subscriber<W>(
    format: Format,
    filter: &str,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync, Levels), LoggingError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let targets = parse(filter)?;
    let (filter, handle) = reload::Layer::new(targets);
    let lines = layer().with_writer(writer).with_ansi(false);
    let lines = match format {
        Format::Human => lines.boxed(),
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(true)
            .boxed(),
    };
    Ok((Registry::default().with(filter).with(lines), Levels(handle)))
}

fn parse(filter: &str) -> Result<Targets, LoggingError> {
    let filter = if filter.trim().is_empty() {
        "info"
    } else {
        filter
    };
    filter.parse().map_err(
        |error: tracing_subscriber::filter::ParseError| LoggingError::Filter {
            filter: filter.to_owned(),
            reason: error.to_string(),
        },
    )
}

/// Handle to the log levels, which can change at any time.
///
/// Clones refer to the same levels. After the subscriber is dropped, changes have no effect.
#[derive(Clone)]
pub struct Levels(reload::Handle<Targets, Registry>);

/// Level of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TargetLevel {
    /// Module path or its prefix; `None` for all other targets.
    pub target: Option<String>,
    /// `off`, `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
}

impl Levels {
    /// Sets the level of a target such as `steersman::cache`.
    ///
    /// The longest matching target applies.
    pub fn set(&self, target: &str, level: LevelFilter) {
        self.change(|targets| *targets = std::mem::take(targets).with_target(target, level));
    }

    /// Sets the level of targets that have no level of their own.
    pub fn set_default(&self, level: LevelFilter) {
        self.change(|targets| *targets = std::mem::take(targets).with_default(level));
    }

    /// Replaces all levels by a filter, in the format of [`init`].
    pub fn replace(&self, filter: &str) -> Result<(), LoggingError> {
        let new = parse(filter)?;
        self.change(|targets| *targets = new);
        Ok(())
    }

    /// Returns all levels, those of the longest targets first.
    pub fn list(&self) -> Vec<TargetLevel> {
        let listed = self.0.with_current(|targets| {
            let named = targets
                .iter()
                .map(|(target, level)| (Some(target.to_owned()), level));
            let default = targets.default_level().map(|level| (None, level));
            let mut all: Vec<_> = named.chain(default).collect();
            all.sort_by_key(|(target, _)| std::cmp::Reverse(target.as_ref().map(String::len)));
            all.into_iter()
                .map(|(target, level)| TargetLevel {
                    target,
                    level: level.to_string(),
                })
                .collect()
        });
        listed.unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut Targets)) {
        // Fails only if the subscriber was dropped or a change panicked. There is nothing to change
        // then.
        drop(self.0.modify(change));
    }
}

/// Formats the levels as a filter.
impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |TargetLevel { target, level }| match target {
            Some(target) => format!("{target}={level}"),
            None => level,
        };
        f.write_str(
            &self
                .list()
                .into_iter()
                .map(shown)
                .collect::<Vec<_>>()
                .join(","),
        )
    }
}

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Levels").field(&self.to_string()).finish()
    }
}

/// Error of the configuration of logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// The process already has a subscriber.
    #[error(
        "cannot initialize logging: a global tracing subscriber is already set; call \
         `logging::init` once, before any other subscriber is set"
    )]
    AlreadySet,
    /// The filter is invalid.
    #[error(
        "invalid log filter `{filter}`: {reason}; use a level or directives, such as \
         `info,steersman::cache=debug`"
    )]
    Filter {
        /// Rejected filter.
        filter: String,
        /// Error of the parser.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use serde_json::Value;
    use std::{
        io::{self, Write},
        sync::Arc,
    };
    use tracing::subscriber::with_default;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut self.0.lock())).unwrap()
        }
    }

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(line);
            Ok(line.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn to(lines: &Lines) -> impl Fn() -> Lines + use<> {
        let lines = lines.clone();
        move || lines.clone()
    }

    #[test]
    fn a_level_changes_for_one_target_while_it_runs() {
        let lines = Lines::default();
        let (subscriber, levels) = subscriber(Format::Human, "warn", to(&lines)).unwrap();
        with_default(subscriber, || {
            let log = || {
                tracing::debug!(target: "shop::cache", "of the cache");
                tracing::debug!(target: "shop::client", "of the client");
                lines.take()
            };
            assert_eq!(log(), "");
            levels.set("shop::cache", LevelFilter::DEBUG);
            let output = log();
            assert!(
                output.contains("of the cache") && !output.contains("of the client"),
                "{output}"
            );
            levels.set_default(LevelFilter::DEBUG);
            assert!(log().contains("of the client"));
            levels.set("shop::cache", LevelFilter::OFF);
            assert!(!log().contains("of the cache"));
            assert_eq!(levels.to_string(), "shop::cache=off,debug");
            levels.replace("shop=trace").unwrap();
            assert!(log().contains("of the cache"));
        });
    }

    #[test]
    fn json_is_one_object_a_line_with_the_spans_around_it() {
        let lines = Lines::default();
        let (subscriber, _levels) = subscriber(Format::Json, "", to(&lines)).unwrap();
        with_default(subscriber, || {
            tracing::info_span!("reconcile", controller = "website").in_scope(|| {
                tracing::info_span!("inner").in_scope(|| tracing::info!(answer = 42, "said\nso"));
            });
        });
        let output = lines.take();
        let line: Value = serde_json::from_str(output.trim_end()).unwrap();
        assert_eq!(
            (&line["level"], &line["message"], &line["answer"]),
            (&"INFO".into(), &"said\nso".into(), &42.into())
        );
        assert_eq!(
            (&line["spans"][0]["controller"], &line["spans"][1]["name"]),
            (&"website".into(), &"inner".into())
        );
    }

    #[test]
    fn an_invalid_filter_is_an_error_with_an_example() {
        let error = parse("steersman=loud").unwrap_err().to_string();
        assert!(
            error.starts_with("invalid log filter `steersman=loud`: ")
                && error.contains("steersman::cache=debug"),
            "{error}"
        );
        let (subscriber, levels) = subscriber(Format::Human, "info", io::sink).unwrap();
        assert!(levels.replace("x=loud").is_err() && levels.to_string() == "info");
        drop(subscriber);
        levels.set("x", LevelFilter::DEBUG);
        assert_eq!(levels.list(), []);
    }
}
