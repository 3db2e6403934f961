package node

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

// arrays sets transforms of a sample, whose 1000 bytes all are its ID, to an array of floats.
func arrays(m *request.Open) {
	m.Transforms = []byte(`[
		{"name": "Reshape", "w": 10, "h": 20, "c": 5, "dtype": "uint8"},
		{"name": "ScaleShift16", "scale": 0.5, "shift": [1, 2, 3, 4, 5]}
	]`)
}

// checkArrays checks that a batch is one tensor, and that every element is the result of arrays. It
// returns the batch's slot.
func checkArrays(t *testing.T, r *Rank, b *stage.Batch) error {
	t.Helper()
	if len(b.Slots) != 1 {
		t.Errorf("a batch of %d samples has %d slots", len(b.IDs), len(b.Slots))
	}
	for i, id := range b.IDs {
		if b.Segments[i] != 0 || b.Lengths[i] != 4*sampleSize ||
			b.Offsets[i] != b.Offsets[0]+uint64(4*sampleSize*i) {
			t.Errorf("array %d: %d bytes at %d of segment %d; the first is at %d", i, b.Lengths[i],
				b.Offsets[i], b.Segments[i], b.Offsets[0])
		}
		data := sampleBytes(t, r, b, i)
		for k := range sampleSize {
			want := 0.5 * (float32(id) - float32(1+k%5))
			if got := math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:])); got != want {
				t.Fatalf("element %d of sample %d is %v, want %v", k, id, got, want)
			}
		}
	}
	r.Yielded(b.Epoch, b.Step, stage.Stall{}, b.Audit)
	_, err := r.Return(b.Slots[0])
	return err
}

// TestResultsAreDeliveredAndReported checks that two ranks get the format of results, and the
// results as one tensor, and that the report counts what was read and the time of each transform.
func TestResultsAreDeliveredAndReported(t *testing.T) {
	var w world
	n := w.node()
	ranks := []*Rank{open(t, n, message(0, 2, arrays)), open(t, n, message(1, 2, arrays))}
	together(ranks, func(r *Rank) {
		out := r.Opened().Outputs
		if len(out) != 1 || !slices.Equal(out[0].Shape, []int{10, 20, 5}) ||
			out[0].Type != "float32" {
			t.Errorf("rank %d: output %+v", r.Number(), out)
		}
		err := r.Run(t.Context(), 0, 0, func(b *stage.Batch) error {
			defer r.Yielded(b.Epoch, b.Step, stage.Stall{}, b.Audit)
			return checkArrays(t, r, b)
		})
		if err != nil {
			t.Error(err)
		}
	})
	p := ranks[0].Report().Preprocessing
	if p == nil || p.Samples != 4*samples || len(p.Transforms) != 2 ||
		p.Transforms[0].Name != "Reshape" || p.Transforms[1].Name != "ScaleShift16" {
		t.Errorf("preprocessing %+v", p)
	}
	var read int64
	for _, e := range ranks[0].Report().Epochs {
		for _, a := range e.Reads {
			read += a.Bytes
		}
	}
	if read != 4*total {
		t.Errorf("read %d bytes, want %d: the size of the samples, not of the arrays", read,
			4*total)
	}
	for _, r := range ranks {
		r.Close()
	}
	w.close(t, n)
}

// TestResultsOfDifferentSizesAreDelivered checks that the format of results states that sizes vary,
// and that the process gets samples that are not images unchanged.
func TestResultsOfDifferentSizesAreDelivered(t *testing.T) {
	var w world
	n := w.node()
	r := open(t, n, message(0, 1, func(m *request.Open) {
		m.Transforms = []byte(`[{"name": "Resize", "size": 9}, {"name": "Ragged"}]`)
	}))
	if out := r.Opened().Outputs; len(out) != 1 || !slices.Equal(out[0].Shape, []int{0, 0, 3}) ||
		out[0].Type != "uint8" {
		t.Errorf("output %+v", out)
	}
	seen := 0
	r.Wait() // a process reports that it waits: what it waits for gets memory beyond the ring
	err := r.Run(t.Context(), 0, 0, func(b *stage.Batch) error {
		for i, id := range b.IDs {
			data := sampleBytes(t, r, b, i)
			if len(data) != 8+sampleSize || binary.LittleEndian.Uint64(data) != 0 ||
				data[8] != byte(id) || b.Offsets[i]%8 != 0 {
				t.Errorf("sample %d has %d bytes, beginning with %x", id, len(data),
					data[:min(len(data), 10)])
			}
			seen++
		}
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, b.Audit)
		r.Wait()
		return nil
	})
	if err != nil || seen != 4*samples {
		t.Errorf("%d samples in 4 epochs, error %v", seen, err)
	}
	r.Close()
	w.close(t, n)
}

// TestTransformThreadsAreLimited checks that there are at most as many threads as CPUs, here 4.
func TestTransformThreadsAreLimited(t *testing.T) {
	for asked, want := range map[float64]int{0: 4, 3: 3, 64: 4} {
		var w world
		n := w.node()
		r := open(t, n, message(0, 1, arrays, set("transform_threads", asked)))
		if p := r.Report().Preprocessing; p.Threads != want {
			t.Errorf("transform_threads = %v: %d threads, want %d", asked, p.Threads, want)
		}
		warned := slices.ContainsFunc(r.Opened().Warnings, func(text string) bool {
			return strings.Contains(text, "transform_threads = 64")
		})
		if warned != (asked > 4) {
			t.Errorf("transform_threads = %v: warnings %q", asked, r.Opened().Warnings)
		}
		r.Close()
		w.close(t, n)
	}
}

// TestTransformFaultsFollowThePolicy checks that samples that cannot be transformed are treated
// like samples that cannot be read.
func TestTransformFaultsFollowThePolicy(t *testing.T) {
	for policy, want := range map[string]string{
		"raise":      "uint8 has 5000",
		"skip":       "",
		"substitute": "no readable sample is left",
	} {
		var w world
		n := w.node()
		r := open(t, n, message(0, 1, set("on_error", policy), func(m *request.Open) {
			m.Transforms = []byte(
				`[{"name": "Reshape", "w": 10, "h": 100, "c": 5, "dtype": "uint8"}]`,
			)
			m.Stream.Epochs = 1
		}))
		empty := 0
		err := r.Run(t.Context(), 0, 0, func(b *stage.Batch) error {
			empty++
			if len(b.IDs) > 0 {
				t.Errorf("%s: samples %v were delivered", policy, b.IDs)
			}
			_, err := r.Return(b.Slots[0])
			r.Yielded(b.Epoch, b.Step, stage.Stall{}, b.Audit)
			return err
		})
		switch e := (*source.SampleError)(nil); {
		case policy == "skip":
			if err != nil || empty != 4 || len(r.Report().Faults) != samples {
				t.Errorf("skip: %d batches, %d faults, %v", empty, len(r.Report().Faults), err)
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", policy, err, want)
		case !errors.As(err, &e) || e.Kind != source.ErrContent ||
			!strings.HasPrefix(e.Path, "/data/"):
			t.Errorf("%s: %#v", policy, err)
		}
		r.Close()
		w.close(t, n)
	}
}
