//go:build !linux

// Short sleeps elsewhere: as good as the runtime's timers are.
package main

import "time"

func preciseSleep(d time.Duration) {
	time.Sleep(d)
}
