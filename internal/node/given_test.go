package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/node/request/requesttest"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// TestGivenEpochsAreDelivered checks that epochs are delivered as given, that a run ends with the
// last known epoch or continues into one that is given in time, and that orders of past epochs are
// dropped.
func TestGivenEpochsAreDelivered(t *testing.T) {
	batches := []int32{3, 1, 6}
	orders := [][]int32{
		{39, 39, 0, 5, 1, 2, 3, 4, 5, 6},
		{10, 11, 12, 13, 14, 15, 15, 15, 15, 16},
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		{9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
	}
	wanted := func(epoch, step int) []int32 {
		from := []int32{0, 3, 4}[step]
		return orders[epoch][from : from+batches[step]]
	}
	check := func(t *testing.T, got map[at][]int32, epochs ...int) {
		t.Helper()
		if len(got) != 3*len(epochs) {
			t.Errorf("%d batches, want %d", len(got), 3*len(epochs))
		}
		for here, ids := range got {
			if !slices.Contains(epochs, here.epoch) ||
				!slices.Equal(ids, wanted(here.epoch, here.step)) {
				t.Errorf("%+v: samples %v", here, ids)
			}
		}
	}
	for _, policy := range keepingOrder() {
		for _, background := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/background=%v", policy.Name(), background), func(t *testing.T) {
				w := world{}
				n := w.node()
				if background {
					n.options.Strategy.AtOnce = -1
				}
				r := open(t, n,
					message(0, 1, by(t, batches, 0, orders[0]), set("policy", policy.Name())))
				if o := r.Opened(); o.Positions != 10 || o.Steps != 3 || o.RankSamples != 10 {
					t.Errorf("opened %+v", o)
				}
				r.Wait()
				check(t, consume(t, r, at{}, end), 0)
				// What is read earlier is kept only if epoch 0 has it.
				<-r.entry.open.Job.Planner().Done()
				if a, err := r.Audit(t.Context(), 0); err != nil || !a.Complete || a.Samples != 10 {
					t.Errorf("audit %+v, %v", a, err)
				}
				if err := r.Check(1, 0); err == nil ||
					!strings.Contains(err.Error(), "epoch 1 was not given") {
					t.Errorf("an unknown epoch: %v", err)
				}
				for e := 1; e < 3; e++ {
					if err := give(t, r, e, orders[e]); err != nil {
						t.Fatal(err)
					}
				}
				if x, err := r.Explain(2, 2, -1); err != nil || !slices.Equal(x.IDs, wanted(2, 2)) {
					t.Errorf("explained %+v, %v", x, err)
				}
				r.Wait()
				check(t, consume(t, r, at{1, 0}, end), 1, 2)
				known := r.entry.open.Order.Stream().GivenEpochs()
				if !slices.Equal(known, []int{2}) {
					t.Errorf("epochs %v are known, want only 2", known)
				}
				if a, err := r.Audit(t.Context(), 2); err != nil || !a.Complete {
					t.Errorf("audit %+v, %v", a, err)
				}
				if _, err := r.Explain(1, 0, -1); err == nil ||
					!strings.Contains(err.Error(), "epoch 1 was not given, or is over") {
					t.Errorf("explained an epoch whose order was dropped: %v", err)
				}
				if err := give(t, r, 3, orders[3]); err != nil {
					t.Fatal(err)
				}
				r.Wait()
				got := consume(t, r, at{3, 1}, end) // in the middle of an epoch
				if len(got) != 2 || !slices.Equal(got[at{3, 2}], wanted(3, 2)) {
					t.Errorf("resumed: %v", got)
				}
				rep := r.Report()
				if policy.About().Copies == plan.NoCopies {
					if want := int64(8+7+10+7) * sampleSize; rep.Bound != want {
						t.Errorf("bound %d, want %d", rep.Bound, want)
					}
				} else if want := int64(8+7+3) * sampleSize; rep.Bound != want ||
					w.bytes.Load() != want { // 7, 8, 9 are new in epoch 2
					t.Errorf("%d bytes left the source, the bound is %d; want %d", w.bytes.Load(),
						rep.Bound, want)
				}
				r.Close()
				w.close(t, n)
			})
		}
	}
}

// TestRunContinuesIntoAnEpochGivenInTime checks that a run continues into an epoch that is given
// before the process has taken the last batch of the previous one, however far the run is ahead.
func TestRunContinuesIntoAnEpochGivenInTime(t *testing.T) {
	w := world{}
	n := w.node()
	r := open(t, n,
		message(0, 1, by(t, []int32{1, 1, 1, 1}, 5, []int32{1, 2, 3, 4}), func(m *request.Open) {
			m.Stream.Epochs = 0
		}))
	var got []int32
	err := r.Run(t.Context(), 5, 0, func(b *stage.Batch) error {
		if b.Epoch < 150 && b.Step == 3 {
			if err := give(t, r, b.Epoch+1,
				[]int32{int32(b.Epoch % samples), 2, 3, 4}); err != nil {
				return err
			}
		}
		if b.Step == 0 {
			got = append(got, int32(b.IDs[0]))
		}
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, 0)
		r.Wait()
		if known := r.entry.open.Order.Stream().GivenEpochs(); len(known) > 2 {
			return fmt.Errorf("epochs %v are known", known)
		}
		return nil
	})
	if err != nil || len(got) != 146 || got[0] != 1 || got[145] != 149%samples {
		t.Errorf("%v; first samples %v", err, got)
	}
	r.Close()
	w.close(t, n)
}

// TestInvalidOrdersAreRefused checks that an invalid order is refused with epoch, index and value,
// and that a process cannot give orders too far ahead.
func TestInvalidOrdersAreRefused(t *testing.T) {
	w := world{}
	n := w.node()
	r := open(t, n, message(0, 1, by(t, []int32{2, 1}, 0, []int32{1, 2, 3}), func(m *request.Open) {
		m.Stream.Epochs = 9
	}))
	for _, c := range []struct {
		epoch int
		ids   []int32
		want  string
	}{
		{1, []int32{1, 2, 40}, "epoch 1 is given with sample 40 at index 2; allowed: 0 to 39"},
		{1, []int32{1, -2, 3}, "epoch 1 is given with sample -2 at index 1"},
		{1, []int32{1, 2}, "the order of epoch 1 has 2 samples, but an epoch's batches have 3"},
		{
			0,
			[]int32{1, 2, 4},
			"epoch 0 is given again with another order: sample 4 at index 2, which was 3",
		},
		{0, []int32{1, 2, 3}, ""},
		{9, []int32{1, 2, 3}, "there are 9 epochs"},
		{-1, []int32{1, 2, 3}, "the order of epoch -1"},
		{1, []int32{1, 2, 3}, ""},
		{2, []int32{1, 2, 3}, ""},
		{3, []int32{1, 2, 3}, ""},
		{
			4,
			[]int32{1, 2, 3},
			"the order of epoch 4 is given too early: those of epochs [0 1 2 3]",
		},
	} {
		err := give(t, r, c.epoch, c.ids)
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				failure.Of(err).Kind != failure.Config) {
			t.Errorf("epoch %d, %v: %v; want %q", c.epoch, c.ids, err, c.want)
		}
	}
	if err := r.Give(request.Give{Epoch: 2, Entries: 3},
		requesttest.List(t, []int32{1, 2})); err == nil ||
		!strings.Contains(err.Error(),
			"the order of epoch 2: its descriptor has 8 bytes, and 12 are needed") {
		t.Errorf("a short descriptor: %v", err)
	}
	r.Close()
	drawn := open(t, n, message(0, 1))
	if err := give(t, drawn, 1, make([]int32, samples)); err == nil ||
		!strings.Contains(err.Error(), "this job draws its orders") {
		t.Errorf("an order for a job that draws its own: %v", err)
	}
	drawn.Close()
	w.close(t, n)
}
