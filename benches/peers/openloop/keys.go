// Package openloop sends keys at a fixed rate, however long it takes to get
// rid of them, and tells how long each of them took.
package openloop

import (
	"fmt"
	"runtime"
)

// Key has the layout of types.NamespacedName.
type Key struct {
	Namespace, Name string
}

// Keys returns n distinct keys of 28 bytes: 100 namespaces (one string shared
// by the keys in it) and a name of its own for each. It collects the garbage
// this leaves behind, so that no workload pays for it.
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

// Number is the index that Keys gave the key of that name.
func Number(name string) int {
	n := 0
	for _, digit := range []byte(name[len("object-"):]) {
		n = n*10 + int(digit-'0')
	}
	return n
}
