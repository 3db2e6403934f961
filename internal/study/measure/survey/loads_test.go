package survey

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/memory"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// indexOf returns the index of samples of these sizes.
func indexOf(sizes ...int64) *source.Index {
	b := source.NewBuilder([]string{"a"}, []string{".jpg"})
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Class: 0, Path: "a"})
	for i, size := range sizes {
		b.Sample(fmt.Sprintf("%06d.jpg", i), size, 0, 0)
	}
	x, err := b.Build()
	if err != nil {
		panic(err)
	}
	return x
}

func TestClassesOfSizesAreTheDatasets(t *testing.T) {
	for _, test := range []struct {
		name  string
		sizes []int64
		want  []float64 // means, MB
	}{
		{"empty", nil, nil},
		{"only empty samples", []int64{0, 0}, nil},
		{"one size", []int64{1000, 1000, 1000, 1000}, []float64{0.001}},
		{"similar sizes", []int64{1000, 1100, 1200, 1300, 1400, 1500}, []float64{0.00125}},
		{"two sizes", []int64{1000, 1000, 50_000, 50_000}, []float64{0.001, 0.05}},
		{
			"three, in any order, and an empty one",
			[]int64{90_000, 0, 1000, 30_000},
			[]float64{0.001, 0.03, 0.09},
		},
		{"one sample", []int64{5000}, []float64{0.005}},
	} {
		var got []float64
		for _, class := range SizesOf(indexOf(test.sizes...), seeded()) {
			got = append(got, class.Mean)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// broken is a source some of whose samples cannot be read.
type broken struct {
	index *source.Index
	bad   map[int]error
	read  map[int]int
}

func (b *broken) Read(_ context.Context, id int, _ []byte) (source.Stamp, error) {
	if err := b.bad[id]; err != nil {
		return 0, &source.SampleError{ID: id, Kind: err}
	}
	b.read[id]++
	time.Sleep(10 * time.Microsecond)
	return 0, nil
}
func (b *broken) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }
func (b *broken) Close() error                                    { return nil }

func TestUnreadableSamplesAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := indexOf(1000, 1000, 1000, 1000)
		b := &broken{index, map[int]error{1: source.ErrMissing}, map[int]int{}}
		s := NewSource(b, index, 8, seeded())
		l := s.Read(Sizes{IDs: []int{0, 1, 2, 3}}, 1)
		c, err := measure.Run(t.Context(), l, measure.Options{Time: 50 * time.Millisecond})
		if err != nil || c.Ended != nil || len(c.Points) != 1 {
			t.Fatalf("%v, %v, %v", c, err, c.Ended)
		}
		if n, why := s.Unreadable(); n != 1 || !errors.Is(why, source.ErrMissing) || b.read[1] != 0 {
			t.Errorf("%d unreadable: %v", n, why)
		}
		for _, id := range []int{0, 2, 3} {
			if b.read[id] == 0 {
				t.Errorf("sample %d was not read", id)
			}
		}
	})
}

func TestSourceWithoutReadableSamplesSaysWhy(t *testing.T) {
	index := indexOf(1000, 1000)
	b := &broken{
		index, map[int]error{0: source.ErrUnreadable, 1: source.ErrUnreadable}, map[int]int{},
	}
	l := NewSource(b, index, 8, seeded()).Read(Sizes{IDs: []int{0, 1}}, 1)
	c, err := measure.Run(t.Context(), l, measure.Options{Time: 50 * time.Millisecond})
	if err != nil || !errors.Is(c.Ended, source.ErrUnreadable) {
		t.Errorf("%v, %v", c.Ended, err)
	}
}

// TestRoundOfUnreadableSamplesIsFollowedByAnother has reads that fail, and take so long that a
// round has only one.
func TestRoundOfUnreadableSamplesIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := indexOf(1000, 1000, 1000, 1000)
		bad := map[int]error{0: source.ErrUnreadable, 1: source.ErrUnreadable}
		b := &broken{index, bad, map[int]int{}}
		s := NewSource(slow{b}, index, 8, seeded())
		l := s.Read(Sizes{IDs: []int{0, 1, 2, 3}}, 1)
		c, err := measure.Run(t.Context(), l, measure.Options{Time: time.Second / 2})
		if err != nil || c.Ended != nil || len(c.Points) != 1 || len(c.Points[0].Rounds) < 2 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// slow is a source whose reads take a time.
type slow struct{ *broken }

func (s slow) Read(ctx context.Context, id int, p []byte) (source.Stamp, error) {
	time.Sleep(4 * time.Millisecond)
	return s.broken.Read(ctx, id, p)
}

func TestSourceThatDoesNotAnswerEndsIt(t *testing.T) {
	index := indexOf(1000, 1000)
	b := &broken{index, map[int]error{1: source.ErrUnavailable}, map[int]int{}}
	l := NewSource(b, index, 8, seeded()).Read(Sizes{IDs: []int{1}}, 1)
	c, err := measure.Run(t.Context(), l, measure.Options{Time: 50 * time.Millisecond})
	if err != nil || !errors.Is(c.Ended, source.ErrUnavailable) {
		t.Errorf("%v, %v", c.Ended, err)
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestClassesAreMeasuredAndLeaveNothing: neither during nor after the measurement is there anything
// but what the user has in the directory.
func TestClassesAreMeasuredAndLeaveNothing(t *testing.T) {
	for _, kind := range []store.Kind{
		memory.Kind(memory.New(memory.Options{})), file.Kind("test"),
	} {
		t.Run(kind.Name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := NewClass(kind, dir, 1<<20, seeded())
			if err != nil {
				t.Fatal(err)
			}
			stores, err := c.Stores(1<<19, 4096, 20_000)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(t, dir); !slices.Equal(got, []string{"mine"}) {
				t.Errorf("during the measurement the directory holds %q", got)
			}
			for _, s := range stores {
				for _, l := range []measure.Load{s.Write(), s.Read(2)} {
					var got measure.Curve
					// A busy machine may need more time for one point.
					for patience := 100 * time.Millisecond; len(got.Points) == 0 && err == nil &&
						patience < time.Minute; patience *= 4 {
						got, err = measure.Run(t.Context(), l,
							measure.Options{Streams: 2, Time: patience})
					}
					if err != nil || len(got.Points) == 0 || got.Points[0].Rate.Median <= 0 {
						t.Errorf("samples of %d bytes: %+v, %v, %v", s.size, got, err, got.Ended)
					}
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if got := names(t, dir); !slices.Equal(got, []string{"mine"}) {
				t.Errorf("after the measurement the directory holds %q", got)
			}
		})
	}
}

func TestReadsFillAStoreThatIsEmpty(t *testing.T) {
	c, err := NewClass(file.Kind("test"), t.TempDir(), 1<<20, seeded())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stores, err := c.Stores(100_000, 20_000)
	if err != nil {
		t.Fatal(err)
	}
	l := stores[0].Read(1)
	if n, err := l.Prepare(t.Context(), 100); err != nil || n != 5 {
		t.Errorf("%d samples to read, %v; want 5", n, err)
	}
	if n, err := l.Do(t.Context(), 0, 4); err != nil || n != 20_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
}
