// The Go peers of the controller benches: controller-runtime with both of its
// queues. One call runs one workload once and prints its measurements as JSON
// lines; see the README in the parent directory.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"steersman.dev/benches/peers/report"
)

const (
	withPriorities = "controller-runtime"
	plain          = "controller-runtime-plain"
)

// workload is run as a unit. It returns one value per name, in that order.
// Requesting any of the names prints all of them.
type workload struct {
	names           []string
	unit            string
	implementations []string
	run             func(implementation string, quick bool) ([]float64, error)
}

func workloads() []workload {
	both := []string{withPriorities, plain}
	return []workload{
		{[]string{"reconciles-1w"}, "reconciles/s", both, reconciles(1)},
		{[]string{"reconciles-8w"}, "reconciles/s", both, reconciles(8)},
		{[]string{"latency-10k-p50", "latency-10k-p99"}, "us", both, latency},
		{[]string{"cpu-per-reconcile"}, "us", both, cpu},
		{[]string{"sleeping-10k-cpu"}, "%", both, sleeping},
		// The queue does not affect watches.
		{[]string{"forbidden-neighbour"}, "reconciles/s", []string{withPriorities}, forbidden},
	}
}

func main() {
	// Logs are discarded, as in the Rust executables.
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	ctrllog.SetLogger(logr.Discard())
	os.Exit(run(os.Args[1:]))
}

func run(arguments []string) int {
	quick := slices.Contains(arguments, "--quick")
	arguments = slices.DeleteFunc(arguments, func(argument string) bool { return argument == "--quick" })
	switch {
	case slices.Equal(arguments, []string{"--list"}):
		fmt.Print(pairs())
		return 0
	case len(arguments) != 2:
		return usage(fmt.Sprintf("want a workload and an implementation, got %d argument(s)", len(arguments)))
	}
	return runOne(arguments[0], arguments[1], quick)
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
