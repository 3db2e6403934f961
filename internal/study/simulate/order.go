package simulate

import (
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// Order measures an order that was delivered, as Result has it of one that is simulated: the share
// of the dataset seen in an epoch, and the distance from a full shuffle, both of the first epochs.
// It is for one goroutine.
type Order struct{ measure measure }

// Others returns the measure of orders that do not read what the stream would, which has as many
// samples and steps. full and last have the samples of a batch by node, and of an epoch's last.
func Others(stream *access.Stream, full, last []int, epochs int) *Order {
	m := &simulation{
		sizes: make([]float64, stream.Spec().Samples), steps: stream.Steps(), epochs: epochs,
		full: full, last: last, job: &Job{Scheme: stream.Spec().Scheme},
		how: simulated.Run{Reorder: func(int) simulated.Batches { return nil }},
	}
	return &Order{newMeasure(m, stream)}
}

// Epochs returns how many epochs are counted, the first ones.
func (o *Order) Epochs() int { return o.measure.epochs }

// Add counts a batch of a node, of an epoch below Epochs.
func (o *Order) Add(epoch, step, node int, ids []int32) { o.measure.add(epoch, step, node, ids) }

// Result returns the mean share of the dataset that is read in an epoch, and the distance from a
// full shuffle, which is 0 for a single epoch.
func (o *Order) Result() (seen, distance float64) { return o.measure.result() }
