// Package openloop sends keys at a fixed rate that does not depend on the
// consumer, and records the latency of each.
package openloop

import (
	"fmt"
	"runtime"
)

// Key has the layout of types.NamespacedName.
type Key struct {
	Namespace, Name string
}

// Keys returns n distinct keys of 28 bytes in 100 namespaces. Keys share the
// strings of the namespaces. It runs the garbage collector at the end, so that
// the measurement does not include this garbage.
func Keys(n int) []Key {
	var namespaces [100]string
	for i := range namespaces {
		namespaces[i] = fmt.Sprintf("namespace-%03d", i)
	}
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key{namespaces[i%len(namespaces)], fmt.Sprintf("object-%08d", i)}
	}
	runtime.GC()
	return keys
}

// Number returns the index of the key with this name from Keys.
func Number(name string) int {
	n := 0
	for _, digit := range []byte(name[len("object-"):]) {
		n = n*10 + int(digit-'0')
	}
	return n
}
