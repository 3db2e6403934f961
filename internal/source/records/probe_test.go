package records

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
)

// noted notes which ranges are probed and dropped.
type noted struct {
	objects.Objects
	calls []string
}

func (n *noted) Probe(ctx context.Context, o *source.Object, offset int64) error {
	n.calls = append(n.calls, fmt.Sprintf("probe %s %d", o.Name, offset))
	return n.Objects.Probe(ctx, o, offset)
}

func (n *noted) Drop(ctx context.Context, o *source.Object, offset, length int64) (bool, error) {
	n.calls = append(n.calls, fmt.Sprintf("drop %s %d %d", o.Name, offset, length))
	return n.Objects.Drop(ctx, o, offset, length)
}

// TestSamplesAreProbedAndDroppedByTheirRanges: in all objects that they are in, and no others.
func TestSamplesAreProbedAndDroppedByTheirRanges(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b"} {
		must(t, os.WriteFile(filepath.Join(root, name), make([]byte, 9000), 0o644))
	}
	d, err := directory.Open(root, directory.Options{})
	must(t, err)
	b := source.NewRecordBuilder([]string{"x", "y"}, nil, nil)
	for _, name := range []string{"a", "b"} {
		o, err := d.Stat(t.Context(), name)
		must(t, err)
		b.Object(o)
	}
	for _, ranges := range [][]source.Range{
		{{Object: 0, Offset: 100, Length: 50}, {Object: 1, Offset: 5000, Length: 3}},
		{{Object: 0, Length: source.Missing}, {Object: 1, Offset: 7, Length: 1}},
		{{Object: 0, Offset: 9000, Length: 0}, {Object: 0, Length: source.Missing}},
	} {
		b.Add(source.Record{Ranges: ranges})
	}
	x, err := b.Build()
	must(t, err)
	place := &noted{Objects: d}
	s := New(place, x)
	defer s.Close() //nolint:errcheck // it was only read
	for id, want := range [][]string{
		{"probe a 100", "probe b 5000", "drop a 100 50", "drop b 5000 3"},
		{"probe b 7", "drop b 7 1"},
		nil,
	} {
		place.calls = nil
		must(t, s.Probe(t.Context(), id))
		_, err := s.Drop(t.Context(), id)
		must(t, err)
		if !slices.Equal(place.calls, want) {
			t.Errorf("sample %d: %q, want %q", id, place.calls, want)
		}
	}
	must(t, os.Truncate(filepath.Join(root, "b"), 10))
	var e *source.SampleError
	if err := s.Probe(t.Context(), 0); !errors.Is(err, source.ErrShort) || !errors.As(err, &e) {
		t.Errorf("an object that is too short: %v", err)
	}
	must(t, os.Remove(filepath.Join(root, "a")))
	if err := s.Probe(t.Context(), 2); !errors.Is(err, source.ErrMissing) {
		t.Errorf("a missing object: %v", err)
	}
	if err := s.Probe(t.Context(), 3); !errors.Is(err, source.ErrNoSample) {
		t.Errorf("no sample: %v", err)
	}
}
