package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// filler sets every field that is in JSON to a value that no other has.
type filler struct{ last int }

func (f *filler) next() int {
	f.last++
	return f.last
}

func (f *filler) fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if x := v.Type().Field(i); x.IsExported() && x.Tag.Get("json") != "-" {
				f.fill(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(t, v.Index(0))
		f.fill(t, v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(t, key)
		f.fill(t, value)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", f.next()))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.next()))
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(f.next()))
	case reflect.Float64:
		v.SetFloat(float64(f.next()) + 0.5)
	default:
		t.Fatalf("%v cannot be filled", v.Type())
	}
}

// TestReportsKeepTheirJSON checks names, order and values of all fields of reports: scripts, hdmlp
// in Python and daemons of other versions read them.
func TestReportsKeepTheirJSON(t *testing.T) {
	for name, report := range map[string]any{
		"report": new(Report), "node": new(NodeReport), "cluster": new(ClusterReport),
	} {
		t.Run(name, func(t *testing.T) {
			new(filler).fill(t, reflect.ValueOf(report).Elem())
			text, err := json.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			back := reflect.New(reflect.TypeOf(report).Elem())
			if err := json.Unmarshal(text, back.Interface()); err != nil {
				t.Fatal(err)
			}
			if again, err := json.Marshal(back.Interface()); err != nil || !bytes.Equal(again, text) {
				t.Errorf("read and written again: %s, %v", cmp.Diff(string(text), string(again)), err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, append(text, '\n'), "", " "); err != nil {
				t.Fatal(err)
			}
			testkit.Compare(t, name+".json", got.String())
		})
	}
}
