// Adds and updates of a store, and its heap. The store is that of informers,
// with an index by namespace.
package main

import (
	"fmt"
	"runtime"
	"time"

	"k8s.io/client-go/tools/cache"
)

const (
	count   = 100_000
	updates = 20_000
	// heapCount is a number of objects beyond which the heap per object does
	// not change.
	heapCount = 20_000
)

func memoryWorkloads() []workload {
	heap := func(name string, managed bool) workload {
		return workload{[]string{name}, "B", stores, func(implementation string, _ bool) ([]float64, error) {
			return heapPerObject(implementation, managed)
		}}
	}
	return []workload{heap("heap-per-object", false), heap("heap-per-object-managed", true)}
}

func writeWorkloads() []workload {
	return []workload{{[]string{"store-add-100k", "store-update"}, "ns", stores, addAndUpdate}}
}

func newStore() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func heapPerObject(implementation string, managed bool) ([]float64, error) {
	before := liveHeap()
	store := newStore()
	for _, object := range decoded(implementation, upTo(heapCount), firstRevision, managed) {
		if err := store.Add(object); err != nil {
			return nil, err
		}
	}
	after := liveHeap()
	if held := len(store.ListKeys()); held != heapCount {
		return nil, fmt.Errorf("%d objects are in the store instead of %d", held, heapCount)
	}
	runtime.KeepAlive(store)
	return []float64{(float64(after) - float64(before)) / heapCount}, nil
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

func addAndUpdate(implementation string, _ bool) ([]float64, error) {
	first := decoded(implementation, upTo(count), firstRevision, false)
	later := decoded(implementation, shuffled(count, updates), firstRevision+count, false)
	store := newStore()
	put := func(objects []object, put func(any) error) (float64, error) {
		start := time.Now()
		for _, object := range objects {
			if err := put(object); err != nil {
				return 0, err
			}
		}
		return nanoseconds(time.Since(start), len(objects)), nil
	}
	add, err := put(first, store.Add)
	if err != nil {
		return nil, err
	}
	update, err := put(later, store.Update)
	runtime.KeepAlive(first)
	return []float64{add, update}, err
}
