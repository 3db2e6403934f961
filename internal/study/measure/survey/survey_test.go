package survey

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// source is a source whose reads take a latency, and share a bandwidth.
type fakeSource struct {
	index     *source.Index
	latency   time.Duration
	bandwidth float64 // bytes per second

	hangs chan struct{} // if not nil, one of the reads returns only when it is closed

	mu    sync.Mutex
	busy  time.Time
	reads int
}

func (s *fakeSource) take(bytes int64) {
	time.Sleep(s.latency)
	s.mu.Lock()
	if now := time.Now(); s.busy.Before(now) {
		s.busy = now
	}
	s.busy = s.busy.Add(time.Duration(float64(bytes) / s.bandwidth * 1e9))
	until := s.busy
	s.mu.Unlock()
	time.Sleep(time.Until(until))
}

func (s *fakeSource) Read(_ context.Context, id int, _ []byte) (source.Stamp, error) {
	s.mu.Lock()
	s.reads++
	hang := s.hangs != nil && s.reads == 100
	s.mu.Unlock()
	if hang {
		<-s.hangs
	}
	s.take(s.index.Size(id))
	return 0, nil
}

func (s *fakeSource) Probe(context.Context, int) error {
	s.take(4096)
	return nil
}
func (s *fakeSource) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }
func (s *fakeSource) Close() error                                    { return nil }

// newSource returns a source of 5 ms and 40 MB/s, of samples of 20 to 180 kB.
func newSource(t *testing.T) *fakeSource {
	b := source.NewBuilder([]string{"a"}, []string{".jpg"})
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Class: 0, Path: "a"})
	for i := range int64(20_000) {
		b.Sample(fmt.Sprintf("%06d.jpg", i), 20_000+8*i, 0, 0)
	}
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return &fakeSource{index: x, latency: 5 * time.Millisecond, bandwidth: 40e6}
}

func (s *fakeSource) options() Options {
	return Options{
		Source: s, Index: s.index, Threads: 2, Streams: 512, Memory: 1 << 30, Time: time.Minute,
		Progress: func(string) {}, Random: rand.New(rand.NewPCG(1, 2)),
	}
}

func near(got, want, within float64) bool { return math.Abs(got/want-1) <= within }

func TestSourceOfKnownRatesIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s := newSource(t)
		r, err := Run(t.Context(), s.options())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("took %v of a minute", took)
		}
		if len(r.Source) != 3 || r.Page == nil {
			t.Fatalf("%d classes of sizes, page: %v", len(r.Source), r.Page)
		}
		for _, c := range r.Source {
			if !near(c.Best().Rate.Median, 40, 0.05) {
				t.Errorf("samples of %v MB: %v MB/s, want 40", c.Size, c.Best().Rate.Median)
			}
		}
		k := r.Node.Source
		if !near(1/k.Queued, 40, 0.05) || !near(1/k.PerMB, 40, 0.1) || !near(k.Latency, 5e-3, 0.1) ||
			k.Origin != model.Probed {
			t.Errorf("source: %+v", k)
		}
		if err := r.Node.Validate(); err != nil {
			t.Error(err)
		}
		// Many streams read at the same time; no more threads transform than there are processors.
		if r.Node.Streams <= 2 || r.Threads != 2 {
			t.Errorf("%d streams and %d threads, want 2 threads", r.Node.Streams, r.Threads)
		}
		var skipped []string
		for _, s := range r.Skipped {
			skipped = append(skipped, s.What)
		}
		if got := strings.Join(skipped, ", "); got != "transforms, source of several nodes, network" {
			t.Errorf("skipped: %s", got)
		}
	})
}

func TestHungReadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s := newSource(t)
		s.hangs = make(chan struct{})
		r, err := Run(t.Context(), s.options())
		if took := time.Since(begun); err != nil || took > time.Minute+5*time.Second {
			t.Errorf("ended after %v: %v", took, err)
		}
		if len(r.Source) < 2 || len(r.Skipped) == 0 ||
			!strings.Contains(r.Skipped[1].Why, "has not returned") {
			t.Errorf("%d curves, skipped %+v", len(r.Source), r.Skipped)
		}
		close(s.hangs)
		time.Sleep(time.Minute)
	})
}

func TestClassThatCannotBeMadeIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newSource(t).options()
		full := errors.New("no space left on device")
		o.Classes = []Class{{
			Kind: store.Kind{
				Name: "slow", Options: []store.Option{{Option: option.Option{Key: store.PathKey}}},
				New: func(store.Options) (store.Class, error) { return nil, full },
			},
			Path: t.TempDir(), Room: func() (int64, error) { return 1 << 30, nil },
		}, {
			Kind: store.Kind{Name: "none"}, Room: func() (int64, error) { return 0, full },
		}}
		r, err := Run(t.Context(), o)
		if err != nil || len(r.Skipped) < 2 || r.Skipped[0].What != "storage class slow" ||
			r.Skipped[0].Why != full.Error() || r.Skipped[1].What != "storage class none" {
			t.Fatalf("%v, %+v", err, r)
		}
		if len(r.Node.Classes) != 2 || r.Node.Classes[0].Read != model.GuessedClass {
			t.Errorf("%+v", r.Node.Classes)
		}
	})
}

func TestEmptySamplesCannotBeMeasured(t *testing.T) {
	b := source.NewBuilder([]string{"a"}, []string{".jpg"})
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Class: 0, Path: "a"})
	b.Sample("0.jpg", 0, 0, 0)
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), (&fakeSource{index: x}).options()); !errors.Is(err, ErrNoSamples) {
		t.Error(err)
	}
}

// TestThreadsAreThoseThatPaidOff: p_0 threads at beta together transform what was measured.
func TestThreadsAreThoseThatPaidOff(t *testing.T) {
	s := survey{o: Options{Threads: 8}, Result: Result{Mean: 0.1}}
	s.Transforms = &measure.Curve{Size: 0.1}
	for i, rate := range []float64{100, 180, 180} {
		s.Transforms.Points = append(s.Transforms.Points, measure.Point{
			Streams: 1 << i, Rate: measure.EstimateOf([]float64{rate}),
		})
	}
	if n := s.node(); s.Threads != 2 || n.Preprocess.Number != 90 {
		t.Errorf("%d threads at %v MB/s, want 2 at 90", s.Threads, n.Preprocess.Number)
	}
}

func TestCurveThatStillGrewIsBoundedByOthers(t *testing.T) {
	curve := func(size float64, grows bool, rates ...float64) measure.Curve {
		c := measure.Curve{Size: size, Grows: grows}
		for i, rate := range rates {
			c.Points = append(c.Points, measure.Point{
				Streams: 1 << i, Rate: measure.EstimateOf([]float64{rate}),
			})
		}
		return c
	}
	s := survey{Result: Result{Mean: 0.1}}
	k := s.known(model.GuessedSource, curve(0.1, true, 11, 22),
		curve(0.2, false, 15, 30, 40, 40, 40))
	if !near(1/k.Queued, 40, 0.01) {
		t.Errorf("at most %v MB/s, want 40", 1/k.Queued)
	}
	k = s.known(model.GuessedSource, curve(0.1, true, 11, 22), curve(0.2, true, 15, 30))
	if 1/k.Queued < 200 {
		t.Errorf("at most %v MB/s, although nothing has stopped growing", 1/k.Queued)
	}
}
