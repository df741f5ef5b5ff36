// Package report prints measurements for xtask, one JSON line each.
package report

import (
	"encoding/json"
	"math"
	"os"
)

type row struct {
	Workload       string  `json:"workload"`
	Implementation string  `json:"implementation"`
	Unit           string  `json:"unit"`
	Value          float64 `json:"value"`
}

// Print writes one line for each workload, with the value at the same index.
func Print(workloads []string, implementation, unit string, values []float64) error {
	output := json.NewEncoder(os.Stdout)
	for i, value := range values {
		line := row{workloads[i], implementation, unit, math.Round(value*1000) / 1000}
		if err := output.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
