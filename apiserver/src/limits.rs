//! Limits of connections, so that clients that do not finish their requests do not use up the
//! server.

use std::time::Duration;

/// Limits of the connections to a server.
///
/// The limits of bodies hold for [`service`](crate::ApiServer::service) too, the others only for
/// sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most open connections of one listener. Further clients wait until a connection is closed.
    /// Each watch takes one. Default: 1,000.
    pub max_connections: usize,
    /// Longest time until the head of the next request is complete. Idle connections are closed
    /// after it, too. Clients keep idle connections for 90 seconds; a shorter time closes some of
    /// them while a request is being sent. Default: 2 minutes.
    pub head_timeout: Duration,
    /// Longest time between two parts of a request body. The request is answered with 408 after it.
    /// Default: 30 seconds.
    pub body_idle_timeout: Duration,
    /// Longest time until a request body is complete. The request is answered with 408 after it.
    /// Default: 1 minute.
    pub body_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: 1_000,
            head_timeout: Duration::from_mins(2),
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_mins(1),
        }
    }
}
