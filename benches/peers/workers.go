// The workers of the workloads.
package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// workers get, handle and finish items until they have processed all.
type workers struct {
	queue    queue
	group    sync.WaitGroup
	finished chan struct{}
}

// startWorkers starts count goroutines that stop after total items. Each item
// costs one shared atomic increment in addition to the queue's work. The count
// is needed because a priority queue drops its items when it shuts down. handle
// is called directly after Get.
func startWorkers(q queue, count, total int, handle func(key)) *workers {
	w := &workers{queue: q, finished: make(chan struct{})}
	var processed atomic.Int64
	for range count {
		w.group.Go(func() {
			for {
				item, shutdown := q.Get()
				if shutdown {
					return
				}
				handle(item)
				q.Done(item)
				if processed.Add(1) == int64(total) {
					close(w.finished)
				}
			}
		})
	}
	return w
}

// wait returns when the last item is done.
func (w *workers) wait() {
	<-w.finished
}

// stop shuts the queue down and returns when the goroutines have ended.
func (w *workers) stop() {
	w.queue.ShutDown()
	w.group.Wait()
}

// perItem returns the wall time per item in nanoseconds.
func perItem(elapsed time.Duration, items int) []float64 {
	return []float64{float64(elapsed.Nanoseconds()) / float64(items)}
}

func pick(quick bool, reduced, full int) int {
	if quick {
		return reduced
	}
	return full
}
