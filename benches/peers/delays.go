// Cost and lateness of delayed and rate-limited adds.
package main

import (
	"fmt"
	"os"
	"time"

	"steersman.dev/benches/peers/openloop"
)

func delayWorkloads() []workload {
	return []workload{
		{names: []string{"add-after-1m"}, unit: "ns", run: addAfter},
		{names: []string{"rate-limited-1m"}, unit: "ns", run: rateLimited},
		{names: []string{"add-after-lateness-p50", "add-after-lateness-p99"}, unit: "us", run: sparseLateness},
		{names: []string{"fire-100k-p50", "fire-100k-p99"}, unit: "us", run: fire},
	}
}

// addAfter inserts a million distinct keys due in one to two hours.
func addAfter(implementation string, _ bool) ([]float64, error) {
	keys := makeKeys(1_000_000)
	delays := longDelays(len(keys))
	q, absorb := newAbsorbingQueue(implementation)
	defer q.ShutDown()

	start := time.Now()
	for i, k := range keys {
		q.AddAfter(k, delays[i])
	}
	absorb()
	elapsed := time.Since(start)
	if ready := q.Len(); ready != 0 {
		return nil, fmt.Errorf("%d keys are ready an hour early", ready)
	}
	return perItem(elapsed, len(keys)), nil
}

// rateLimited adds a million distinct keys through the rate limiter. Their
// delay is the limiter's first one, 5 ms, so most of them become ready while
// later ones are still being added. The measurement ends when the queue has
// taken in every key; those of the last milliseconds are not ready yet.
func rateLimited(implementation string, _ bool) ([]float64, error) {
	keys := makeKeys(1_000_000)
	q, absorb := newAbsorbingQueue(implementation)
	defer q.ShutDown()

	start := time.Now()
	for _, k := range keys {
		q.AddRateLimited(k)
	}
	absorb()
	elapsed := time.Since(start)
	if err := waitUntilReady(q, len(keys)); err != nil {
		return nil, err
	}
	return perItem(elapsed, len(keys)), nil
}

// waitUntilReady returns when the queue holds exactly count ready keys.
func waitUntilReady(q queue, count int) error {
	deadline := time.Now().Add(time.Minute)
	for q.Len() != count {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d keys are ready after a minute instead of %d", q.Len(), count)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// sparseLateness delays one key at a time by 5 ms while a worker blocks in
// Get. The key is due 5 ms after the moment before the AddAfter call.
func sparseLateness(implementation string, quick bool) ([]float64, error) {
	const delay = 5 * time.Millisecond
	keys := makeKeys(pick(quick, 100, 200))
	q := newQueue(implementation)

	arrivals := make(chan time.Time)
	working := startWorkers(q, 1, len(keys), func(key) { arrivals <- time.Now() })
	lateness := make([]time.Duration, len(keys))
	for i, k := range keys {
		due := time.Now().Add(delay)
		q.AddAfter(k, delay)
		lateness[i] = (<-arrivals).Sub(due)
	}
	working.wait()
	working.stop()
	return lateValues(lateness)
}

// fire delays 100,000 keys so that one is due every 10 µs, from one second
// after the start, and lets eight workers get them.
func fire(implementation string, _ bool) ([]float64, error) {
	const (
		lead   = time.Second
		spread = time.Second
	)
	keys := makeKeys(100_000)
	due := make([]time.Duration, len(keys))
	for i := range due {
		due[i] = lead + spread*time.Duration(i)/time.Duration(len(keys))
	}
	lateness := make([]time.Duration, len(keys))
	q, absorb := newAbsorbingQueue(implementation)

	start := time.Now()
	working := startWorkers(q, 8, len(keys), func(k key) {
		now := time.Since(start)
		i := number(k)
		lateness[i] = now - due[i]
	})
	for i, k := range keys {
		q.AddAfter(k, due[i]-time.Since(start))
	}
	absorb()
	if inserted := time.Since(start); inserted > lead {
		fmt.Fprintf(os.Stderr, "peers: inserting took %v, past the first due time; lateness is overstated\n", inserted)
	}
	working.wait()
	working.stop()
	return lateValues(lateness)
}

func lateValues(lateness []time.Duration) ([]float64, error) {
	values := openloop.Percentiles(lateness, 50, 99)
	if lateness[0] < 0 {
		return nil, fmt.Errorf("a key arrived %v early", -lateness[0])
	}
	return values, nil
}
