//! The criterion benches that `cargo bench` runs.

use crate::{
    Setup, keys,
    timers::delay,
    workloads::{cycle, fill_and_drain, fill_and_drain_priorities, produce_and_consume},
};
use criterion::{BatchSize, Criterion, Throughput};
use std::sync::Arc;

pub(crate) fn run() {
    let mut criterion = Criterion::default().configure_from_args();
    for (suffix, metrics) in [("", false), ("+metrics", true)] {
        bench(&mut criterion, suffix, &Setup::new(metrics, true));
    }
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion, suffix: &str, setup: &Setup) {
    let mut group = criterion.benchmark_group(format!("queue{suffix}"));
    let thousand = keys(1_000);
    let many = keys(100_000);

    group.throughput(Throughput::Elements(1_000));
    let queue = setup.queue();
    group.bench_function("steady", |b| {
        b.iter(|| cycle(&queue, &thousand, thousand.len()));
    });
    group.bench_function("filldrain-1k", |b| {
        b.iter(|| fill_and_drain(&queue, &thousand));
    });
    let filled = setup.queue();
    for key in &thousand {
        filled.add(key.clone());
    }
    group.bench_function("dedup-1k", |b| {
        b.iter(|| thousand.iter().for_each(|key| filled.add(key.clone())));
    });

    group
        .sample_size(10)
        .throughput(Throughput::Elements(many.len() as u64));
    group.bench_function("filldrain-100k", |b| {
        b.iter(|| fill_and_drain(&queue, &many));
    });
    group.bench_function("priorities-100k", |b| {
        b.iter(|| fill_and_drain_priorities(&queue, &many));
    });
    group.bench_function("add-after-100k", |b| {
        b.iter_batched_ref(
            || setup.queue(),
            |queue| {
                many.iter()
                    .enumerate()
                    .for_each(|(i, key)| queue.add_after(key.clone(), delay(i)));
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("rate-limited-100k", |b| {
        b.iter_batched_ref(
            || setup.queue(),
            |queue| {
                for key in &many {
                    queue.add_rate_limited(key.clone());
                }
            },
            BatchSize::PerIteration,
        );
    });
    let shared: Arc<[_]> = many.into();
    for (producers, workers) in [(1, 1), (8, 8)] {
        group.bench_function(format!("mpmc-{producers}p{workers}w"), |b| {
            b.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| produce_and_consume(&setup.queue(), &shared, producers, workers))
                    .sum()
            });
        });
    }
    group.finish();
}
