package source_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
)

func filesIndex(t *testing.T) *source.Index {
	t.Helper()
	b := source.NewBuilder([]string{"a", "b", "c"}, []string{".x"})
	b.Directory(source.Directory{Class: -1})
	for class, name := range []string{"a", "b", "c"} {
		b.Directory(source.Directory{Path: name, Class: class})
		for i := range 10 {
			b.Sample(fmt.Sprintf("%d.x", i), int64(100+10*class+i), 0, source.Stamp(1000*class+i))
		}
	}
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func recordsIndex(t *testing.T) *source.Index {
	t.Helper()
	b := source.NewRecordBuilder([]string{"jpg", "cls"}, []string{"a", "b", "c"}, []string{"text"})
	var objects []int
	for _, name := range []string{"s/0.tar", "s/1.tar"} {
		objects = append(objects, b.Object(source.Object{Name: name, Size: 10_000, Stamp: 5}))
	}
	for i := range 30 {
		at := int64(300 * (i % 15))
		b.Add(source.Record{
			Key: fmt.Sprintf("key%02d", i), Class: i / 10, Values: []string{fmt.Sprint("v", i)},
			Ranges: []source.Range{
				{Object: objects[i/15], Offset: at, Length: int64(100 + i)},
				{Object: objects[i/15], Offset: at + 200, Length: 3},
			},
		})
	}
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestPartHasTheSamplesOfTheWhole, of files and of records.
func TestPartHasTheSamplesOfTheWhole(t *testing.T) {
	for name, whole := range map[string]*source.Index{
		"files": filesIndex(t), "records": recordsIndex(t),
	} {
		for _, ids := range [][]int32{{0}, {29}, {1, 2, 11, 28}, {10, 19, 20}} {
			part, err := whole.Part(ids)
			if err != nil {
				t.Fatalf("%s, %v: %v", name, ids, err)
			}
			if part.Len() != len(ids) || !slices.Equal(part.Classes(), whole.Classes()) ||
				!slices.Equal(part.Fields(), whole.Fields()) ||
				part.Fingerprint() == whole.Fingerprint() {
				t.Fatalf("%s, %v: %v", name, ids, part)
			}
			for i, id := range ids {
				if part.Name(i) != whole.Name(int(id)) || part.Size(i) != whole.Size(int(id)) ||
					part.Label(i) != whole.Label(int(id)) || part.Stamp(i) != whole.Stamp(int(id)) ||
					!slices.Equal(part.Ranges(nil, i), whole.Ranges(nil, int(id))) && name == "records" {
					t.Errorf("%s: sample %d of the part differs from %d", name, i, id)
				}
				if name == "records" && part.Value(0, i) != whole.Value(0, int(id)) {
					t.Errorf("%s: sample %d has another value", name, i)
				}
			}
		}
		for _, ids := range [][]int32{nil, {3, 3}, {4, 3}, {-1}, {30}} {
			if _, err := whole.Part(ids); err == nil || !strings.Contains(err.Error(), "part") {
				t.Errorf("%s, %v: %v", name, ids, err)
			}
		}
	}
}
