// Records what the Go packages of server-side apply do with random inputs, as
// fixtures for the tests of structured-merge. See the README.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// M is an object.
type M = map[string]any

// L is a list.
type L = []any

const group = "example.com"

var names = []string{"a", "b", "c", "d", "e"}

// clone copies a value, with the number types that the API server decodes.
func clone(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var out any
	if err := kjson.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

// pick returns a random argument.
func pick[T any](r *rand.Rand, xs ...T) T { return xs[r.Intn(len(xs))] }

// sorted returns the keys of a map in order.
func sorted(m M) []string {
	ks := []string{}
	for k := range m {
		ks = append(ks, k)
	}
	sort.Strings(ks)
	return ks
}

// obj returns a copy of the value as an object.
func obj(o any) *unstructured.Unstructured { return &unstructured.Unstructured{Object: clone(o).(M)} }

// js returns the wire format of a set.
func js(s *fieldpath.Set) string {
	b, err := s.ToJSON()
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

// stable runs f several times and returns "*" if its text changes.
func stable(f func() string) string {
	first := f()
	for range 6 {
		if f() != first {
			return "*"
		}
	}
	return first
}

// write writes one case per line.
func write(path string, cases L) {
	var buf bytes.Buffer
	z, _ := gzip.NewWriterLevel(&buf, 9)
	z.Header.ModTime = time.Time{}
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	for _, c := range cases {
		if err := e.Encode(c); err != nil {
			panic(err)
		}
	}
	z.Close()
	if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
		panic(err)
	}
	fmt.Println(path, len(cases), buf.Len())
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: recorder DIRECTORY")
		os.Exit(2)
	}
	dir := os.Args[1]
	// RECORD_SEED selects other cases, and more of them, to look for differences.
	typedCount, managerCount, seed := int64(240), int64(260), int64(0)
	if text := os.Getenv("RECORD_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseInt(text, 10, 64); err != nil {
			panic(err)
		}
		typedCount, managerCount = 3000, 5000
	}
	write(filepath.Join(dir, "typed.jsonl.gz"), repeat(typedCount, seed, typedCase))
	write(filepath.Join(dir, "managers.jsonl.gz"), repeat(managerCount, seed, managerCase))
	write(filepath.Join(dir, "wire.jsonl.gz"), wireCases())
	write(filepath.Join(dir, "scale.jsonl.gz"), scaleCases())
	write(filepath.Join(dir, "builtin.jsonl.gz"), builtinCases(tableOfClientGo()))
	write(filepath.Join(dir, "openapi.jsonl.gz"), openapiCases())
}

// repeat records a case for each of the seeds after the first.
func repeat(count, first int64, record func(seed int64) M) L {
	cases := L{}
	for seed := range count {
		cases = append(cases, record(first+seed+1))
	}
	return cases
}

// tableOfClientGo returns the source file with the table of built-in kinds.
func tableOfClientGo() string {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	if err != nil {
		panic(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations/internal/internal.go")
}
