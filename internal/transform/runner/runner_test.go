package runner

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/transform"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// TestShare: a sample that waits for a thread waits for all transforms, as much as they take, and
// not for the first alone.
func TestShare(t *testing.T) {
	for _, c := range []struct{ took, want []time.Duration }{
		{[]time.Duration{10, 0, 20}, []time.Duration{1 + 20, 2, 3 + 40}},
		{[]time.Duration{0, 0, 0}, []time.Duration{1 + 30, 2, 3}},
	} {
		spent := []time.Duration{1, 2, 3}
		if share(spent, c.took, 30); !slices.Equal(spent, c.want) {
			t.Errorf("%v and a wait of 30: %v, and should be %v", c.took, spent, c.want)
		}
	}
}

// TestReportedTimes: what transforms are said to have taken is no more than the time in which they
// were at work.
func TestReportedTimes(t *testing.T) {
	p := newField(compiled(t, shrink), Options{Threads: 1})
	defer p.Close()
	src, dst := pngOf(t, 200), make([]byte, p.Size(0))
	began := time.Now()
	const n = 30
	for i := range n {
		err := p.Apply(into(dst), [][]byte{src}, 0, 0, i, 0, false, make([]time.Duration, 3))
		if err != nil {
			t.Fatal(err)
		}
	}
	most := time.Since(began).Seconds()
	report := p.Report()
	var sum float64
	for _, transform := range report.Transforms {
		sum += transform.Seconds
	}
	if report.Samples != n || sum <= 0 || sum > most {
		t.Errorf("%d samples, %v s in transforms, within %v s", report.Samples, sum, most)
	}
}

// TestReportedForms: samples that are made of forms count apart, with their part of the time; those
// that cannot be transformed do not.
func TestReportedForms(t *testing.T) {
	p := newField(compiled(t, shrink), Options{Threads: 1})
	defer p.Close()
	src, dst := pngOf(t, 200), make([]byte, p.Size(0))
	var converter forms.Converter
	defer converter.Close()
	form, err := converter.Convert(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(data []byte, kind forms.Kind) error {
		return p.Apply(into(dst), [][]byte{data}, uint8(kind), 0, 0, 0, false,
			make([]time.Duration, 3))
	}
	for range 3 {
		if err := apply(src, forms.AsRead); err != nil {
			t.Fatal(err)
		}
	}
	if r := p.Report(); r.OfForms != (report.OfForms{}) {
		t.Errorf("files alone: %+v", r.OfForms)
	}
	before := p.Report().Total()
	for range 2 {
		if err := apply(form, forms.Decoded); err != nil {
			t.Fatal(err)
		}
	}
	if apply(form[:9], forms.Decoded) == nil {
		t.Error("a form of 9 bytes is transformed")
	}
	all := p.Report().Total()
	if all.Samples != 6 || all.FormSamples != 2 || all.FormSeconds <= 0 ||
		all.FormSeconds >= all.Seconds {
		t.Errorf("%+v", all)
	}
	if since := all.Since(before); since.Samples != 3 || since.OfForms != all.OfForms {
		t.Errorf("since the files: %+v", since)
	}
}

// TestClosed: a worker that was at work when the others were freed is freed when it is done.
func TestClosed(t *testing.T) {
	p := newField(compiled(t, shrink), Options{Threads: 1})
	src, dst := pngOf(t, 20), make([]byte, p.Size(0))
	err := p.Apply(func(int, int) ([]byte, error) {
		p.Close()
		return dst, nil
	}, [][]byte{src}, 0, 0, 0, 0, false, make([]time.Duration, 3))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.gate.spare) != 0 {
		t.Errorf("%d workers are kept after the end", len(p.gate.spare))
	}
}

// TestApplyReturnsAfterItsSampleIsDone: each caller's sample is done when Apply returns, regardless
// of which goroutine did it.
func TestApplyReturnsAfterItsSampleIsDone(t *testing.T) {
	var files, want [][]byte
	alone := newField(compiled(t, shrink), Options{Threads: 1})
	defer alone.Close()
	for side := 20; side < 40; side++ {
		src, dst := pngOf(t, side), make([]byte, alone.Size(0))
		err := alone.Apply(into(dst), [][]byte{src}, 0, 0, 0, 0, false, make([]time.Duration, 3))
		if err != nil {
			t.Fatal(err)
		}
		files, want = append(files, src), append(want, dst)
	}
	for threads := 1; threads <= 3; threads++ {
		p := newField(compiled(t, shrink), Options{Threads: threads})
		for round := range 20 {
			// One alone, and then all at once: they take over what it left.
			for _, together := range []int{1, len(files)} {
				var all sync.WaitGroup
				for i := range together {
					all.Go(func() {
						dst := make([]byte, p.Size(0))
						if err := p.Apply(into(dst), [][]byte{files[i]}, 0, 0, 0, 0, false,
							make([]time.Duration, 3)); err != nil || !bytes.Equal(dst, want[i]) {
							t.Errorf("%d threads, round %d, sample %d: %v, or it is another's",
								threads, round, i, err)
						}
					})
				}
				all.Wait()
			}
		}
		p.Close()
	}
}

// TestReportedMost checks that a report has the number of processors if that of threads was given.
func TestReportedMost(t *testing.T) {
	for given, want := range map[int]int{0: 0, 1: 8, 8: 8} {
		p := newField(compiled(t, shrink), Options{Threads: given, Most: 8})
		if got := p.Report().Most; got != want {
			t.Errorf("%d threads given: at most %d, want %d", given, got, want)
		}
		p.Close()
	}
}

// newField returns a runner's only field.
func newField(p *transform.Program, o Options) *Field {
	return New([]Part{{Program: p}}, o).Fields()[0]
}
