// CPU time of reconciles that sleep.
package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"steersman.dev/benches/peers/openloop"
)

const (
	sleepers = 10_000
	// asleep is the namespace of the requests whose reconciles sleep.
	asleep = "asleep"
)

// sleeping measures the CPU time that 10,000 sleeping reconciles add to 1,000
// other reconciles per second, in percent of a core.
func sleeping(implementation string, quick bool) ([]float64, error) {
	seconds := pick(quick, 1, 3)
	warm, loop := openloop.New(1_000, 1), openloop.New(1_000, seconds)
	awake, down := newCountdown(), newCountdown()
	reconciler := func(ctx context.Context, key types.NamespacedName) {
		if key.Namespace != asleep {
			awake.decrement()
			return
		}
		down.decrement()
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
	}
	var without, with time.Duration
	err := runController(implementation, sleepers+8, reconciler, func(add func(openloop.Key)) (err error) {
		if err := produceAndWait(warm, awake, add); err != nil {
			return err
		}
		pass := func() error { return produceAndWait(loop, awake, add) }
		if without, err = openloop.ProcessTime(pass); err != nil {
			return err
		}
		down.expect(sleepers)
		for i := range sleepers {
			add(openloop.Key{Namespace: asleep, Name: fmt.Sprintf("object-%08d", i)})
		}
		down.wait()
		with, err = openloop.ProcessTime(pass)
		return err
	})
	return []float64{max(0, (with-without).Seconds()) / float64(seconds) * 100}, err
}
