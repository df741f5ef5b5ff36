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
		loop := newOpenLoop(implementation, rate, pick(quick, 1, 2))
		loop.run(spinUntil)
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
	loop := newOpenLoop(implementation, rate, pick(quick, 1, 2))
	before := processTime()
	loop.pace(sleepUntil, func(int) {})
	idle := processTime() - before

	runtime.GC()
	before = processTime()
	loop.run(sleepUntil)
	used := processTime() - before
	return []float64{microseconds(used-idle) / float64(len(loop.keys))}, nil
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
	queue     queue
	keys      []key
	gap       time.Duration
	start     time.Time
	added     []time.Duration
	latencies []time.Duration
}

func newOpenLoop(implementation string, rate, seconds int) *openLoop {
	keys := makeKeys(rate * seconds)
	return &openLoop{
		queue:     newQueue(implementation),
		keys:      keys,
		gap:       time.Second / time.Duration(rate),
		added:     make([]time.Duration, len(keys)),
		latencies: make([]time.Duration, len(keys)),
	}
}

// run sends every key through the queue and fills in the latencies.
func (l *openLoop) run(until waiter) {
	working := startWorkers(l.queue, latencyWorkers, len(l.keys), func(k key) {
		now := time.Since(l.start)
		i := number(k)
		l.latencies[i] = now - l.added[i]
	})
	l.pace(until, func(i int) { l.queue.Add(l.keys[i]) })
	working.wait()
	working.stop()
}

// pace calls add with every key's number, each at its time or, when the loop
// is behind, at once; it records when.
func (l *openLoop) pace(until waiter, add func(i int)) {
	l.start = time.Now()
	for i := range l.keys {
		until(l.start, time.Duration(i)*l.gap)
		l.added[i] = time.Since(l.start)
		add(i)
	}
	last := len(l.keys) - 1
	if behind := l.added[last] - time.Duration(last)*l.gap; behind > 10*time.Millisecond {
		fmt.Fprintf(os.Stderr, "peers: the producer ended %v behind its rate\n", behind)
	}
}

// waiter returns when the given time since start has come.
type waiter func(start time.Time, offset time.Duration)

// spinUntil polls the clock and yields to other goroutines in between: sleeps
// of the Go runtime can be a millisecond too long.
func spinUntil(start time.Time, offset time.Duration) {
	for time.Since(start) < offset {
		runtime.Gosched()
	}
}

// sleepUntil leaves the CPU to others.
func sleepUntil(start time.Time, offset time.Duration) {
	for {
		left := offset - time.Since(start)
		if left <= 0 {
			return
		}
		preciseSleep(left)
	}
}
