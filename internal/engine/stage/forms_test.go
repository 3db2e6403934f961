package stage

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// marked makes forms of samples with a mark before them.
type marked struct{}

func (marked) Exact([]byte, uint8) bool { return true }

func (marked) Size(_ int, sample []byte, _ cache.Way) int64 { return int64(len(sample)) + 1 }

func (marked) Current([]byte, cache.Way) bool { return true }

func (marked) Convert(dst []byte, _ int, sample []byte, _ cache.Way) (
	form []byte, kind uint8, ok bool,
) {
	return append(append(dst, 'm'), sample...), 3, true
}

func (marked) File([]byte, uint8) (file []byte, ok bool) { return nil, false }

func (marked) Split(dst [][]byte, kinds []uint8, _ []byte, _ uint8) (
	[][]byte, []uint8, bool,
) {
	return dst, kinds, false
}

func (marked) Restore(dst, form []byte, _ uint8) (sample []byte, ok bool) {
	return append(dst, form[1:]...), true
}

func (marked) Describe(form []byte, kind uint8) (size int64, sum uint32, ok bool) {
	return int64(len(form) - 1), digest.Of(form[1:]), kind == 3
}

// filed makes forms in which the samples lie.
type filed struct{ marked }

func (filed) File(form []byte, kind uint8) (file []byte, ok bool) { return form[1:], kind == 3 }

// taking is a summary of samples and of their forms. Of the forms of every third sample it needs
// the sample, and of those of every other third it would leave the sample to the process.
type taking struct {
	summary
	forms *atomic.Int32 // that were summed up
}

var errNeeded = errors.New("the form does not suffice")

func (taking) Left(err error) (left, usual bool) { return errors.Is(err, errLeft), true }

func (p taking) Apply(alloc func(int, int) ([]byte, error), src [][]byte,
	kind uint8, epoch, id, occurrence int, whole bool, spent []time.Duration,
) error {
	switch {
	case id%3 == 1:
		return errLeft
	case kind == 0:
	case kind != 3 || src[0][0] != 'm':
		panic("another form")
	case id%3 == 0:
		return errNeeded
	default:
		p.forms.Add(1)
		src = [][]byte{src[0][1:]}
	}
	return p.summary.Apply(alloc, src, 0, epoch, id, occurrence, whole, spent)
}

// TestBatchesOfForms checks that batches are the same whether samples are forms or as read, also if
// a form does not suffice, and if a sample is left to the process, which gets its bytes; and if the
// sample is delivered as well, which lies in the form or not. Forms of no use become samples.
func TestBatchesOfForms(t *testing.T) {
	for name, o := range map[string]struct {
		converter cache.Converter
		raw       bool
		stay      int64 // how many forms their samples do not take the place of
	}{
		"results":              {marked{}, false, 20},
		"samples beside them":  {filed{}, true, 20},
		"samples not in forms": {marked{}, true, 0},
	} {
		t.Run(name, func(t *testing.T) { testBatchesOfForms(t, o.converter, o.raw, o.stay) })
	}
}

// testBatchesOfForms is TestBatchesOfForms for a converter. raw: the sample is delivered as well.
// stay is how many forms stay.
func testBatchesOfForms(t *testing.T, converter cache.Converter, raw bool, stay int64) {
	synctest.Test(t, func(t *testing.T) {
		const samples = 60
		var runs [2]map[step][]seen
		for i := range runs {
			p := taking{forms: &atomic.Int32{}}
			o := plain(samples, 2)
			o.memory, o.memoryClass = 3*100*samples, memory.New(memory.Options{Segment: 4096})
			o.planAll, o.preprocessor = true, p
			o.raw = raw
			if i == 1 {
				o.converter = converter
			}
			g := newRig(t, o)
			first, err := g.run(g.ranks[0], step{}, samples/2, 0)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Minute) // all are converted
			if f, ok := g.cache.Forms(0); ok != (i == 1) || ok && f.Converted != samples {
				t.Errorf("%+v, %v", f, ok)
			}
			runs[i], err = g.run(g.ranks[0], step{1, 0}, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(runs[i], first)
			if f, ok := g.cache.Forms(0); ok && f.Samples != stay {
				t.Errorf("%d forms stay instead of %d", f.Samples, stay)
			}
			if n := p.forms.Load(); (n >= samples/3) != (i == 1) || i == 0 && n > 0 {
				t.Errorf("%d forms were summed up", n)
			}
			for id := range samples {
				if n := g.source.Reads[id].Load(); n != 1 {
					t.Errorf("sample %d was read %d times", id, n)
				}
			}
			g.close()
		}
		if !maps.EqualFunc(runs[0], runs[1], func(a, b []seen) bool {
			return slices.EqualFunc(a, b, func(x, y seen) bool {
				return x.id == y.id && slices.Equal(x.data, y.data)
			})
		}) {
			t.Error("batches with forms are others than those without")
		}
	})
}
