//go:build !linux

// The ticker on other systems. It uses the runtime's timers, which are less
// precise and drop missed ticks.
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
