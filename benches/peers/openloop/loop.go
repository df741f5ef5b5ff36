package openloop

import (
	"fmt"
	"os"
	"time"
)

// Tick is the interval of a producer of 10,000 keys or more per second. It sends
// one key per tick for 10,000 per second, ten for 100,000.
//
// The producer sleeps between ticks. A producer that spins would occupy a core.
// On a machine with two, measured threads would wait behind it for whole time
// slices, and subtracting its CPU time would hide theirs.
const Tick = 100 * time.Microsecond

// Loop sends distinct keys at a fixed rate.
type Loop struct {
	Keys []Key
	// Latencies are indexed by the number of the key.
	Latencies []time.Duration
	tick      time.Duration
	perTick   int
	start     time.Time
	sent      []time.Duration
}

// New returns a loop with an interval of Tick, or longer for lower rates.
func New(rate, seconds int) *Loop {
	keys := Keys(rate * seconds)
	tick := max(Tick, time.Second/time.Duration(rate))
	return &Loop{
		Keys:      keys,
		Latencies: make([]time.Duration, len(keys)),
		tick:      tick,
		perTick:   rate / int(time.Second/tick),
		sent:      make([]time.Duration, len(keys)),
	}
}

// Arrived records the arrival of a key. The consumer calls it first.
func (l *Loop) Arrived(name string) {
	now := time.Since(l.start)
	i := Number(name)
	l.Latencies[i] = now - l.sent[i]
}

// Produce sends the keys and records the times. It sends the keys of missed
// ticks at once.
func (l *Loop) Produce(send func(Key)) error {
	ticks, err := newTicker(l.tick)
	if err != nil {
		return err
	}
	defer ticks.stop()
	l.start = time.Now()
	for next := 0; next < len(l.Keys); {
		passed, err := ticks.wait()
		if err != nil {
			return err
		}
		end := min(next+passed*l.perTick, len(l.Keys))
		for ; next < end; next++ {
			l.sent[next] = time.Since(l.start)
			send(l.Keys[next])
		}
	}
	planned := l.tick * time.Duration(len(l.Keys)/l.perTick)
	if behind := time.Since(l.start) - planned; behind > 10*time.Millisecond {
		fmt.Fprintf(os.Stderr, "peers: the producer ended %v behind its rate\n", behind)
	}
	return nil
}
