// The keys of all workloads, and their delays.
package main

import (
	"math/rand/v2"
	"time"

	"steersman.dev/benches/peers/openloop"
)

type key = openloop.Key

func makeKeys(n int) []key {
	return openloop.Keys(n)
}

// number returns the index of a key from makeKeys.
func number(k key) int {
	return openloop.Number(k.Name)
}

// longDelays returns n delays between one and two hours, the same ones every time.
func longDelays(n int) []time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	delays := make([]time.Duration, n)
	for i := range delays {
		delays[i] = time.Hour + time.Duration(random.Int64N(int64(time.Hour)))
	}
	return delays
}
