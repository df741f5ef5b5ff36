//! Controllers that run on [`steersman`], by nothing but what it gives to everybody.
//!
//! | module | what it does |
//! |---|---|
//! | [`endpoint`] | brings the endpoint of a control plane that Terraform has made to the objects of the Cluster API |

#![warn(missing_docs)]

pub mod endpoint;
