// Heap bytes per key of a queue with a million keys, or a quarter of it with
// --quick, which gives its maps about the same load factor.
package main

import (
	"fmt"
	"runtime"
)

func memoryWorkloads() []workload {
	return []workload{
		{names: []string{"bytes-ready"}, unit: "B", run: bytesReady},
		{names: []string{"bytes-delayed"}, unit: "B", run: bytesDelayed},
		{names: []string{"bytes-limited"}, unit: "B", run: bytesLimited},
	}
}

func heldKeys(quick bool) []key {
	return makeKeys(pick(quick, 250_000, 1_000_000))
}

func bytesReady(implementation string, quick bool) ([]float64, error) {
	keys := heldKeys(quick)
	return heapPerKey(implementation, keys, func(q queue, _ func()) error {
		for _, k := range keys {
			q.Add(k)
		}
		return expectReady(q, len(keys))
	})
}

func bytesDelayed(implementation string, quick bool) ([]float64, error) {
	keys := heldKeys(quick)
	delays := longDelays(len(keys))
	values, err := heapPerKey(implementation, keys, func(q queue, absorb func()) error {
		for i, k := range keys {
			q.AddAfter(k, delays[i])
		}
		absorb()
		return expectReady(q, 0)
	})
	runtime.KeepAlive(delays)
	return values, err
}

// bytesLimited waits until the limiter's delay of 5 ms has passed for all keys.
// The result includes a ready key, the limiter's state of it, and memory that
// the queue has not released since the keys were delayed.
func bytesLimited(implementation string, quick bool) ([]float64, error) {
	keys := heldKeys(quick)
	return heapPerKey(implementation, keys, func(q queue, _ func()) error {
		for _, k := range keys {
			q.AddRateLimited(k)
		}
		return waitUntilReady(q, len(keys))
	})
}

func expectReady(q queue, want int) error {
	if got := q.Len(); got != want {
		return fmt.Errorf("%d keys are ready instead of %d", got, want)
	}
	return nil
}

// heapPerKey returns the growth of the live heap per key, from before the queue
// exists to when it is full. The keys are allocated before.
func heapPerKey(implementation string, keys []key, fill func(q queue, absorb func()) error) ([]float64, error) {
	before := liveHeap()
	q, absorb := newAbsorbingQueue(implementation)
	defer q.ShutDown()
	if err := fill(q, absorb); err != nil {
		return nil, err
	}
	// controller-runtime allocates its next add buffer with the size of the
	// last one. This empties the buffer, as a later add would.
	q.Len()
	q.Len()
	after := liveHeap()
	runtime.KeepAlive(keys)
	runtime.KeepAlive(q)
	return []float64{(float64(after) - float64(before)) / float64(len(keys))}, nil
}

// liveHeap collects garbage twice, because the first collection only releases
// objects with finalizers and pools.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
