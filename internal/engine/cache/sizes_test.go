package cache

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// largeForms makes forms that are several times as large as the sample, by its first byte.
type largeForms struct {
	times   []float64     // by the first byte, modulo their number; 0: it has none
	refused *atomic.Int32 // conversions of samples that have none, or one too large
}

func (f largeForms) size(sample []byte) int {
	return int(f.times[int(sample[0])%len(f.times)] * float64(len(sample)))
}

func (f largeForms) Size(_ int, sample []byte, _ Way) int64 { return int64(f.size(sample)) }

func (largeForms) Current([]byte, Way) bool { return true }

func (f largeForms) Convert(dst []byte, _ int, sample []byte, _ Way) (
	form []byte, kind uint8, ok bool,
) {
	n := f.size(sample)
	if n == 0 || n > 63*len(sample) {
		f.refused.Add(1)
		return dst, 0, false
	}
	dst = append(dst, bytes.Repeat([]byte{'f'}, n-len(sample))...)
	return append(dst, sample...), 1, true
}

func (largeForms) File([]byte, uint8) (file []byte, ok bool) { return nil, false }

func (largeForms) Split(dst [][]byte, kinds []uint8, _ []byte, _ uint8) (
	[][]byte, []uint8, bool,
) {
	return dst, kinds, false
}

func (largeForms) Restore(dst, form []byte, _ uint8) (sample []byte, ok bool) {
	return append(dst, form[len(form)-1000:]...), true
}

func (largeForms) Exact([]byte, uint8) bool { return true }

func (largeForms) Describe(form []byte, kind uint8) (size int64, sum uint32, ok bool) {
	return 1000, digest.Of(form[len(form)-1000:]), kind == 1
}

// TestSmallFormsComeFirst checks that, of forms of several sizes, the smaller ones are made first,
// as far as memory has room, and that no form is made where there is none or it is too large; and
// that no sample is dropped or read again for any, also when they become samples again.
func TestSmallFormsComeFirst(t *testing.T) {
	const samples = 400
	times := []float64{1.2, 3, 9, 40, 0, 64}
	for name, c := range map[string]struct {
		memory int64 // per sample
		all    []int // indices of times of which all samples are forms
		none   []int // of which none is
		some   int   // of which some are; -1: there are none
	}{
		"none fits":              {1000, nil, []int{0, 1, 2, 3}, -1},
		"the smallest fit":       {1400, []int{0}, []int{2, 3}, -1},
		"two sizes fit":          {1950, []int{0, 1}, []int{3}, 2},
		"some of the third size": {2300, []int{0, 1}, []int{3}, 2},
		"all but the largest":    {4000, []int{0, 1, 2}, nil, 3},
		"all":                    {12000, []int{0, 1, 2, 3}, nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				converter := largeForms{times, &atomic.Int32{}}
				o := plain(samples)
				o.sizes = slices.Repeat([]int{1000}, samples)
				o.memory = c.memory * samples
				o.memoryClass = memory.New(memory.Options{Segment: 16 << 10})
				o.planAll, o.converter = true, converter
				g := newRig(t, o)
				defer g.close()
				for id := range samples {
					if _, err := g.fetch(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				g.use.TakeForms(true)
				settle()
				formed, of := make([]int, len(times)), make([]int, len(times))
				for id := range samples {
					k := int(content(id, 1000)[0]) % len(times)
					of[k]++
					if g.cache.holdsForm(id) {
						formed[k]++
					}
				}
				for k := range times {
					wrong := slices.Contains(c.all, k) && formed[k] != of[k] ||
						(slices.Contains(c.none, k) || k >= 4) && formed[k] > 0 ||
						k == c.some && (formed[k] == 0 || formed[k] == of[k])
					if wrong {
						t.Errorf("%v of %v samples are forms, of %v times their sizes", formed, of,
							times)
						break
					}
				}
				if f, _ := g.cache.Forms(0); !f.Wanted || f.Restored > 0 {
					t.Errorf("%+v", f)
				}
				if n := converter.refused.Load(); n > 0 {
					t.Errorf("%d conversions of samples that have no form", n)
				}
				g.use.TakeForms(false)
				other := g.cache.Use(nil) // needs samples
				settle()
				for id := range samples {
					data, _, err := g.fetched(t, &Request{}, id)
					if err != nil || !bytes.Equal(data, content(id, 1000)) {
						t.Fatalf("sample %d: %v", id, err)
					}
				}
				f, _ := g.cache.Forms(0)
				if n := g.reads(); f.Samples != 0 || n != samples ||
					len(g.stores[0].Held()) != samples {
					t.Errorf("%d reads of %d samples: %+v", n, samples, f)
				}
				other.Close()
			})
		})
	}
}

// TestUnitsOfForms checks in which band forms are, by their size and that of the sample.
func TestUnitsOfForms(t *testing.T) {
	for _, c := range []struct {
		form, size int64
		band       int
	}{
		{1, 1000, 0},
		{1100, 1000, 0},
		{1500, 1000, 0},
		{1500 + 32, 1000, 0}, // a head and a field
		{1800, 1000, 1},
		{4000, 1000, 1},
		{4200, 1000, 2},
		{16000, 1000, 2},
		{16200, 1000, 3},
		{63000, 1000, 3},
		{63, 1, 3},
	} {
		units := unitsOf(c.form, c.size)
		band := slices.IndexFunc(sizeBands[:], func(most uint8) bool { return units <= most })
		if band != c.band {
			t.Errorf("%d bytes of %d: band %d, want %d", c.form, c.size, band, c.band)
		}
	}
}
