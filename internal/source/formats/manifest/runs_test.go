package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
)

// TestRunsAreTheRangesTheyStandFor: windows that overlap, in two files, beside whole ones.
func TestRunsAreTheRangesTheyStandFor(t *testing.T) {
	x, err := index(t, encode(list{
		names: []string{"a", "sub/b"}, fields: []string{"w", "v"},
		runs: [][]run{{{3, 0, 1, 2, 5}, {2, 1, 4, 8, 8}}, {{5, 1, 2, 0, 3}}},
		keys: []string{"k", "l", "m", "n", "o"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for id := range x.Len() {
		text := x.Name(id)
		for _, r := range x.Ranges(nil, id) {
			text += fmt.Sprintf(" %s[%d:%d]", x.Object(r.Object).Name, r.Offset, r.Length)
		}
		got = append(got, text)
	}
	want := "[k a[1:5] sub/b[2:3] l a[3:5] sub/b[2:3] m a[5:5] sub/b[2:3] " +
		"n sub/b[4:8] sub/b[2:3] o sub/b[12:8] sub/b[2:3]]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v", got)
	}
}

func TestBadRunsAreRefused(t *testing.T) {
	one := func(r ...run) list {
		return list{names: []string{"a"}, fields: []string{"f"}, runs: [][]run{r}}
	}
	for name, c := range map[string]struct {
		l    list
		want string
	}{
		"beyond the file": {one(run{3, 0, 0, 4, 3}), "record 2, field f: 3 bytes from byte 8 on of a"},
		"object":          {one(run{1, 1, 0, 0, 1}), "run 0 is in object 1 of 1"},
		"no object":       {one(run{1, -1, 0, 0, 1}), "run 0 is in object -1 of 1"},
		"offset":          {one(run{1, 0, -1, 0, 1}), "from byte -1 on"},
		"stride":          {one(run{2, 0, 1, -1, 1}), "-1 bytes apart"},
		"length":          {one(run{1, 0, 0, 0, -1}), "-1 bytes"},
		"overflow":        {one(run{1 << 27, 0, 0, 1 << 39, 1}), "bytes apart"},
		"many":            {one(run{mostInRuns + 1, 0, 0, 0, 1}), "records"},
		"missing": {
			list{names: []string{"a", "c"}, fields: []string{"f", "g"}, runs: [][]run{
				{{2, 0, 0, 0, 1}}, {{1, 0, 0, 0, 1}, {1, 1, 0, 0, 1}},
			}}, "record 1, field g: ",
		},
		"fewer of a field": {
			list{names: []string{"a"}, fields: []string{"f", "g"}, runs: [][]run{
				{{2, 0, 0, 0, 1}}, {{1, 0, 0, 0, 1}},
			}}, "field g: its runs lack 1 of 2 records",
		},
		"more of a field": {
			list{names: []string{"a"}, fields: []string{"f", "g"}, runs: [][]run{
				{{1, 0, 0, 0, 1}}, {{2, 0, 0, 0, 1}},
			}}, "field g: run 0 has 2 records of 1",
		},
	} {
		if _, err := index(t, encode(c.l)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, n := range []int{0, 2, -1} {
		data := encode(one(run{1, 0, 0, 0, 1}))
		changed := strings.Replace(string(data), `"runs":[1]`, fmt.Sprintf(`"runs":[%d]`, n), 1)
		if _, err := index(t, []byte(changed)); err == nil {
			t.Errorf("%d runs: accepted", n)
		}
	}
}

// BenchmarkWindows: what the index of windows takes, per record.
func BenchmarkWindows(b *testing.B) {
	const n = 1 << 16
	size := int64(n + 100)
	data := encode(list{
		names: []string{"a"}, fields: []string{"f"}, runs: [][]run{{{n, 0, 0, 1, 100}}},
	})
	s, err := parse(data)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		x := source.NewRecordBuilder(s.Fields, nil, nil)
		object := source.Object{Name: "a", Size: size}
		x.Expect(n)
		x.Object(object)
		c, ranges := newCursor(s), make([]source.Range, 1)
		for id := range n {
			if ranges[0], err = c.at(0, id, []source.Object{object}); err != nil {
				b.Fatal(err)
			}
			x.Add(source.Record{Ranges: ranges})
		}
		if _, err := x.Build(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
}
