package openloop

import (
	"fmt"
	"os"
	"time"
)

// Tick is how often a producer of 10,000 keys or more per second wakes up. It
// sends one key each time for 10,000 per second, ten in a row for 100,000.
//
// It sleeps in between. A producer that spins fills one of the cores, and on a
// machine with two the kernel then lets threads of what is measured wait behind
// it for whole time slices; and no CPU time that it takes on that core would be
// left after subtracting what spinning alone takes.
const Tick = 100 * time.Microsecond

// Loop sends distinct keys at a fixed rate.
type Loop struct {
	Keys []Key
	// Latencies are by the key's number.
	Latencies []time.Duration
	tick      time.Duration
	perTick   int
	start     time.Time
	sent      []time.Duration
}

// New sends keys every Tick, or every whole part of a second if there are fewer.
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

// Arrived is to be called first thing where the key arrives.
func (l *Loop) Arrived(name string) {
	now := time.Since(l.start)
	i := Number(name)
	l.Latencies[i] = now - l.sent[i]
}

// Produce sends the keys, and records when. It makes up for ticks it missed at once.
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
