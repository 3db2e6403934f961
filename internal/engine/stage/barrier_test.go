package stage

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// TestNumbersOfSegments checks that a segment of a class has one number.
func TestNumbersOfSegments(t *testing.T) {
	for _, s := range []cache.Segment{
		{}, {Number: 1}, {Class: 1}, {Class: 255, Number: store.MaxSegments - 1},
	} {
		if got, ok := OfClass(ClassSegment(s)); !ok || got != s {
			t.Errorf("%+v has become %+v, %v", s, got, ok)
		}
	}
	if _, ok := OfClass(7); ok {
		t.Error("a segment of the staging buffer is one of a class")
	}
}

// TestNoBatchNamesASegmentAfterItsBarrier gives segments back while batches are staged: each batch
// has the right samples, and none that is emitted after the barrier names the segment.
func TestNoBatchNamesASegmentAfterItsBarrier(t *testing.T) {
	o := plain(400, 4)
	class := memory.New(memory.Options{Segment: 4096})
	o.memory = 1 << 20
	o.memoryClass = class
	o.ahead = 8
	g := newRig(t, o)
	defer g.close()
	r := g.ranks[0]
	gone := map[uint32]bool{} // of Run's goroutine
	inPlace := g.stores[0].(store.InPlace)
	defer g.stores[0].(store.Shrinker).Join(tenant{func(segment uint32, settled func()) {
		r.stager.Barrier(func() {
			settled()
			gone[ClassSegment(cache.Segment{Number: segment})] = true
		})
	}})()
	named, emitted := 0, 0
	out := map[step][]seen{}
	err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
		for i, number := range b.Segments {
			at, ok := OfClass(number)
			if !ok {
				continue
			}
			named++
			if gone[number] {
				return errors.New("a batch names a segment after its barrier")
			}
			f, _, ok := inPlace.Segment(at.Number)
			if !ok {
				return errors.New("a batch names a segment that is closed")
			}
			data := make([]byte, b.Lengths[i])
			if _, err := f.ReadAt(data, int64(b.Offsets[i])); err != nil {
				return err
			}
			out[step{b.Epoch, b.Step}] = append(out[step{b.Epoch, b.Step}],
				seen{int(b.IDs[i]), int(b.Labels[i]), data})
		}
		if emitted++; emitted%5 == 0 {
			class.GiveBack(1, "a test")
		}
		g.giveBack(r, b)
		r.ledger.Yielded(b.Epoch, b.Step, Stall{})
		r.stager.Taken(b.Epoch, b.Step, Stall{})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for at, samples := range out {
		want := g.want(0, at)
		if len(samples) == len(want) && !equal(samples, want) {
			t.Errorf("batch %v has other samples", at)
		}
	}
	if named == 0 || len(gone) == 0 {
		t.Errorf("%d samples in place; segments %v are gone", named, gone)
	}
}

// tenant passes on which segments go.
type tenant struct {
	vacate func(segment uint32, settled func())
}

func (t tenant) Vacate(segment uint32, _ []int32, settled, gone func()) {
	gone()
	t.vacate(segment, settled)
}
func (tenant) Refill()                      {}
func (tenant) Delay() time.Duration         { return 0 }
func (tenant) Rank() func(id int32) float64 { return func(int32) float64 { return 0 } }

// TestBarrierPassesWhenNothingIsInProgress checks a barrier before, in and after a Run, which is
// cut off.
func TestBarrierPassesWhenNothingIsInProgress(t *testing.T) {
	g := newRig(t, plain(40, 2))
	defer g.close()
	r := g.ranks[0]
	var passed []string
	note := func(what string) func() {
		return func() { passed = append(passed, what) }
	}
	r.stager.Barrier(note("before"))
	ctx, cancel := context.WithCancel(t.Context())
	batches := 0
	err := r.stager.Run(ctx, 0, 0, func(b *Batch) error {
		if batches++; batches == 2 {
			r.stager.Barrier(note("during"))
			if len(passed) != 1 {
				t.Errorf("passed %v although the batch is being emitted", passed)
			}
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.stager.Barrier(note("after"))
	if !slices.Equal(passed, []string{"before", "during", "after"}) {
		t.Errorf("passed %v", passed)
	}
}

// TestBatchesInPlaceAreBoundedInTime checks that no more batches are laid out than the process
// takes within the cache's horizon, and how long it is expected to take for them.
func TestBatchesInPlaceAreBoundedInTime(t *testing.T) {
	o := plain(40, 2)
	class := memory.New(memory.Options{})
	o.memory, o.memoryClass = 1<<20, class
	g := newRig(t, o)
	defer g.close()
	s := g.ranks[0].stager
	now := time.Now()
	for i := range 5 {
		s.pace.Took(now.Add(time.Duration(i-4)*time.Second), 1, 0)
	}
	for horizon, want := range map[time.Duration]int{
		10 * time.Second: 10, time.Second: 2, time.Millisecond: 2,
	} {
		class.SetHorizon(horizon)
		if got := s.reach(); got != want {
			t.Errorf("%v: %d batches, want %d", horizon, got, want)
		}
	}
	class.SetHorizon(0)
	if got := s.reach(); got < 1<<30 {
		t.Errorf("without a horizon: %d batches", got)
	}
	s.laidOut, s.taken = 7, 4
	if got := s.Delay(); got.Round(time.Second) != 3*time.Second {
		t.Errorf("the delay is %v", got)
	}
	s.pace = meter.Pace{}
	for i := range 5 {
		s.pace.Took(now.Add(time.Duration(i-4)*time.Second-time.Minute), 1, 0)
	}
	if got := s.Delay(); got < 3*time.Minute/perAck {
		t.Errorf("the delay is %v after a minute without a batch", got)
	}
	s.laidOut, s.taken = 0, 0
}

// TestBarriersPassAtTheEndOfARun: batches that were begun and discarded hold up nobody.
func TestBarriersPassAtTheEndOfARun(t *testing.T) {
	var s Stager
	passed := 0
	for range 2 {
		s.barriers.begin()
	}
	s.Barrier(func() { passed++ })
	if s.barriers.end(); passed != 0 {
		t.Error("it passes with a batch in progress")
	}
	if s.barriers.endAll(); passed != 1 {
		t.Errorf("it has passed %d times when no batch is in progress", passed)
	}
}
