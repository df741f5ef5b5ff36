// Memory workloads: heap bytes per key of a queue that holds a million keys,
// or a quarter of a million with --quick, which fills its maps about as well.
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

// bytesLimited waits until the limiter's 5 ms have passed for all keys, so it
// is what a ready key takes plus what the limiter remembers of it, plus
// whatever the queue keeps of the room the keys took while they waited.
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

// heapPerKey is the growth of the live heap, divided by the number of keys,
// from before the queue exists to when it is full. The keys are alive all along.
func heapPerKey(implementation string, keys []key, fill func(q queue, absorb func()) error) ([]float64, error) {
	before := liveHeap()
	q, absorb := newAbsorbingQueue(implementation)
	defer q.ShutDown()
	if err := fill(q, absorb); err != nil {
		return nil, err
	}
	// controller-runtime sizes its next add buffer like the last one. This
	// leaves it with an empty one, as some later quiet add would.
	q.Len()
	q.Len()
	after := liveHeap()
	runtime.KeepAlive(keys)
	runtime.KeepAlive(q)
	return []float64{(float64(after) - float64(before)) / float64(len(keys))}, nil
}

// liveHeap collects twice, so that what the first collection only released
// (finalizers, pools) is gone too.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
