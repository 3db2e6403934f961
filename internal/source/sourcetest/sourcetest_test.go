package sourcetest_test

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/sourcetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a minimal source that fulfils the contract.
type memory struct {
	index   *source.Index
	samples [][]byte
	kinds   []error // of damaged samples
}

func (m *memory) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	fail := func(kind, err error) error {
		return &source.SampleError{ID: id, Path: fmt.Sprint("memory/", id), Kind: kind, Err: err}
	}
	switch {
	case id < 0 || id >= len(m.samples):
		return 0, fail(source.ErrNoSample, nil)
	case len(dst) != len(m.samples[id]):
		return 0, fail(source.ErrLength, nil)
	case ctx.Err() != nil:
		return 0, fail(source.ErrUnavailable, ctx.Err())
	case m.kinds[id] != nil:
		return 0, fail(m.kinds[id], nil)
	}
	copy(dst, m.samples[id])
	return 0, nil
}

func (m *memory) Stat(_ context.Context, id int) (source.Stamp, error) {
	switch {
	case id < 0 || id >= len(m.samples):
		return 0, &source.SampleError{ID: id, Kind: source.ErrNoSample}
	case m.kinds[id] != nil:
		return 0, &source.SampleError{ID: id, Kind: m.kinds[id]}
	}
	return 0, nil
}

func (m *memory) Close() error { return nil }

func TestMinimalSourcePassesTheSuite(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, samples []sourcetest.Sample) sourcetest.Fixture {
		var classes []string
		for _, s := range samples {
			if n := len(classes); n == 0 || classes[n-1] != s.Class {
				classes = append(classes, s.Class)
			}
		}
		b := source.NewBuilder(classes, nil)
		b.Directory(source.Directory{Class: -1})
		m := &memory{kinds: make([]error, len(samples))}
		class := -1
		for i, s := range samples {
			if i == 0 || s.Class != samples[i-1].Class {
				class++
				b.Directory(source.Directory{Path: s.Class, Class: class})
			}
			b.Sample(s.Name, int64(len(s.Data)), 0, 0)
			m.samples = append(m.samples, s.Data)
		}
		index, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		m.index = index
		return sourcetest.Fixture{
			Source: m, Index: index,
			Damage: func(id int, fault sourcetest.Fault) bool {
				m.kinds[id] = map[sourcetest.Fault]error{
					sourcetest.Removed: source.ErrMissing, sourcetest.Emptied: source.ErrEmpty,
				}[fault]
				return m.kinds[id] != nil
			},
		}
	})
}
