// Latency and CPU time of items from a producer with a fixed rate to eight
// workers.
package main

import "steersman.dev/benches/peers/openloop"

func latencyWorkloads() []workload {
	return []workload{
		latency(10_000, []string{"latency-10k-p50", "latency-10k-p99"}, 50, 99),
		latency(100_000, []string{"latency-100k-p99"}, 99),
		{names: []string{"cpu-10k"}, unit: "us", run: cpu},
	}
}

// latency measures the time from just before Add to just after Get.
func latency(rate int, names []string, wanted ...float64) workload {
	run := func(implementation string, quick bool) ([]float64, error) {
		loop := openloop.New(rate, pick(quick, 1, 2))
		if err := sendAll(newQueue(implementation), loop); err != nil {
			return nil, err
		}
		return openloop.Percentiles(loop.Latencies, wanted...), nil
	}
	return workload{names: names, unit: "us", run: run}
}

// cpu measures the CPU time of the process per item at 10,000 items per second,
// less that of the same producer without a queue.
func cpu(implementation string, quick bool) ([]float64, error) {
	loop := openloop.New(10_000, pick(quick, 1, 2))
	idle, err := openloop.ProcessTime(func() error {
		return loop.Produce(func(key) {})
	})
	if err != nil {
		return nil, err
	}
	used, err := openloop.ProcessTime(func() error {
		return sendAll(newQueue(implementation), loop)
	})
	return []float64{openloop.Microseconds(used-idle) / float64(len(loop.Keys))}, err
}

// sendAll sends every key through the queue, which records the latencies, and
// shuts the queue down.
func sendAll(q queue, loop *openloop.Loop) error {
	working := startWorkers(q, 8, len(loop.Keys), func(k key) { loop.Arrived(k.Name) })
	defer working.stop()
	if err := loop.Produce(q.Add); err != nil {
		return err
	}
	working.wait()
	return nil
}
