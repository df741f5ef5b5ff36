package openloop

import (
	"slices"
	"testing"
	"time"
)

func TestNumberInvertsKeys(t *testing.T) {
	for i, k := range Keys(12345) {
		if Number(k.Name) != i {
			t.Fatalf("%v is %d, want %d", k, Number(k.Name), i)
		}
	}
}

func TestPercentilesAreNearestRank(t *testing.T) {
	samples := make([]time.Duration, 200)
	for i := range samples {
		samples[len(samples)-1-i] = time.Duration(i+1) * time.Microsecond
	}
	if got := Percentiles(samples, 50, 99); !slices.Equal(got, []float64{100, 198}) {
		t.Errorf("got %v", got)
	}
}

func TestNewKeepsTheRequestedRate(t *testing.T) {
	for rate, want := range map[int]time.Duration{1_000: time.Millisecond, 10_000: Tick, 100_000: Tick} {
		loop := New(rate, 1)
		if loop.tick != want || len(loop.Keys)/loop.perTick != int(time.Second/want) {
			t.Errorf("%d per second: %d every %v", rate, loop.perTick, loop.tick)
		}
	}
}
