//! The binary `steersman`. It says what is built so far; the first-party controllers join it as they land.

fn main() {
    println!(
        "steersman {}: a Kubernetes controller framework in Rust\n\
         \n\
         Built so far\n  \
           work queue           deduplicating, prioritised, rate-limited, introspectable   (steersman::workqueue)\n  \
           embedded API server  the real one's semantics, in process or on loopback       (steersman-apiserver)\n\
         \n\
         On the way, in this order\n  \
           informer cache and client, sources and controllers, manager,\n  \
           first-party controllers; then this command runs them, with nothing installed\n\
         \n\
         Next\n  \
           cargo run -p steersman-apiserver   a Kubernetes API on loopback, for kubectl too\n  \
           cargo xtask test          everything the project promises, checked\n  \
           cargo bench               the work queue, measured\n  \
           cargo xtask bench --peers the same beside client-go and controller-runtime (needs Go)",
        env!("CARGO_PKG_VERSION")
    );
}
