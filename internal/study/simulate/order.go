package simulate

import "fmt"

// Order measures an order that was delivered, as Result has it of one that is simulated: the share
// of the dataset seen in an epoch, and the distance from a full shuffle. It is for one goroutine.
type Order struct {
	measure measure
	samples int
	epochs  int
}

// OrderShape describes an order.
type OrderShape struct {
	Samples, Epochs, Steps int   // of the dataset, of the order, and batches of an epoch
	Full, Last             []int // samples of a batch by node, and of an epoch's last
}

// NewOrder returns the measure of an order of which nothing was added yet.
func NewOrder(s OrderShape) (*Order, error) {
	if s.Samples < 1 || s.Epochs < 1 || s.Steps < 1 || len(s.Full) < 1 ||
		len(s.Last) != len(s.Full) {
		return nil, fmt.Errorf("simulate: an order of %d samples, %d epochs, %d steps and %d nodes; "+
			"there must be at least one of each", s.Samples, s.Epochs, s.Steps, len(s.Full))
	}
	return &Order{measureOf(shape{
		samples: s.Samples, epochs: s.Epochs, steps: s.Steps, full: s.Full, last: s.Last, share: 1,
	}), s.Samples, s.Epochs}, nil
}

// Add adds the batch of a node: samples, counted from 0.
func (o *Order) Add(epoch, step, node int, ids []int32) error {
	s := &o.measure
	if epoch < 0 || epoch >= o.epochs || step < 0 || step >= s.steps {
		return fmt.Errorf("simulate: batch %d of epoch %d; there are %d epochs of %d", step, epoch,
			o.epochs, s.steps)
	}
	for _, k := range ids {
		if k < 0 || int(k) >= o.samples {
			return fmt.Errorf("simulate: sample %d of an order; allowed: 0 to %d", k, o.samples-1)
		}
	}
	if epoch < s.epochs {
		s.add(epoch, step, node, ids)
	}
	return nil
}

// Result returns the mean share of the dataset that an epoch shows, and the distance from a full
// shuffle, which is 0 for a single epoch. Both are of the first four epochs.
func (o *Order) Result() (seen, distance float64) { return o.measure.result() }
