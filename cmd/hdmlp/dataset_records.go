package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
)

// recordsView is what `hdmlp dataset` shows of samples of fields; empty if each file is a sample.
type recordsView struct {
	Fields    []fieldView  `json:"fields,omitempty"`
	FirstKeys []string     `json:"first_keys,omitempty"`
	Columns   []columnView `json:"columns,omitempty"`
	Objects   []objectView `json:"objects,omitempty"`
}

// fieldView describes a field, over the samples that have it.
type fieldView struct {
	Name    string    `json:"name"`
	Samples int       `json:"samples"`
	Bytes   int64     `json:"bytes"`
	Sizes   sizesView `json:"sizes"`
}

// columnView describes the values that the index has of a field, or besides the fields.
type columnView struct {
	Name     string      `json:"name"`
	Samples  int         `json:"samples"` // that have one
	Distinct int         `json:"distinct"`
	Most     []valueView `json:"most"` // the values of the most samples
}

type valueView struct {
	Value   string `json:"value"`
	Samples int    `json:"samples"`
}

// objectView describes a file that has samples.
type objectView struct {
	Name    string `json:"name"`
	Samples int    `json:"samples"` // of which it has a field
	Bytes   int64  `json:"bytes"`   // of them in it
}

const (
	firstKeys  = 5  // shown
	mostValues = 5  // of a column, shown
	keptValues = 20 // of a column, in JSON
	// textValues is of how many different values of a column the texts are kept.
	textValues   = 1 << 10
	firstObjects = 10 // shown
)

func newRecordsView(x *source.Index) (v recordsView) {
	if x.Fields() == nil {
		return v
	}
	for f, name := range x.Fields() {
		s := x.FieldStatistics(f)
		v.Fields = append(v.Fields,
			fieldView{Name: name, Samples: s.Samples, Bytes: s.Bytes, Sizes: newSizesView(&s)})
	}
	for id := range min(firstKeys, x.Len()) {
		v.FirstKeys = append(v.FirstKeys, x.Name(id))
	}
	for c, name := range x.Columns() {
		v.Columns = append(v.Columns, newColumnView(x, c, name))
	}
	v.Objects = objectViews(x)
	return v
}

// newColumnView counts the values of a column. Values are told apart by hashes of 64 bits.
func newColumnView(x *source.Index, c int, name string) columnView {
	v := columnView{Name: name, Most: []valueView{}}
	counts, texts := map[uint64]int{}, map[uint64]string{}
	for id := range x.Len() {
		value := x.Value(c, id)
		if value == "" {
			continue
		}
		sum := xxh3.HashString(value)
		if counts[sum]++; counts[sum] == 1 && len(texts) < textValues {
			texts[sum] = value
		}
		v.Samples++
	}
	v.Distinct = len(counts)
	sums := slices.SortedFunc(maps.Keys(texts), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(texts[a], texts[b]))
	})
	for _, sum := range sums[:min(len(sums), keptValues)] {
		v.Most = append(v.Most, valueView{texts[sum], counts[sum]})
	}
	return v
}

// objectViews describes the files, in the order of their samples.
func objectViews(x *source.Index) []objectView {
	objects := make([]objectView, x.Objects())
	for o := range objects {
		objects[o].Name = x.Object(o).Name
	}
	var order []int
	var ranges []source.Range
	for id := range x.Len() {
		ranges = x.Ranges(ranges[:0], id)
		for f, r := range ranges {
			if r.Length == source.Missing {
				continue
			}
			objects[r.Object].Bytes += r.Length
			if !slices.ContainsFunc(ranges[:f], func(other source.Range) bool {
				return other.Length != source.Missing && other.Object == r.Object
			}) {
				if objects[r.Object].Samples++; objects[r.Object].Samples == 1 {
					order = append(order, r.Object)
				}
			}
		}
	}
	for o := range objects {
		if objects[o].Samples == 0 {
			order = append(order, o)
		}
	}
	ordered := make([]objectView, len(order))
	for i, o := range order {
		ordered[i] = objects[o]
	}
	return ordered
}

// records prints the view for people.
func (v *datasetView) records(b *strings.Builder) {
	for i := range v.Fields {
		f := &v.Fields[i]
		fmt.Fprintf(b, "  %-12s %s in %s, %s\n", "field", human.Name(f.Name),
			count(f.Samples, "sample"), byteSize(float64(f.Bytes)))
		fmt.Fprintf(b, "  %-12s %s\n", "", f.Sizes.text())
		f.Sizes.histogram(b, f.Samples)
		b.WriteByte('\n')
	}
	keys := make([]string, len(v.FirstKeys))
	for i, key := range v.FirstKeys {
		keys[i] = human.Name(key)
	}
	fmt.Fprintf(b, "  %-12s %s%s\n", "keys", strings.Join(keys, ", "), more(len(keys), v.Samples))
	for _, c := range v.Columns {
		if c.Samples == 0 {
			continue
		}
		shown := []string{}
		for _, value := range c.Most[:min(len(c.Most), mostValues)] {
			shown = append(shown, fmt.Sprintf("%s (%s)", human.Name(value.Value),
				thousands(value.Samples)))
		}
		fmt.Fprintf(b, "  %-12s %s of %s: %s%s\n", "values", count(c.Distinct, "value"),
			human.Name(c.Name), strings.Join(shown, ", "), more(len(shown), c.Distinct))
	}
	b.WriteByte('\n')
	v.objects(b)
}

// more notes that there are more than are shown.
func more(shown, all int) string {
	if shown < all {
		return ", ..."
	}
	return ""
}

func (v *datasetView) objects(b *strings.Builder) {
	shown := v.Objects[:min(len(v.Objects), firstObjects)]
	width := 0
	for _, o := range shown {
		width = max(width, len(thousands(o.Samples)))
	}
	for i, o := range shown {
		head, noun := "", "samples"
		if i == 0 {
			head = "files"
		}
		if o.Samples == 1 {
			noun = "sample"
		}
		fmt.Fprintf(b, "  %-12s %*s %-7s  %9s  %s\n", head, width, thousands(o.Samples), noun,
			byteSize(float64(o.Bytes)), human.Name(o.Name))
	}
	if n := len(v.Objects) - len(shown); n > 0 {
		fmt.Fprintf(b, "  %-12s and %s more\n", "", count(n, "file"))
	}
}
