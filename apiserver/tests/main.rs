//! The server from outside: requests and what comes back.

mod cases;
mod kube_rs;
mod support;
