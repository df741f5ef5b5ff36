//! Controllers that run on [`steersman`], by nothing but what it gives to everybody.
//!
//! | module | what it does |
//! |---|---|
//! | [`endpoint`] | brings the endpoint of a control plane that Terraform has made to the objects of the Cluster API |
//! | [`manifests`] | definitions and roles as YAML |

#![warn(missing_docs)]

pub mod endpoint;
pub mod manifests;
