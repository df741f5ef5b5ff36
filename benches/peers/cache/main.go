// The Go peers of the cache benches: client-go's store and informers, and
// controller-runtime's reader. One call runs one workload once and prints its
// measurements as JSON lines; see the README in the parent directory.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"steersman.dev/benches/peers/report"
)

const (
	clientGo             = "client-go"
	clientGoUnstructured = "client-go-unstructured"
	controllerRuntime    = "controller-runtime"
)

// stores are the implementations with a store of their own. controller-runtime
// uses client-go's.
var stores = []string{clientGo, clientGoUnstructured}

// workload is run as a unit. It returns one value per name, in that order.
// Requesting any of the names prints all of them.
type workload struct {
	names           []string
	unit            string
	implementations []string
	run             func(implementation string, quick bool) ([]float64, error)
}

func workloads() []workload {
	return slices.Concat(memoryWorkloads(), writeWorkloads(), readWorkloads(), stallWorkloads(), handlerWorkloads(), liveWorkloads())
}

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	ctrllog.SetLogger(klog.Background())
	os.Exit(run(os.Args[1:]))
}

func run(arguments []string) int {
	var positional []string
	quick := false
	for _, argument := range arguments {
		switch {
		case argument == "--quick":
			quick = true
		case argument == "--list" && len(arguments) == 1:
			fmt.Print(pairs())
			return 0
		case argument == "--objects" && len(arguments) == 1:
			fmt.Println(podsHash())
			return 0
		case strings.HasPrefix(argument, "-"):
			return usage(fmt.Sprintf("%q means nothing here", argument))
		default:
			positional = append(positional, argument)
		}
	}
	if len(positional) != 2 {
		return usage(fmt.Sprintf("want a workload and an implementation, got %d argument(s)", len(positional)))
	}
	return runOne(positional[0], positional[1], quick)
}

func runOne(name, implementation string, quick bool) int {
	all := workloads()
	found := slices.IndexFunc(all, func(w workload) bool {
		return slices.Contains(w.names, name) && slices.Contains(w.implementations, implementation)
	})
	if found < 0 {
		return usage(fmt.Sprintf("%s cannot run %s", implementation, name))
	}
	chosen := all[found]
	values, err := chosen.run(implementation, quick)
	if err == nil {
		err = report.Print(chosen.names, implementation, chosen.unit, values)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "peers: %s %s: %v\n", name, implementation, err)
		return 1
	}
	return 0
}

// pairs lists every combination that runs, one "WORKLOAD IMPLEMENTATION" per line.
func pairs() string {
	var lines strings.Builder
	for _, w := range workloads() {
		for _, name := range w.names {
			for _, implementation := range w.implementations {
				fmt.Fprintln(&lines, name, implementation)
			}
		}
	}
	return lines.String()
}

func usage(problem string) int {
	fmt.Fprintf(os.Stderr, "peers: %s\n\nusage: peers WORKLOAD IMPLEMENTATION [--quick]; --list prints the pairs\n", problem)
	return 2
}

func pick[T any](quick bool, then, otherwise T) T {
	if quick {
		return then
	}
	return otherwise
}

func nanoseconds(elapsed time.Duration, items int) float64 {
	return float64(elapsed.Nanoseconds()) / float64(items)
}

func microseconds(elapsed time.Duration) float64 {
	return float64(elapsed.Nanoseconds()) / 1e3
}

// minimumDuration is the duration over which calls are averaged.
func minimumDuration(quick bool) time.Duration {
	return pick(quick, 100*time.Millisecond, 400*time.Millisecond)
}

// perCall returns the average nanoseconds of a call, after one call to warm up.
func perCall(quick bool, call func()) float64 {
	call()
	start := time.Now()
	calls := 0
	for calls == 0 || time.Since(start) < minimumDuration(quick) {
		call()
		calls++
	}
	return nanoseconds(time.Since(start), calls)
}
