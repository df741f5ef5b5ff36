//! Controllers and what they are made of, as their users have them.

mod support;

mod channel;
mod drive;
mod examples;
mod handlers;
mod laters;
mod sources;
mod spans;
