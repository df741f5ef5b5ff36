// Short sleeps on Linux.
package main

import (
	"syscall"
	"time"
)

// preciseSleep blocks the thread in the kernel's nanosleep, because the
// runtime's own timers round short sleeps up to a millisecond. The thread's
// timer slack, 50 µs unless changed, is lowered every time: the goroutine may
// run on a different thread by now. An early return is the caller's business.
func preciseSleep(d time.Duration) {
	const setTimerSlack = 29 // PR_SET_TIMERSLACK
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0)
	left := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&left, nil)
}
