// Checks which implementations have metrics, and that the function of
// newAbsorbingQueue waits for delayed adds.
package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// samples returns the metrics of work queues in the process-wide registry by
// name: counter values and numbers of histogram observations, zero for gauges.
func samples(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		name, isQueue := strings.CutPrefix(family.GetName(), "workqueue_")
		if !isQueue {
			continue
		}
		for _, metric := range family.GetMetric() {
			found[name] += metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return found
}

func TestOnlyImplementationsWithMetricsReportThem(t *testing.T) {
	for _, implementation := range implementations {
		for _, build := range []func() (queue, func()){
			func() (queue, func()) { return newQueue(implementation), func() {} },
			func() (queue, func()) { return newAbsorbingQueue(implementation) },
		} {
			before := samples(t)
			q, _ := build()
			for _, k := range makeKeys(10) {
				q.Add(k)
				item, _ := q.Get()
				q.Done(item)
			}
			q.AddAfter(makeKeys(1)[0], time.Millisecond)
			item, _ := q.Get()
			q.Done(item)
			after := samples(t)
			q.ShutDown()

			if metricsName(implementation) == "" {
				if !maps.Equal(before, after) {
					t.Errorf("%s: metrics changed from %v to %v", implementation, before, after)
				}
				continue
			}
			names := slices.Sorted(maps.Keys(after))
			want := []string{
				"adds_total", "depth", "longest_running_processor_seconds", "queue_duration_seconds",
				"retries_total", "unfinished_work_seconds", "work_duration_seconds",
			}
			if !slices.Equal(names, want) {
				t.Errorf("%s: has %v, want %v", implementation, names, want)
			}
			for name, by := range map[string]float64{
				"adds_total": 11, "queue_duration_seconds": 11, "work_duration_seconds": 11, "retries_total": 1,
			} {
				if got := after[name] - before[name]; got != by {
					t.Errorf("%s: %s grew by %v, want %v", implementation, name, got, by)
				}
			}
		}
	}
}

func TestAbsorbWaitsForDelayedAdds(t *testing.T) {
	for _, implementation := range implementations {
		q, absorb := newAbsorbingQueue(implementation)
		for _, k := range makeKeys(5000) {
			q.AddAfter(k, time.Hour)
		}
		absorb()
		if ready := q.Len(); ready != 0 {
			t.Errorf("%s: %d keys are ready", implementation, ready)
		}
		q.ShutDown()
	}
}
