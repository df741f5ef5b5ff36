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
		if err := loop.run(newQueue(implementation)); err != nil {
			return nil, err
		}
		return percentiles(loop.latencies, wanted...), nil
	}
	return workload{names: names, unit: "us", run: run}
}

// cpu measures the CPU time of the whole process per item of the 10,000 per
// second loop, less that of the same producer without a queue.
func cpu(implementation string, quick bool) ([]float64, error) {
	loop := newOpenLoop(10_000, pick(quick, 1, 2))
	idle, err := processTimeOf(func() error {
		return loop.produce(func(key) {})
	})
	if err != nil {
		return nil, err
	}
	used, err := processTimeOf(func() error {
		return loop.run(newQueue(implementation))
	})
	return []float64{microseconds(used-idle) / float64(len(loop.keys))}, err
}

// processTimeOf is the user and system time this process takes during run.
func processTimeOf(run func() error) (time.Duration, error) {
	runtime.GC()
	before, err := processTime()
	if err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	after, err := processTime()
	return after - before, err
}

func processTime() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

// openLoop adds distinct keys at a fixed rate, however long the queue takes.
type openLoop struct {
	keys      []key
	perTick   int
	start     time.Time
	added     []time.Duration
	latencies []time.Duration
}

// tick is how often the producer wakes up. It adds one item each time for
// 10,000 per second, ten in a row for 100,000 per second.
//
// It sleeps in between. A producer that spins fills one of the cores, and on a
// machine with two the kernel then lets threads of the queue wait behind it for
// whole time slices; and no CPU time that the queue takes on that core would be
// left after subtracting what spinning alone takes.
const tick = 100 * time.Microsecond

func newOpenLoop(rate, seconds int) *openLoop {
	keys := makeKeys(rate * seconds)
	return &openLoop{
		keys:      keys,
		perTick:   rate / int(time.Second/tick),
		added:     make([]time.Duration, len(keys)),
		latencies: make([]time.Duration, len(keys)),
	}
}

// run sends every key through the queue, fills in the latencies and shuts the
// queue down.
func (l *openLoop) run(q queue) error {
	working := startWorkers(q, 8, len(l.keys), func(k key) {
		now := time.Since(l.start)
		i := number(k)
		l.latencies[i] = now - l.added[i]
	})
	defer working.stop()
	if err := l.produce(q.Add); err != nil {
		return err
	}
	working.wait()
	return nil
}

// produce adds the keys, and records when. It makes up for ticks it missed at once.
func (l *openLoop) produce(add func(key)) error {
	ticks, err := newTicker(tick)
	if err != nil {
		return err
	}
	defer ticks.stop()
	l.start = time.Now()
	for next := 0; next < len(l.keys); {
		passed, err := ticks.wait()
		if err != nil {
			return err
		}
		end := min(next+passed*l.perTick, len(l.keys))
		for ; next < end; next++ {
			l.added[next] = time.Since(l.start)
			add(l.keys[next])
		}
	}
	planned := tick * time.Duration(len(l.keys)/l.perTick)
	if behind := time.Since(l.start) - planned; behind > 10*time.Millisecond {
		fmt.Fprintf(os.Stderr, "peers: the producer ended %v behind its rate\n", behind)
	}
	return nil
}
