package job

import (
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// TestEmptyBatchesCannotBeShared checks that the ranks of a job agree on whether some of them would
// have an empty batch, and that one that has one gets an error that states why it cannot share.
func TestEmptyBatchesCannotBeShared(t *testing.T) {
	for _, c := range []struct {
		batch          int
		drop           bool
		empties, fails bool // for some rank; for the second
	}{
		{batch: 4},
		{batch: samples - 1, empties: true, fails: true},
		{batch: samples - 1, drop: true, empties: true},
	} {
		w := start(t, func(_ *Config, p *Parts) {
			m := &request.Open{Job: "j", WorldSize: 2, Stream: request.Stream{
				Epochs: 4, GlobalBatch: c.batch, DropLast: c.drop,
				Shuffle: "torch", Scheme: "uniform", Tail: "keep",
			}}
			var err error
			if p.Order, err = order.New(m, &request.Order{}, 7, p.Order.Index(), nil); err != nil {
				t.Fatal(err)
			}
		})
		for rank := range 2 {
			r := w.join(t, rank)
			if r.Empties(c.batch) != c.empties {
				t.Errorf("%+v: rank %d says %v", c, rank, !c.empties)
			}
			_, _, _, err := r.Shape()
			if errors.As(err, &Unshareable{}) != (c.fails && rank == 1) {
				t.Errorf("%+v: rank %d says %v", c, rank, err)
			}
			r.Close()
		}
	}
}
