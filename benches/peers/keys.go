// The keys every workload uses, and how a key leads back to its number.
package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

// key has the layout of types.NamespacedName.
type key struct {
	Namespace, Name string
}

// makeKeys returns n distinct keys of 28 bytes: 100 namespaces (one string
// shared by the keys in it) and a name of its own for each. It collects the
// garbage this leaves behind, so that no workload pays for it.
func makeKeys(n int) []key {
	var namespaces [100]string
	for i := range namespaces {
		namespaces[i] = fmt.Sprintf("namespace-%03d", i)
	}
	keys := make([]key, n)
	for i := range keys {
		keys[i] = key{namespaces[i%len(namespaces)], fmt.Sprintf("object-%08d", i)}
	}
	runtime.GC()
	return keys
}

// number is the index makeKeys gave the key.
func number(k key) int {
	n := 0
	for _, digit := range []byte(k.Name[len("object-"):]) {
		n = n*10 + int(digit-'0')
	}
	return n
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
