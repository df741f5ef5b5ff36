//go:build !linux

// Ticks elsewhere, as precise as the runtime's timers are and lost when missed.
package openloop

import "time"

type ticker struct {
	inner *time.Ticker
}

func newTicker(every time.Duration) (*ticker, error) {
	return &ticker{time.NewTicker(every)}, nil
}

func (t *ticker) wait() (int, error) {
	<-t.inner.C
	return 1, nil
}

func (t *ticker) stop() {
	t.inner.Stop()
}
