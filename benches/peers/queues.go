// The four implementations, with and without metrics, and how a workload waits
// until a queue has taken in all adds.
package main

import (
	"strings"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

const (
	clientGo              = "client-go"
	clientGoProm          = "client-go+prom"
	controllerRuntime     = "controller-runtime"
	controllerRuntimeProm = "controller-runtime+prom"
)

var implementations = []string{clientGo, clientGoProm, controllerRuntime, controllerRuntimeProm}

type queue = workqueue.TypedRateLimitingInterface[key]

// metricsName returns a name for implementations with metrics. Importing
// priorityqueue sets controller-runtime's Prometheus provider for the process.
// Both libraries use it only for queues with a name. An unnamed queue gets an
// empty implementation of the internal metrics interface.
func metricsName(implementation string) string {
	if strings.HasSuffix(implementation, "+prom") {
		return "bench"
	}
	return ""
}

func hasPriorities(implementation string) bool {
	return strings.HasPrefix(implementation, controllerRuntime)
}

// limiter returns the per-item part of both libraries' default, without
// client-go's token bucket.
func limiter() workqueue.TypedRateLimiter[key] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[key](5*time.Millisecond, 1000*time.Second)
}

func newQueue(implementation string) queue {
	if hasPriorities(implementation) {
		return newPriorityQueue(implementation)
	}
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter(),
		workqueue.TypedRateLimitingQueueConfig[key]{Name: metricsName(implementation)})
}

func newPriorityQueue(implementation string) priorityqueue.PriorityQueue[key] {
	return priorityqueue.New(metricsName(implementation), func(options *priorityqueue.Opts[key]) {
		options.RateLimiter = limiter()
	})
}

// newAbsorbingQueue returns the same queue as newQueue, and a function that
// waits until the queue has processed all earlier AddAfter and AddRateLimited
// calls.
//
// controller-runtime buffers adds, and Len empties that buffer.
//
// client-go sends delayed adds through a channel to one goroutine. The function
// adds a marker that is already due. The goroutine passes it to the inner queue
// after all earlier adds. markedQueue is that inner queue and reports the
// marker.
func newAbsorbingQueue(implementation string) (queue, func()) {
	if hasPriorities(implementation) {
		q := newPriorityQueue(implementation)
		return q, func() { q.Len() }
	}
	name := metricsName(implementation)
	inner := &markedQueue{
		Typed:  workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{Name: name}),
		marked: make(chan struct{}, 1),
	}
	q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter(), workqueue.TypedRateLimitingQueueConfig[key]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[key]{Name: name, Queue: inner}),
	})
	return q, func() {
		q.AddAfter(key{}, time.Nanosecond)
		<-inner.marked
	}
}

// markedQueue is client-go's plain queue, except that the empty key is
// reported instead of queued. That costs every other add one length check.
type markedQueue struct {
	*workqueue.Typed[key]
	marked chan struct{}
}

func (q *markedQueue) Add(item key) {
	if item.Namespace == "" {
		q.marked <- struct{}{}
		return
	}
	q.Typed.Add(item)
}
