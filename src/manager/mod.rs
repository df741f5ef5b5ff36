//! What runs a program: leader election.

pub mod election;
