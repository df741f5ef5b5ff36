//! What this machine is called.

use std::{env, fs};

/// In a pod, the pod's name. `localhost` where nobody says.
pub(crate) fn name() -> String {
    let told = |name: String| Some(name.trim().to_owned()).filter(|name| !name.is_empty());
    let kernel = fs::read_to_string("/proc/sys/kernel/hostname").ok().and_then(told);
    let variable = |name| env::var(name).ok().and_then(told);
    kernel.or_else(|| variable("HOSTNAME")).or_else(|| variable("COMPUTERNAME")).unwrap_or_else(|| "localhost".into())
}
