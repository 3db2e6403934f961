package cache

import (
	"bytes"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
)

// halves splits forms in two.
type halves struct{ fakeForms }

func (halves) File([]byte, uint8) (file []byte, ok bool) { return nil, false }

func (halves) Split(dst [][]byte, kinds []uint8, form []byte, kind uint8) (
	_ [][]byte, _ []uint8, ok bool,
) {
	return append(dst, form[:len(form)/2], form[len(form)/2:]), append(kinds, 0, kind), kind == 3
}

// TestFieldsOfSamplesAndForms checks that samples are split as the index says, and forms as the
// Converter does, also if they are another node's, and no class of this one holds any.
func TestFieldsOfSamplesAndForms(t *testing.T) {
	b := source.NewRecordBuilder([]string{"a", "b", "c"}, nil, nil)
	object := b.Object(source.Object{Name: "file", Size: 100})
	b.Add(source.Record{Ranges: []source.Range{
		{Object: object, Length: 3}, {Length: source.Missing}, {Object: object, Offset: 3, Length: 4},
	}})
	index, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cache{index: index, converter: halves{}}
	packed := make([]byte, source.Align+4)
	copy(packed, "abc")
	copy(packed[source.Align:], "defg")
	for _, x := range []struct {
		data   []byte
		kind   uint8
		fields [][]byte
		kinds  []byte
	}{
		{packed, 0, [][]byte{[]byte("abc"), nil, []byte("defg")}, []byte{0, 0, 0}},
		{[]byte("form"), 3, [][]byte{[]byte("fo"), []byte("rm")}, []byte{0, 3}},
	} {
		fields, kinds, ok := c.Split(nil, nil, 0, x.data, x.kind)
		if !ok || !bytes.Equal(kinds, x.kinds) || len(fields) != len(x.fields) {
			t.Fatalf("kind %d: %q of the kinds %v, %v", x.kind, fields, kinds, ok)
		}
		for f := range fields {
			if !bytes.Equal(fields[f], x.fields[f]) || (fields[f] == nil) != (x.fields[f] == nil) {
				t.Errorf("kind %d: field %d is %q", x.kind, f, fields[f])
			}
		}
	}
	if _, _, ok := c.Split(nil, nil, 0, []byte("form"), 4); ok {
		t.Error("a form of another kind has fields")
	}
}
