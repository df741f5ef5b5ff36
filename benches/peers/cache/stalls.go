// The longest waits: of a writer while another goroutine lists all objects, and
// of a reader while a relist replaces them.
package main

import (
	"sync/atomic"
	"time"
)

func stallWorkloads() []workload {
	return []workload{
		{[]string{"update-while-list-max"}, "us", stores, updateWhileList},
		{[]string{"relist-stall-max"}, "us", stores, relistStall},
	}
}

// updateInterval is the interval of updates.
const updateInterval = 100 * time.Microsecond

func updateWhileList(implementation string, quick bool) ([]float64, error) {
	store, err := filled(implementation)
	if err != nil {
		return nil, err
	}
	changed := decoded(implementation, shuffled(count, pick(quick, 5_000, updates)), firstRevision+count, false)
	var stop atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for !stop.Load() {
			store.List()
		}
	}()
	var longest time.Duration
	for _, object := range changed {
		start := time.Now()
		if err := store.Update(object); err != nil {
			return nil, err
		}
		longest = max(longest, time.Since(start))
		for time.Since(start) < updateInterval {
		}
	}
	stop.Store(true)
	<-stopped
	return []float64{microseconds(longest)}, nil
}

func relistStall(implementation string, _ bool) ([]float64, error) {
	store, err := filled(implementation)
	if err != nil {
		return nil, err
	}
	keys := make([]string, count)
	for i, number := range shuffled(count, count) {
		keys[i] = podKey(number)
	}
	objects := decoded(implementation, upTo(count), firstRevision+2*count, false)
	list := make([]any, len(objects))
	for i, object := range objects {
		list[i] = object
	}
	var stop atomic.Bool
	longest := make(chan time.Duration)
	go func() {
		var worst time.Duration
		for i := 0; !stop.Load(); i++ {
			start := time.Now()
			_, _, _ = store.GetByKey(keys[i%count])
			worst = max(worst, time.Since(start))
		}
		longest <- worst
	}()
	// The reader starts meanwhile.
	time.Sleep(50 * time.Millisecond)
	if err := store.Replace(list, "1"); err != nil {
		return nil, err
	}
	stop.Store(true)
	return []float64{microseconds(<-longest)}, nil
}
