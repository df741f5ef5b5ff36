// Throughput of adds, gets and dones, on one or many goroutines.
package main

import (
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

func throughputWorkloads() []workload {
	return []workload{
		{names: []string{"steady"}, unit: "ns", run: steady},
		fillDrain("filldrain-1k", 1_000, 200, 1000, 100),
		fillDrain("filldrain-100k", 100_000, 2, 10, 10_000),
		fillDrain("filldrain-1m", 1_000_000, 1, 1, 100_000),
		manyToMany(1, 1),
		manyToMany(8, 8),
		manyToMany(64, 64),
		manyToMany(1, 64),
		{names: []string{"dedup-1m"}, unit: "ns", run: dedup},
		{names: []string{"priorities-100k"}, unit: "ns", run: priorities, prioritiesOnly: true},
	}
}

// steady adds, gets and finishes one key at a time, over 1024 keys in turn.
func steady(implementation string, quick bool) ([]float64, error) {
	keys := makeKeys(1024)
	items := pick(quick, 300_000, 2_000_000)
	q := newQueue(implementation)
	defer q.ShutDown()

	cycle := func(count int) {
		for i := range count {
			q.Add(keys[i%len(keys)])
			item, _ := q.Get()
			q.Done(item)
		}
	}
	cycle(items / 10)
	start := time.Now()
	cycle(items)
	return perItem(time.Since(start), items), nil
}

// fillDrain adds size distinct keys, then gets and finishes all of them, in
// several rounds on one queue. The first warm keys warm it up.
func fillDrain(name string, size, quickRounds, fullRounds, warm int) workload {
	run := func(implementation string, quick bool) ([]float64, error) {
		keys := makeKeys(size)
		rounds := pick(quick, quickRounds, fullRounds)
		q := newQueue(implementation)
		defer q.ShutDown()

		fill := func(keys []key) {
			for _, k := range keys {
				q.Add(k)
			}
		}
		fill(keys[:warm])
		drain(q, warm)
		start := time.Now()
		for range rounds {
			fill(keys)
			drain(q, size)
		}
		return perItem(time.Since(start), rounds*size), nil
	}
	return workload{names: []string{name}, unit: "ns", run: run}
}

func drain(q queue, count int) {
	for range count {
		item, _ := q.Get()
		q.Done(item)
	}
}

// manyToMany lets producers add equal shares of distinct keys while workers
// get and finish them. All goroutines exist before the measurement.
func manyToMany(producers, workerCount int) workload {
	run := func(implementation string, quick bool) ([]float64, error) {
		total := pick(quick, 200_000, 1_000_000)
		keys := makeKeys(total)
		q := newQueue(implementation)

		var producing sync.WaitGroup
		begin := make(chan struct{})
		for p := range producers {
			share := keys[p*total/producers : (p+1)*total/producers]
			producing.Go(func() {
				<-begin
				for _, k := range share {
					q.Add(k)
				}
			})
		}
		consuming := startWorkers(q, workerCount, total, func(key) {})
		start := time.Now()
		close(begin)
		consuming.wait()
		elapsed := time.Since(start)
		producing.Wait()
		consuming.stop()
		return perItem(elapsed, total), nil
	}
	return workload{names: []string{fmt.Sprintf("mpmc-%dp%dw", producers, workerCount)}, unit: "ns", run: run}
}

// dedup adds 1000 keys a thousand times each without a worker. The final Len
// makes controller-runtime apply the adds in its buffer.
func dedup(implementation string, _ bool) ([]float64, error) {
	const adds = 1_000_000
	keys := makeKeys(1_000)
	q := newQueue(implementation)
	defer q.ShutDown()

	start := time.Now()
	for i := range adds {
		q.Add(keys[i%len(keys)])
	}
	length := q.Len()
	elapsed := time.Since(start)
	if length != len(keys) {
		return nil, fmt.Errorf("the queue holds %d keys instead of %d", length, len(keys))
	}
	return perItem(elapsed, adds), nil
}

// priorities adds and drains keys of 100 priorities in turn.
func priorities(implementation string, quick bool) ([]float64, error) {
	const size = 100_000
	keys := makeKeys(size)
	rounds := pick(quick, 2, 5)
	var levels [100]int
	for i := range levels {
		levels[i] = i
	}
	q := newPriorityQueue(implementation)
	defer q.ShutDown()

	start := time.Now()
	for range rounds {
		for i, k := range keys {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &levels[i%len(levels)]}, k)
		}
		drain(q, size)
	}
	return perItem(time.Since(start), rounds*size), nil
}
