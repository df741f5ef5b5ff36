package openloop

import (
	"math"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// ProcessTime returns the user and system time of the process during run.
func ProcessTime(run func() error) (time.Duration, error) {
	runtime.GC()
	before, err := processTime()
	if err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	after, err := processTime()
	return after - before, err
}

func processTime() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

// Percentiles sorts the samples and returns the nearest-rank percentiles of
// them in microseconds.
func Percentiles(samples []time.Duration, wanted ...float64) []float64 {
	slices.Sort(samples)
	values := make([]float64, len(wanted))
	for i, p := range wanted {
		rank := int(math.Ceil(p / 100 * float64(len(samples))))
		values[i] = Microseconds(samples[max(rank, 1)-1])
	}
	return values
}

// Microseconds converts a duration.
func Microseconds(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1000
}
