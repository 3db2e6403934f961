package order

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/source"
)

// index returns the index of a dataset of 10 samples, sample k of 100 + k bytes.
func index(t *testing.T) *source.Index {
	t.Helper()
	b := source.NewBuilder([]string{"a"}, []string{".x"})
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Path: "a", Class: 0})
	for k := range 10 {
		b.Sample(fmt.Sprintf("%d.x", k), int64(100+k), 0, 0)
	}
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// drawn returns an order of one rank with batches of 2 that the job draws, of a subset unless that
// is nil.
func drawn(t *testing.T, subset []int32) *Order {
	t.Helper()
	o, err := New(&request.Open{WorldSize: 1, Stream: request.Stream{Epochs: 3, GlobalBatch: 2}},
		&request.Order{Subset: subset}, 1, index(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// given returns an order of one rank that gives epochs of 2 batches, 3 samples and 1.
func given(t *testing.T, epochs ...[]int32) *Order {
	t.Helper()
	o, err := New(&request.Open{WorldSize: 1, Stream: request.Stream{
		Epochs: 9, Shuffle: "given", Given: &request.Given{Entries: 4},
	}}, &request.Order{Batches: []int32{3, 1}, Epochs: epochs}, 1, index(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// file returns a memfd with samples.
func file(t *testing.T, ids ...int32) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("order", 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "order")
	t.Cleanup(func() { f.Close() })
	for _, k := range ids {
		if _, err := f.Write([]byte{byte(k), byte(k >> 8), byte(k >> 16), byte(k >> 24)}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestWhatAJobNeeds checks what jobs need of the dataset, each sample counted once, and of memory.
func TestWhatAJobNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		order     *Order
		bytes     int64
		mean      float64
		positions int
		// memory for the orders still to be given, and bits for samples: without transforms, with them
		memory, transformed int64
	}{
		"all":      {drawn(t, nil), 1045, 104.5, 10, 0, 0},
		"a subset": {drawn(t, []int32{1, 1, 4}), 205, 102, 3, 3 * 1, 3 * (1 + 4*(10+3))},
		"given": {
			given(t, []int32{9, 9, 0, 9}), 209, (3*109 + 100) / 4.0, 4,
			3*4*4 + 4*1, 3*4*4 + 4*(1+4*(10+4)),
		},
	} {
		o := c.order
		if o.Bytes() != c.bytes || o.Mean() != c.mean || o.Positions() != c.positions {
			t.Errorf("%s: %d bytes, %g on average, %d positions", name, o.Bytes(), o.Mean(),
				o.Positions())
		}
		if a, b := o.Memory(false), o.Memory(true); a != c.memory || b != c.transformed {
			t.Errorf("%s: %d bytes of memory, %d with transforms", name, a, b)
		}
	}
}

// TestDemandsAreOfGivenEpochs checks that what epochs demand is recorded when they begin, if they
// are given, and that an epoch is forgotten when the next one begins.
func TestDemandsAreOfGivenEpochs(t *testing.T) {
	o := drawn(t, nil)
	o.GoesOn(1, 0)
	o.Opened(nil) // has no effect, because no rank gives parts
	if d := o.Demands(); len(d) > 0 {
		t.Errorf("a job that draws its orders demands %v", d)
	}
	o = given(t, []int32{0, 1, 2, 2}, []int32{2, 3, 3, 4})
	o.GoesOn(0, 1) // its last batch: sample 2
	o.GoesOn(0, 0) // again
	o.GoesOn(1, 0)
	want := []plan.Demand{{Bytes: 102, New: 102}, {Bytes: 309, New: 207}}
	if d := o.Demands(); !slices.Equal(d, want) {
		t.Errorf("demands %+v, want %+v", d, want)
	}
	if o.Epoch(0) != nil || o.Epoch(1) == nil {
		t.Error("the epoch that is over is known, or the one that is read is not")
	}
}

// TestGiveAddsAnEpoch checks which orders a process may give, and where a rank may begin.
func TestGiveAddsAnEpoch(t *testing.T) {
	o := given(t, []int32{0, 1, 2, 3})
	refused := func(why string, m request.Give, f *os.File, to *Order) {
		t.Helper()
		if apart, err := to.Give(0, m, f, nil); err == nil || apart ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("apart: %v, error: %v, want %q", apart, err, why)
		}
	}
	four := file(t, 5, 6, 7, 8)
	refused("this job draws its orders", request.Give{Epoch: 1, Entries: 4}, four, drawn(t, nil))
	refused("epochs must be 0 to", request.Give{Epoch: -1, Entries: 4}, four, o)
	refused("epochs must be 0 to", request.Give{Epoch: request.MaxEpoch + 1, Entries: 4}, four, o)
	refused("has 3 samples", request.Give{Epoch: 1, Entries: 3}, four, o)
	refused("without its descriptor", request.Give{Epoch: 1, Entries: 4}, nil, o)
	refused("sample 10", request.Give{Epoch: 1, Entries: 4}, file(t, 5, 6, 7, 10), o)
	for e := range 3 {
		m := request.Give{Epoch: 1 + e, Entries: 4}
		if apart, err := o.Give(0, m, four, nil); apart || err != nil {
			t.Errorf("epoch %d: apart: %v, %v", 1+e, apart, err)
		}
	}
	refused("too early", request.Give{Epoch: 4, Entries: 4}, four, o)
	if e := o.Epoch(3); e == nil || e.At(0, 3) != 8 {
		t.Error("the last epoch that was given is not known")
	}
	for _, c := range []struct {
		epoch, step int
		planned     bool
		why         string
	}{
		{0, 0, false, ""},
		{3, 2, false, ""}, // after the last step
		{3, 3, false, "step 3 out of range"},
		{4, 0, false, "epoch 4 was not given"},
		{9, 0, false, "the job has 9 epochs"},
		{9, 0, true, "epoch 9 was not given"},
	} {
		if err := o.Check(0, c.epoch, c.step, c.planned); (err == nil) != (c.why == "") ||
			err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestPartsAreChecked checks that a rank's part of an epoch has samples of the dataset, and that a
// rank may begin an epoch only if it has given its part.
func TestPartsAreChecked(t *testing.T) {
	life, end := context.WithCancel(t.Context())
	p := NewTurns(life, time.Hour, slog.New(slog.DiscardHandler))
	p.Came(&request.Part{Rank: 0, Batch: 2, Entries: 2, IDs: []int32{1, 2}})
	p.Leave(0)
	p.Came(&request.Part{Rank: 0, Batch: 2, Entries: 2, IDs: []int32{1, 2}})
	first, all, err := p.Open(t.Context(), silent{}, func(int64, string, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	o, err := New(&request.Open{WorldSize: 2, Stream: request.Stream{Shuffle: "given"}},
		&request.Order{Part: &first, Epochs: [][]int32{all}}, 1, index(t), p)
	if err != nil {
		t.Fatal(err)
	}
	o.Opened(func() {})
	if _, whole := p.heads(); whole {
		t.Error("a rank that has come back counts as one that has left")
	}
	why := "sample 10 at index 1; allowed: 0 to 9"
	if _, err := o.Give(0, request.Give{Epoch: 1, Entries: 2}, file(t, 9, 10), nil); err == nil ||
		!strings.Contains(err.Error(), why) {
		t.Error(err)
	}
	if err := o.Check(0, 1, 0, true); err == nil {
		t.Error("a rank may begin an epoch that it has not given")
	}
	if _, err := o.Give(0, request.Give{Epoch: 1, Entries: 2}, file(t, 9, 0), nil); err != nil {
		t.Error(err)
	}
	if err := o.Check(0, 1, 0, true); err != nil {
		t.Error(err)
	}
	end()
	p.Close()
}

// TestLostEpochIsNamed checks that an error about an epoch of which a part is missing names it.
func TestLostEpochIsNamed(t *testing.T) {
	d := failure.Of(lost(3, "node 1 is gone", map[string]any{"node": 1})).Details
	if d["epoch"] != 3 || d["node"] != 1 || d["key"] != "the order of an epoch" {
		t.Errorf("details %v", d)
	}
}
