package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/stats"
)

// parse parses JSON. Its error names the key whose value is of the wrong type.
func parse(data []byte, to any) error {
	err := json.Unmarshal(data, to)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong):
		return fmt.Errorf("not a job's report: not JSON: %w; %s", err, expectedReport)
	}
	var keys []string
	for key := range strings.SplitSeq(wrong.Field, ".") {
		// Names in upper case are of structs that are embedded, which JSON does not have.
		if key != "" && strings.ToLower(key[:1]) == key[:1] {
			keys = append(keys, key)
		}
	}
	return fmt.Errorf("not a job's report: %s is a %s, and must be %s (at byte %d); %s",
		strings.Join(keys, "."), wrong.Value, nameOf(wrong.Type.Kind()), wrong.Offset,
		expectedReport)
}

// nameOf names a type as JSON has it.
func nameOf(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	case reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// mostRate is the largest rate that can have been measured, in MB/s.
const mostRate = 1e9

// possible returns an error for values that no job can have measured. It names each by its key; of
// a report of one node, keys are not those of a list of nodes.
func possible(c *stats.ClusterReport, oneNode bool) error {
	var errs []error
	negative := func(key string, values map[string]float64) {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if v := values[name]; !(v >= 0) || math.IsInf(v, 1) {
				errs = append(errs, fmt.Errorf("%s.%s is %v; it must be 0 or more", key, name, v))
			}
		}
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		path := fmt.Sprintf("nodes[%d].", i)
		if oneNode {
			path = ""
		}
		for j, class := range n.Classes {
			negative(fmt.Sprintf("%sclasses[%d]", path, j), map[string]float64{
				"capacity": float64(class.Capacity), "used": float64(class.Used),
				"held_at_start.samples": float64(class.Held.Samples),
				"held_at_start.bytes":   float64(class.Held.Bytes),
			})
		}
		tiers := func(path string, all []stats.Speed) {
			for j, s := range all {
				key := fmt.Sprintf("%stiers[%d]", path, j)
				negative(key, map[string]float64{
					"samples": float64(s.Samples), "bytes": float64(s.Bytes),
					"seconds": s.Seconds, "busy_seconds": s.Busy, "peak_mbps": s.Peak,
				})
				if rate := float64(s.Bytes) / mega / s.Busy; s.Busy > 0 && rate > mostRate {
					errs = append(errs, fmt.Errorf("%s.busy_seconds is %v for %d bytes, %.3g MB/s; "+
						"at most %g are possible", key, s.Busy, s.Bytes, rate, float64(mostRate)))
				}
			}
		}
		tiers(path, n.Tiers)
		for j, e := range n.Epochs {
			key := fmt.Sprintf("%sepochs[%d]", path, j)
			negative(key, map[string]float64{
				"batches": float64(e.Batches), "seconds": e.Seconds,
				"source.bytes": float64(e.Source.Bytes), "direct.bytes": float64(e.Direct.Bytes),
			})
			tiers(key+".", e.Tiers)
		}
	}
	if errs != nil {
		return fmt.Errorf("not a job's report: impossible values: %w", errors.Join(errs...))
	}
	return nil
}
