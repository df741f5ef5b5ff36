//! Controllers and what they are made of, as their users have them.

mod support;

mod drive;
mod sources;
