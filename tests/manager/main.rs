//! Tests of managers: order, shutdown, leader election, health and metrics.

mod admin;
mod browsers;
mod candidate_processes;
mod candidates;
mod clusters;
mod election;
mod health;
mod http_client;
mod leadership;
mod lifecycle_edge_cases;
mod limits;
mod metrics;
mod metrics_lint;
mod recorder;
mod shutdown;
mod signals;
mod start_order;
mod support;
mod tcp_proxy;
mod termination;
mod two_managers;
mod write_history;
