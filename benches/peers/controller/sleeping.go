// Reconciles that wait for something.
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
	// asleep is the namespace of those that sleep.
	asleep = "asleep"
)

// sleeping measures what 10,000 reconciles that sleep cost: the CPU time of the
// process while they do and 1,000 others per second come and go, less that
// of the same others before, in percent of a core.
func sleeping(implementation string, quick bool) ([]float64, error) {
	seconds := pick(quick, 1, 3)
	warm, loop := openloop.New(1_000, 1), openloop.New(1_000, seconds)
	awake, down := newCountdown(), newCountdown()
	reconciler := func(ctx context.Context, key types.NamespacedName) {
		if key.Namespace != asleep {
			awake.one()
			return
		}
		down.one()
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
	}
	var without, with time.Duration
	err := fed(implementation, sleepers+8, reconciler, func(add func(openloop.Key)) (err error) {
		if err := passed(warm, awake, add); err != nil {
			return err
		}
		pass := func() error { return passed(loop, awake, add) }
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
