// Open-loop workloads: a producer that keeps a fixed rate, eight workers, and
// the time or the CPU it takes to bring an item from one to the other.
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

const latencyWorkers = 8

func latencyWorkloads() []workload {
	return []workload{
		latency(10_000, []string{"latency-10k-p50", "latency-10k-p99"}, 50, 99),
		latency(100_000, []string{"latency-100k-p99"}, 99),
		{names: []string{"cpu-10k"}, unit: "us", run: cpu},
	}
}

// latency measures the time from just before Add to just after Get.
func latency(rate int, names []string, wanted ...float64) workload {
	run := func(implementation string, quick bool) ([]float64, error) {
		loop := newOpenLoop(rate, pick(quick, 1, 2))
		if err := loop.run(newQueue(implementation), spinUntil); err != nil {
			return nil, err
		}
		return percentiles(loop.latencies, wanted...), nil
	}
	return workload{names: names, unit: "us", run: run}
}

// cpu measures the CPU time of the whole process per item at 10,000 items per
// second, less that of the same producer without a queue. The producer sleeps
// between items here: one that spins keeps a core busy either way, so whatever
// the queue does on that core would vanish in the subtraction.
func cpu(implementation string, quick bool) ([]float64, error) {
	const rate = 10_000
	loop := newOpenLoop(rate, pick(quick, 1, 2))
	measure := func(run func(until waiter) error) (time.Duration, error) {
		ticks, err := newTicker(loop.gap)
		if err != nil {
			return 0, err
		}
		defer ticks.stop()
		runtime.GC()
		before := processTime()
		err = run(tickUntil(ticks))
		return processTime() - before, err
	}
	idle, err := measure(func(until waiter) error {
		return loop.pace(until, func(int) {})
	})
	if err != nil {
		return nil, err
	}
	used, err := measure(func(until waiter) error {
		return loop.run(newQueue(implementation), until)
	})
	return []float64{microseconds(used-idle) / float64(len(loop.keys))}, err
}

// processTime is the user and system time of this process so far.
func processTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// openLoop adds distinct keys at a fixed rate, however long the queue takes.
type openLoop struct {
	keys      []key
	gap       time.Duration
	start     time.Time
	added     []time.Duration
	latencies []time.Duration
}

func newOpenLoop(rate, seconds int) *openLoop {
	keys := makeKeys(rate * seconds)
	return &openLoop{
		keys:      keys,
		gap:       time.Second / time.Duration(rate),
		added:     make([]time.Duration, len(keys)),
		latencies: make([]time.Duration, len(keys)),
	}
}

// run sends every key through the queue, fills in the latencies and shuts the
// queue down.
func (l *openLoop) run(q queue, until waiter) error {
	working := startWorkers(q, latencyWorkers, len(l.keys), func(k key) {
		now := time.Since(l.start)
		i := number(k)
		l.latencies[i] = now - l.added[i]
	})
	defer working.stop()
	if err := l.pace(until, func(i int) { q.Add(l.keys[i]) }); err != nil {
		return err
	}
	working.wait()
	return nil
}

// pace calls add with every key's number, each at its time or, when the loop
// is behind, at once; it records when.
func (l *openLoop) pace(until waiter, add func(i int)) error {
	l.start = time.Now()
	for i := range l.keys {
		if err := until(l.start, time.Duration(i)*l.gap); err != nil {
			return err
		}
		l.added[i] = time.Since(l.start)
		add(i)
	}
	last := len(l.keys) - 1
	if behind := l.added[last] - time.Duration(last)*l.gap; behind > 10*time.Millisecond {
		fmt.Fprintf(os.Stderr, "peers: the producer ended %v behind its rate\n", behind)
	}
	return nil
}

// waiter returns when the given time since start has come.
type waiter func(start time.Time, offset time.Duration) error

// spinUntil polls the clock and yields to other goroutines in between, which
// keeps the rate to the microsecond and costs a core.
func spinUntil(start time.Time, offset time.Duration) error {
	for time.Since(start) < offset {
		runtime.Gosched()
	}
	return nil
}

// tickUntil leaves the CPU to others: it takes one tick of the loop's gap per
// item, and ticks that were missed at once.
func tickUntil(ticks *ticker) waiter {
	var owed uint64
	return func(time.Time, time.Duration) error {
		if owed == 0 {
			passed, err := ticks.wait()
			if err != nil {
				return err
			}
			owed = passed
		}
		owed--
		return nil
	}
}
