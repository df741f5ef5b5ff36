//! Options of a controller, and the defaults that they inherit.
//!
//! Order of precedence: options of the controller, defaults for its kind, defaults for all
//! controllers, built-in defaults.

use crate::{client::Consistency, reconcile::Error, source::SYNC_TIMEOUT};
use hashbrown::HashMap;
use kube_core::GroupVersionKind;
use std::{fmt, sync::Arc, time::Duration};

const STUCK_AFTER: Duration = Duration::from_mins(10);

/// Equals the longest `Retry-After` that the reflector waits for.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// Options of a controller.
///
/// A field that is `None` is inherited from the [`Defaults`] for the kind, then from those for all
/// controllers, then from the built-in default of the field.
///
/// ```
/// use std::time::Duration;
/// use steersman::controller::{Options, Retry};
///
/// let options = Options {
///     max_concurrent: Some(8),
///     reconcile_timeout: Some(Duration::from_secs(30)),
///     ..Options::default()
/// }
/// .on_error(|error, attempt| if attempt > 10 { Retry::GiveUp } else { Retry::Limited });
/// ```
#[derive(Clone, Default)]
pub struct Options {
    /// Number of requests reconciled concurrently, each in its own task. Default: 1.
    pub max_concurrent: Option<usize>,
    /// Time after which a reconcile is cancelled and fails. Default: no limit.
    pub reconcile_timeout: Option<Duration>,
    /// Reports a reconcile that runs for longer than this as stuck.
    ///
    /// Stuck reconciles are in [`ControllerReport::stuck`](super::ControllerReport::stuck), which
    /// `/debug/controllers` shows, and in the metric `steersman_controller_stuck_reconciles`. They
    /// continue to run: set [`Self::reconcile_timeout`] to end them. `Duration::MAX` reports none.
    /// Default: 10 minutes.
    pub stuck_after: Option<Duration>,
    /// Fails the check `controller/NAME` of `/readyz` while a reconcile is stuck.
    ///
    /// `/healthz` does not depend on stuck reconciles. Default: false.
    pub stuck_fails_readiness: Option<bool>,
    /// Longest `Retry-After` of the API server that a retry waits for. Zero ignores `Retry-After`.
    ///
    /// [`Failure::after`](crate::reconcile::Failure::after) and the delay of the limiter are not
    /// capped. Default: 5 minutes.
    pub max_retry_after: Option<Duration>,
    /// Time within which each source must have handled its initial events.
    ///
    /// If a source takes longer, the controller fails to start. Default: 2 minutes.
    pub sync_timeout: Option<Duration>,
    /// Runs the controller only while its manager is the leader. Default: true.
    pub needs_leader: Option<bool>,
    /// Starts the sources before the manager becomes the leader.
    ///
    /// The controller then reconciles immediately when it becomes the leader. Without leader
    /// election the option has no effect. Default: false.
    pub warmup: Option<bool>,
    /// Treats a panic of the reconciler as an error.
    ///
    /// If false, the panic propagates to the caller of the controller's task. Default: true.
    pub recover_panics: Option<bool>,
    /// Cancels a reconcile when its request is queued again.
    ///
    /// Use it for long reconciles that would start over anyway. The count of failed attempts is
    /// kept. Events of the reconcile's own writes queue the request as well: filter them out, or
    /// write at the end, or the reconcile never completes. Default: false.
    pub cancel_superseded: Option<bool>,
    /// Consistency of reads that do not specify one.
    ///
    /// * [`Consistency::Defer`]: a read of an object that the same reconcile wrote, and a list of a
    ///   kind that it wrote to, wait until the cache shows the write, at most 5 s. Other reads do
    ///   not wait. The next reconcile of the request starts once the caches show the writes, or
    ///   after 5 s.
    /// * [`Consistency::Block`]: reads wait for all writes of the client that reads. The next
    ///   reconcile is not held back.
    /// * [`Consistency::Ignore`]: reads do not wait, and the next reconcile is not held back.
    ///
    /// A write that was in flight when `reconcile_timeout` or `cancel_superseded` cancelled its
    /// reconcile is not waited for, because its result is unknown.
    ///
    /// Default: [`Consistency::Defer`].
    pub consistency: Option<Consistency>,
    /// Policy for errors: see [`Self::on_error`]. Default: [`Retry::Limited`].
    pub on_error: Option<OnError>,
}

/// Policy that decides about an error, given the number of the attempt.
pub type OnError = Arc<dyn Fn(&Error, u32) -> Retry + Send + Sync>;

/// Decision about a failed reconcile.
///
/// A retry waits at least for the server's `Retry-After` in the error, capped by
/// [`Options::max_retry_after`], and for [`Failure::after`](crate::reconcile::Failure::after).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Retries with the delay of the rate limiter.
    Limited,
    /// Retries after this delay.
    In(Duration),
    /// Retries immediately, in the order of the queue.
    Immediately,
    /// Does not retry. The count of failed attempts is reset.
    GiveUp,
}

impl Options {
    /// Sets the policy that decides about errors.
    ///
    /// `decide` receives the error and the number of the attempt. It is not called for
    /// [terminal](crate::reconcile::Failure::terminal) errors.
    #[must_use]
    pub fn on_error(self, decide: impl Fn(&Error, u32) -> Retry + Send + Sync + 'static) -> Self {
        Self {
            on_error: Some(Arc::new(decide)),
            ..self
        }
    }

    /// Fills the options that are not set from `other`.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            max_concurrent: self.max_concurrent.or(other.max_concurrent),
            reconcile_timeout: self.reconcile_timeout.or(other.reconcile_timeout),
            stuck_after: self.stuck_after.or(other.stuck_after),
            stuck_fails_readiness: self.stuck_fails_readiness.or(other.stuck_fails_readiness),
            max_retry_after: self.max_retry_after.or(other.max_retry_after),
            sync_timeout: self.sync_timeout.or(other.sync_timeout),
            needs_leader: self.needs_leader.or(other.needs_leader),
            warmup: self.warmup.or(other.warmup),
            recover_panics: self.recover_panics.or(other.recover_panics),
            cancel_superseded: self.cancel_superseded.or(other.cancel_superseded),
            consistency: self.consistency.or(other.consistency),
            on_error: self.on_error.or_else(|| other.on_error.clone()),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("max_concurrent", &self.max_concurrent)
            .field("reconcile_timeout", &self.reconcile_timeout)
            .field("stuck_after", &self.stuck_after)
            .field("stuck_fails_readiness", &self.stuck_fails_readiness)
            .field("max_retry_after", &self.max_retry_after)
            .field("sync_timeout", &self.sync_timeout)
            .field("needs_leader", &self.needs_leader)
            .field("warmup", &self.warmup)
            .field("recover_panics", &self.recover_panics)
            .field("cancel_superseded", &self.cancel_superseded)
            .field("consistency", &self.consistency)
            .field("on_error", &self.on_error.is_some())
            .finish()
    }
}

/// Options that controllers inherit, for all controllers or by kind.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// Options of every controller.
    pub all: Options,
    kinds: HashMap<(String, String), Options>,
}

impl Defaults {
    /// Creates defaults for all controllers.
    pub fn new(all: Options) -> Self {
        Self {
            all,
            ..Self::default()
        }
    }

    /// Sets the defaults of controllers for a group and kind, in every version.
    ///
    /// The kind of a controller is that of [`for_`](crate::builder::Builder::for_).
    #[must_use]
    pub fn kind(mut self, group: &str, kind: &str, options: Options) -> Self {
        self.kinds
            .insert((group.to_owned(), kind.to_owned()), options);
        self
    }

    pub(crate) fn under(&self, options: Options, kind: Option<&GroupVersionKind>) -> Options {
        let of_kind = kind.and_then(|gvk| self.kinds.get(&(gvk.group.clone(), gvk.kind.clone())));
        match of_kind {
            Some(of_kind) => options.or(of_kind),
            None => options,
        }
        .or(&self.all)
    }
}

/// Options with all defaults resolved.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "resolved fields of `Options`"
)]
pub(crate) struct Settings {
    pub(crate) max_concurrent: usize,
    pub(crate) reconcile_timeout: Option<Duration>,
    pub(crate) stuck_after: Duration,
    pub(crate) stuck_fails_readiness: bool,
    pub(crate) max_retry_after: Duration,
    pub(crate) sync_timeout: Duration,
    pub(crate) needs_leader: bool,
    pub(crate) warmup: bool,
    pub(crate) recover_panics: bool,
    pub(crate) cancel_superseded: bool,
    pub(crate) consistency: Consistency,
    pub(crate) on_error: Option<OnError>,
}

impl From<Options> for Settings {
    fn from(options: Options) -> Self {
        Self {
            max_concurrent: options.max_concurrent.unwrap_or(1),
            reconcile_timeout: options.reconcile_timeout,
            stuck_after: options.stuck_after.unwrap_or(STUCK_AFTER),
            stuck_fails_readiness: options.stuck_fails_readiness.unwrap_or(false),
            max_retry_after: options.max_retry_after.unwrap_or(MAX_RETRY_AFTER),
            sync_timeout: options.sync_timeout.unwrap_or(SYNC_TIMEOUT),
            needs_leader: options.needs_leader.unwrap_or(true),
            warmup: options.warmup.unwrap_or(false),
            recover_panics: options.recover_panics.unwrap_or(true),
            cancel_superseded: options.cancel_superseded.unwrap_or(false),
            consistency: options.consistency.unwrap_or_default(),
            on_error: options.on_error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(n: usize) -> Options {
        Options {
            max_concurrent: Some(n),
            ..Options::default()
        }
    }

    #[test]
    fn options_of_the_controller_override_those_of_the_kind_and_the_defaults() {
        let pod = GroupVersionKind::gvk("", "v1", "Pod");
        let timeout = |seconds| Some(Duration::from_secs(seconds));
        let all = Options {
            sync_timeout: timeout(7),
            reconcile_timeout: timeout(8),
            ..workers(2)
        };
        let defaults = Defaults::new(all).kind(
            "",
            "Pod",
            Options {
                reconcile_timeout: timeout(9),
                ..workers(3)
            },
        );

        let resolved = defaults.under(workers(4), Some(&pod));
        assert_eq!(
            (
                resolved.max_concurrent,
                resolved.reconcile_timeout,
                resolved.sync_timeout
            ),
            (Some(4), timeout(9), timeout(7))
        );
        let other_version = GroupVersionKind::gvk("", "v2", "Pod");
        assert_eq!(
            defaults
                .under(Options::default(), Some(&other_version))
                .max_concurrent,
            Some(3)
        );
        let other_group = GroupVersionKind::gvk("metrics.k8s.io", "v1", "Pod");
        assert_eq!(
            defaults
                .under(Options::default(), Some(&other_group))
                .max_concurrent,
            Some(2)
        );
        assert_eq!(
            defaults.under(Options::default(), None).max_concurrent,
            Some(2)
        );
    }

    #[test]
    fn unset_options_have_the_documented_defaults() {
        let settings = Settings::from(Options::default());
        assert_eq!(
            (settings.max_concurrent, settings.sync_timeout),
            (1, Duration::from_mins(2))
        );
        assert!(
            settings.recover_panics
                && !settings.cancel_superseded
                && settings.reconcile_timeout.is_none()
        );
        assert_eq!(settings.consistency, Consistency::Defer);
        assert_eq!(
            (settings.stuck_after, settings.max_retry_after),
            (Duration::from_mins(10), Duration::from_mins(5))
        );
        assert!(!settings.stuck_fails_readiness);
    }
}
