// The command line: picks one workload and one implementation, runs it once
// and prints its measurements as JSON lines.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"steersman.dev/benches/peers/report"
)

// workload is run as a unit. It returns one value per name, in that order.
// Requesting any of the names prints all of them.
type workload struct {
	names []string
	unit  string
	run   func(implementation string, quick bool) ([]float64, error)
	// prioritiesOnly excludes implementations without priorities.
	prioritiesOnly bool
}

func (w workload) supports(implementation string) bool {
	return !w.prioritiesOnly || hasPriorities(implementation)
}

func workloads() []workload {
	return slices.Concat(throughputWorkloads(), delayWorkloads(), latencyWorkloads(), memoryWorkloads())
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(arguments []string) int {
	var positional []string
	var quick, list bool
	for _, argument := range arguments {
		switch {
		case argument == "--quick":
			quick = true
		case argument == "--list":
			list = true
		case strings.HasPrefix(argument, "-"):
			return usage(fmt.Sprintf("unknown option %q", argument))
		default:
			positional = append(positional, argument)
		}
	}
	if list {
		if len(positional) > 0 || quick {
			return usage("--list takes no other argument")
		}
		fmt.Print(pairs())
		return 0
	}
	if len(positional) != 2 {
		return usage(fmt.Sprintf("want a workload and an implementation, got %d argument(s)", len(positional)))
	}
	return runOne(positional[0], positional[1], quick)
}

func runOne(name, implementation string, quick bool) int {
	all := workloads()
	found := slices.IndexFunc(all, func(w workload) bool { return slices.Contains(w.names, name) })
	if found < 0 {
		return usage(fmt.Sprintf("unknown workload %q", name))
	}
	chosen := all[found]
	if !slices.Contains(implementations, implementation) {
		return usage(fmt.Sprintf("unknown implementation %q", implementation))
	}
	if !chosen.supports(implementation) {
		return usage(fmt.Sprintf("%s has no priorities, so it cannot run %s", implementation, name))
	}

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
			for _, implementation := range implementations {
				if w.supports(implementation) {
					fmt.Fprintln(&lines, name, implementation)
				}
			}
		}
	}
	return lines.String()
}

func usage(problem string) int {
	var names []string
	for _, w := range workloads() {
		names = append(names, w.names...)
	}
	fmt.Fprintf(os.Stderr, "peers: %s\n\n", problem)
	fmt.Fprintln(os.Stderr, "usage: peers WORKLOAD IMPLEMENTATION [--quick]")
	fmt.Fprintln(os.Stderr, "       peers --list")
	fmt.Fprintln(os.Stderr, "\nworkloads:\n  "+strings.Join(names, "\n  "))
	fmt.Fprintln(os.Stderr, "implementations:\n  "+strings.Join(implementations, "\n  "))
	return 2
}
