package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// fill sets every field of a message to a different nonzero value.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Interface:
		v.Set(reflect.ValueOf(*n))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*os.File]() {
			v.Set(reflect.ValueOf(os.Stdin))
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`[{"name": "ToTensor"}]`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, n)
		v.SetMapIndex(reflect.ValueOf(fmt.Sprint("key ", *n)), value)
	default:
		if v.CanInt() {
			v.SetInt(int64(*n))
		} else {
			v.SetUint(uint64(*n))
		}
	}
}

// same compares fields of the same names in two values, and reports fields that only one of them
// has.
func same(t *testing.T, path string, from, to reflect.Value) {
	t.Helper()
	switch to.Kind() {
	case reflect.Struct:
		if to.Type() == reflect.TypeFor[os.File]() {
			return
		}
		for i := range to.NumField() {
			name := to.Type().Field(i).Name
			if name == "Manifest" {
				continue // it comes as a descriptor
			}
			f := from.FieldByName(name)
			if !f.IsValid() {
				t.Errorf("%s.%s exists only in %v", path, name, to.Type())
				continue
			}
			same(t, path+"."+name, f, to.Field(i))
		}
		for i := range from.NumField() {
			name := from.Type().Field(i).Name
			if !to.FieldByName(name).IsValid() && name != "View" && name != "Generation" &&
				name != "Total" && name != "Manifest" {
				t.Errorf("%s.%s exists only in %v", path, name, from.Type())
			}
		}
	case reflect.Pointer:
		if to.IsNil() {
			t.Errorf("%s is lost", path)
			return
		}
		same(t, path, from.Elem(), to.Elem())
	default:
		if options, ok := from.Interface().(map[string]protocol.Option); ok {
			values := make(option.Values)
			for key, o := range options {
				values[key] = o.Value
			}
			from = reflect.ValueOf(values)
		}
		if fmt.Sprint(from) != fmt.Sprint(to) {
			t.Errorf("%s is %v, and becomes %v", path, from, to)
		}
	}
}

// TestNothingIsLostInTranslation checks that every field of a message is in the request made from
// it, and vice versa.
func TestNothingIsLostInTranslation(t *testing.T) {
	n := 0
	var open protocol.OpenMessage
	fill(reflect.ValueOf(&open).Elem(), &n)
	same(t, "open", reflect.ValueOf(open), reflect.ValueOf(openRequest(&open)))
	var give protocol.GiveMessage
	fill(reflect.ValueOf(&give).Elem(), &n)
	same(t, "give", reflect.ValueOf(give), reflect.ValueOf(giveRequest(give)))
	var opened job.Opened
	fill(reflect.ValueOf(&opened).Elem(), &n)
	same(t, "opened", reflect.ValueOf(opened), reflect.ValueOf(openedMessage(opened)))
	var step request.Step
	fill(reflect.ValueOf(&step).Elem(), &n)
	same(t, "step", reflect.ValueOf(progressMessage(step)), reflect.ValueOf(step))
	b := &stage.Batch{
		Epoch: 1, Step: 2, Audit: 3, Labels: []int64{4}, Offsets: []uint64{5}, Lengths: []uint64{6},
		IDs: []uint32{7}, Occurrences: []uint32{15}, Segments: []uint32{8}, Slots: []uint32{9},
		Left: []stage.Left{{Position: 11, Segment: 12, Offset: 13, Length: 14, Usual: true}},
	}
	want := "{10 1 2 3 [4] [5] [6] [7] [15] [8] [9] [{11 12 13 14 true}]}"
	if got := fmt.Sprint(batchMessage(10, b)); got != want {
		t.Errorf("a batch becomes %s", got)
	}
	if got := stall(&protocol.AckMessage{StallNanos: 2, PythonNanos: 1}); got != (stage.Stall{
		All:    2,
		Python: 1,
	}) {
		t.Errorf("a stall becomes %+v", got)
	}
}

// TestErrorMessageKeepsKindTextAndDetails checks this for errors at any depth of wrapping.
func TestErrorMessageKeepsKindTextAndDetails(t *testing.T) {
	details := map[string]any{"key": "seed"}
	known := &protocol.ErrorMessage{Kind: protocol.KindBusy, Message: "busy", Details: details}
	for _, c := range []struct {
		err  error
		kind string
	}{
		{known, protocol.KindBusy},
		{
			&failure.Error{Kind: failure.Mismatch, Message: "differs", Details: details},
			protocol.KindMismatch,
		},
		{protocol.ErrProtocol, protocol.KindProtocol},
		{errors.New("unknown"), protocol.KindInternal},
	} {
		for _, err := range []error{c.err, fmt.Errorf("open it: %w", c.err)} {
			m := errorMessage(err)
			if m.Kind != c.kind || m.Message == "" ||
				(c.kind == protocol.KindBusy ||
					c.kind == protocol.KindMismatch) != (m.Details["key"] == "seed") {
				t.Errorf("%v: reported as %+v", err, m)
			}
		}
	}
	errorMessage(known).Generation = 5
	if known.Generation != 0 {
		t.Error("the message is shared with the error")
	}
	for _, kind := range []failure.Kind{
		failure.Config, failure.Dataset, failure.Sample,
		failure.Mismatch, failure.Limit, failure.Busy, failure.Audit, failure.Internal,
	} {
		if m := errorMessage(&failure.Error{Kind: kind}); m.Kind != string(kind) {
			t.Errorf("%s is reported as %s", kind, m.Kind)
		}
	}
}
