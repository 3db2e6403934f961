package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/report"
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

const (
	// mostRate is the largest rate that can have been measured, in MB/s.
	mostRate = 1e9
	// mostSeconds and mostCount are the largest measured numbers that are not and that are whole.
	mostSeconds = 1e9
	mostCount   = 1e17
)

// read are the keys of a report, and of the nodes in it, whose values predictions are made of:
// these must be possible. Others may be of later versions.
var read = []string{
	"samples", "bytes", "world_size", "global_batch_size", "planned_epochs", "first_epoch",
	"batches", "seconds", "stall", "reads", "source", "direct", "ranks", "epochs", "classes", "tiers",
	"staging", "source_threads", "source_streams", "staging_bytes", "prefetch_batches",
	"preprocessing", "nodes",
}

// possible returns an error for values that no job can have measured, in a report of one node or of
// all. It names each by its key.
func possible(report any) error {
	var errs []error
	impossible(reflect.ValueOf(report).Elem(), "", &errs)
	for _, of := range []struct{ field, key string }{
		{"Known", "environment"}, {"Agreed", "planned_with"},
	} {
		known := reflect.ValueOf(report).Elem().FieldByName(of.field).Interface()
		if n := known.(*model.Node); n != nil {
			if err := n.Validate(); err != nil {
				errs = append(errs, fmt.Errorf("in %s: %w", of.key, err))
			}
		}
	}
	if errs != nil {
		return fmt.Errorf("not a job's report: impossible values: %w", errors.Join(errs...))
	}
	return nil
}

// impossible adds an error for each impossible number in a value, which has this key.
func impossible(v reflect.Value, key string, errs *[]error) {
	refuse := func(format string, args ...any) {
		*errs = append(*errs, fmt.Errorf(key+format, args...))
	}
	switch v.Kind() {
	case reflect.Float64:
		if x := v.Float(); !(x >= 0) {
			refuse(" is %v; it must be 0 or more", x)
		} else if x > mostSeconds {
			refuse(" is %v; it must be at most %g", x, float64(mostSeconds))
		}
	case reflect.Int, reflect.Int64:
		if x := v.Int(); x < 0 {
			refuse(" is %d; it must be 0 or more", x)
		} else if x > mostCount {
			refuse(" is %d; it must be at most %g", x, float64(mostCount))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			impossible(v.Elem(), key, errs)
		}
	case reflect.Slice:
		for i := range v.Len() {
			impossible(v.Index(i), fmt.Sprintf("%s[%d]", key, i), errs)
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		})
		for _, name := range names {
			impossible(v.MapIndex(name), key+"."+name.String(), errs)
		}
	case reflect.Struct:
		fieldsOf(v, key, errs)
	}
	switch x := v.Interface().(type) {
	case model.Speed:
		if mb := float64(x.Bytes) / mega; mb > 0 && mb/x.Busy > mostRate && x.Busy >= 0 {
			refuse(".busy_seconds is %v for %d bytes, %.3g MB/s; at most %g are possible", x.Busy,
				x.Bytes, mb/x.Busy, float64(mostRate))
		}
	case report.Change:
		if x.To == 0 {
			refuse(".to is 0; it must be 1 or more")
		}
	}
}

// fieldsOf is impossible for a struct.
func fieldsOf(v reflect.Value, key string, errs *[]error) {
	whole := true // all fields are read
	switch v.Interface().(type) {
	case report.Report, report.ClusterReport, report.NodeReport:
		whole = false
	}
	for field, of := range v.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			fieldsOf(of, key, errs)
		case name == "", name == "-", !whole && !slices.Contains(read, name):
		case key == "":
			impossible(of, name, errs)
		default:
			impossible(of, key+"."+name, errs)
		}
	}
}
