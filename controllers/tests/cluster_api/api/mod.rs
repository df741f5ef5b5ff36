//! Tests of `cluster_api`.

mod conditions;
mod deprecated;
mod owners;
mod patch;
mod patch_joined;
mod patch_retry;
mod paused;
mod predicates;
mod summary;
mod types;
