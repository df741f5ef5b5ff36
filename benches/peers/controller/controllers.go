// Throughput, latency and CPU time of a controller with a reconciler that does
// nothing. Its source is a function.
package main

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"steersman.dev/benches/peers/openloop"
)

// first is the name of the request that is reconciled before the measurement.
const first = "first"

// options returns the defaults, including Prometheus metrics and recovery of
// panics, with the queue and the number of workers to measure.
func options(implementation string, workers int, reconciler reconcile.Reconciler) controller.Options {
	options := controller.Options{Reconciler: reconciler, MaxConcurrentReconciles: workers}
	if implementation == plain {
		options.UsePriorityQueue = new(false)
	}
	return options
}

// runController runs a controller until feed returns. The controller's source
// calls feed in a goroutine after a first reconcile.
func runController(implementation string, workers int, reconciler func(context.Context, types.NamespacedName), feed func(add func(openloop.Key)) error) error {
	ready := make(chan struct{})
	reconciling := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		if request.Name == first {
			close(ready)
		} else {
			reconciler(ctx, request.NamespacedName)
		}
		return reconcile.Result{}, nil
	})
	c, err := controller.NewUnmanaged("bench", options(implementation, workers, reconciling))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result := make(chan error, 1)
	feeding := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		add := func(key openloop.Key) {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName(key)})
		}
		go func() {
			add(openloop.Key{Name: first})
			<-ready
			result <- feed(add)
			cancel()
		}()
		return nil
	})
	if err := c.Watch(feeding); err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	return <-result
}

// countdown waits for a number of reconciles, at the cost of one atomic
// operation for each.
type countdown struct {
	left atomic.Int64
	over chan struct{}
}

func newCountdown() *countdown {
	return &countdown{over: make(chan struct{}, 1)}
}

func (c *countdown) expect(count int) {
	c.left.Store(int64(count))
}

func (c *countdown) decrement() {
	if c.left.Add(-1) == 0 {
		c.over <- struct{}{}
	}
}

func (c *countdown) wait() {
	<-c.over
}

// reconciles measures no-op reconciles per second of wall time. The source adds
// 100,000 distinct keys as fast as it can while the workers reconcile them, and
// again when all are reconciled.
func reconciles(workers int) func(string, bool) ([]float64, error) {
	return func(implementation string, quick bool) ([]float64, error) {
		keys := openloop.Keys(100_000)
		count := newCountdown()
		var elapsed time.Duration
		total := 0
		err := runController(implementation, workers, func(context.Context, types.NamespacedName) { count.decrement() }, func(add func(openloop.Key)) error {
			round := func(keys []openloop.Key) time.Duration {
				count.expect(len(keys))
				start := time.Now()
				for _, key := range keys {
					add(key)
				}
				count.wait()
				return time.Since(start)
			}
			round(keys[:10_000])
			for elapsed < pick(quick, 300*time.Millisecond, time.Second) {
				elapsed += round(keys)
				total += len(keys)
			}
			return nil
		})
		return []float64{float64(total) / elapsed.Seconds()}, err
	}
}

// latency measures the time from just before the source adds a key until the
// reconciler starts, at 10,000 keys per second.
func latency(implementation string, quick bool) ([]float64, error) {
	loop := openloop.New(10_000, pick(quick, 1, 2))
	count := newCountdown()
	count.expect(len(loop.Keys))
	arrived := func(_ context.Context, key types.NamespacedName) {
		loop.Arrived(key.Name)
		count.decrement()
	}
	err := runController(implementation, 8, arrived, func(add func(openloop.Key)) error {
		err := loop.Produce(add)
		count.wait()
		return err
	})
	return openloop.Percentiles(loop.Latencies, 50, 99), err
}

// cpu measures the CPU time of the process per reconcile at 10,000 per second,
// less that of the same producer when it adds nothing.
func cpu(implementation string, quick bool) ([]float64, error) {
	loop := openloop.New(10_000, pick(quick, 1, 2))
	count := newCountdown()
	var idle, used time.Duration
	err := runController(implementation, 8, func(context.Context, types.NamespacedName) { count.decrement() }, func(add func(openloop.Key)) (err error) {
		idle, err = openloop.ProcessTime(func() error {
			return loop.Produce(func(openloop.Key) {})
		})
		if err != nil {
			return err
		}
		used, err = openloop.ProcessTime(func() error { return produceAndWait(loop, count, add) })
		return err
	})
	return []float64{max(0, openloop.Microseconds(used-idle)) / float64(len(loop.Keys))}, err
}

// produceAndWait returns when every key of the loop is reconciled.
func produceAndWait(loop *openloop.Loop, count *countdown, add func(openloop.Key)) error {
	count.expect(len(loop.Keys))
	if err := loop.Produce(add); err != nil {
		return err
	}
	count.wait()
	return nil
}
