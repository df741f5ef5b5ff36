//! Tests of the Cluster API modules on both servers.

mod api;
mod cluster;
mod external;
mod support;
