package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// settable lists the keys of overrides, without those of the storage classes and of the points of
// curves.
var settable = []string{
	"environment.nodes", "environment.compute", "environment.preprocess", "environment.network",
	"environment.source_network",
	"environment.source", "environment.source_latency",
	"environment.source_work", "environment.cores",
	"environment.hyperthreads", "environment.storage_class",
	"dataset.samples", "dataset.distribution", "dataset.mu", "dataset.sigma", "dataset.min",
	"dataset.max", "dataset.bounds", "dataset.weights", "dataset.histogram",
	"dataset.index", "dataset.sizes",
	"job.epochs", "job.global_batch_size", "job.drop_last", "job.scheme", "job.order",
	"job.jobs", "job.share", "job.forms", "job.forms_size", "job.forms_sent",
	"job.mix", "job.epoch_size",
	"simulate.policies", "simulate.policy_files", "simulate.profile", "simulate.seed", "title",
}

// FullKey adds the table to a key without one: "epochs" becomes "job.epochs", and
// "storage_class.1.capacity" becomes "environment.storage_class.1.capacity".
func FullKey(key string) string {
	first, rest, dotted := strings.Cut(key, ".")
	for _, k := range settable {
		if _, name, ok := strings.Cut(k, "."); ok && name == first {
			if dotted {
				return k + "." + rest
			}
			return k
		}
	}
	return key
}

// set applies an override to the table. Reading the table checks that the key is known and the
// value is valid; set only reports an override that has no place in the table.
func (r *reader) set(table map[string]any, o Override) {
	key := FullKey(o.Key)
	parts := strings.Split(key, ".")
	if slices.Contains(parts, "") {
		r.fault(o.Key, o.Value, "not a key", "names between dots, such as job.epochs")
		return
	}
	var at any = table
	for i, part := range parts {
		last := i == len(parts)-1
		switch inner := at.(type) {
		case map[string]any:
			if last {
				inner[part] = parseValue(o.Value)
				return
			}
			if _, ok := inner[part]; !ok ||
				(part == "source" || part == "read" || part == "write") && !isTable(inner[part]) {
				inner[part] = map[string]any{}
			}
			at = inner[part]
		case []any:
			j := element(inner, part)
			if j < 0 {
				r.fault(key, o.Value, fmt.Sprintf("there is no storage class %q", part),
					fmt.Sprintf("0 to %d, or its name", len(inner)-1))
				return
			}
			if last {
				r.fault(key, o.Value, "a storage class is not one value",
					key+".capacity, .threads, .read or .write")
				return
			}
			at = inner[j]
		default:
			r.fault(key, o.Value, strings.Join(parts[:i], ".")+" is a value, not a table",
				human.List(settable))
			return
		}
	}
}

func isTable(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// element returns the index of a storage class by number or name, or -1.
func element(classes []any, part string) int {
	if j, err := strconv.Atoi(part); err == nil {
		if j >= 0 && j < len(classes) {
			return j
		}
		return -1
	}
	return slices.IndexFunc(classes, func(c any) bool {
		table, ok := c.(map[string]any)
		return ok && table["name"] == part
	})
}

// parseValue parses text as a TOML value, or returns it as a string: 10 GB/s needs no quotes.
func parseValue(text string) any {
	table := map[string]any{}
	if !strings.ContainsAny(text, "\n\r") && toml.Unmarshal([]byte("v = "+text), &table) == nil &&
		len(table) == 1 {
		return table["v"]
	}
	return text
}

// Sweep is a key and the values to simulate.
type Sweep struct {
	Key    string
	Values []string
}

// ParseSweep parses KEY=V1,V2,... Commas within brackets, braces or quotes are part of a value.
func ParseSweep(text string) (Sweep, error) {
	o, err := ParseOverride(text)
	if err != nil {
		return Sweep{}, fmt.Errorf("%q is not KEY=V1,V2: a key and its values", text)
	}
	s := Sweep{Key: FullKey(o.Key)}
	depth := 0
	quote := rune(0)
	from := 0
	cut := func(to int) {
		s.Values = append(s.Values, strings.TrimSpace(o.Value[from:to]))
	}
	for i, c := range o.Value {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			cut(i)
			from = i + 1
		}
	}
	cut(len(o.Value))
	for i, v := range s.Values {
		if v == "" {
			return Sweep{}, fmt.Errorf("%s: value %d of %q is empty", s.Key, i+1, o.Value)
		}
		if slices.Contains(s.Values[:i], v) {
			return Sweep{}, fmt.Errorf("%s: %s appears twice in %q", s.Key, v, o.Value)
		}
	}
	return s, nil
}
