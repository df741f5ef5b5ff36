// The ticker on Linux.
package openloop

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ticker wakes a goroutine at a fixed interval without occupying a core. It is a
// kernel timer that is read through the runtime's poller, like the connection of
// an informer. The runtime's own timers are up to a millisecond late.
type ticker struct {
	file *os.File
}

func newTicker(every time.Duration) (*ticker, error) {
	descriptor, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	period := unix.NsecToTimespec(every.Nanoseconds())
	setting := unix.ItimerSpec{Interval: period, Value: period}
	if err := unix.TimerfdSettime(descriptor, 0, &setting, nil); err != nil {
		return nil, err
	}
	return &ticker{os.NewFile(uintptr(descriptor), "timerfd")}, nil
}

// wait waits for the next tick, unless some have passed since the last call. It
// returns the number of ticks since the last call.
func (t *ticker) wait() (int, error) {
	var ticks [8]byte
	if _, err := t.file.Read(ticks[:]); err != nil {
		return 0, err
	}
	return int(binary.NativeEndian.Uint64(ticks[:])), nil
}

func (t *ticker) stop() {
	_ = t.file.Close()
}
