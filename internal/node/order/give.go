package order

import (
	"fmt"
	"os"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// Give adds the order of an epoch, or a rank's part of it, from a file. The file remains the
// caller's. apart reports that the rank will give no more parts. admit returns an error if there is
// not enough memory for a part that is longer than earlier ones.
func (o *Order) Give(rank int, m request.Give, file *os.File,
	admit request.Admit,
) (apart bool, err error) {
	what := fmt.Sprintf("the order of epoch %d", m.Epoch)
	if !o.Given() {
		return false,
			failure.Input("%s is given, but this job draws its orders: stream.shuffle is %q",
				what, o.stream.Spec().Shuffle)
	}
	if m.Epoch < 0 || m.Epoch > request.MaxEpoch {
		return false, failure.Input("%s is given: epochs must be 0 to %d", what, request.MaxEpoch)
	}
	if o.turns != nil {
		return m.Apart != "", o.givePart(rank, m, what, file, admit)
	}
	if held := o.stream.GivenEpochs(); len(held) >= o.held && !slices.Contains(held, m.Epoch) {
		return false, failure.Input("%s is given too early: those of epochs %v are not over yet, "+
			"and at most %d may be known at a time",
			what, held, o.held)
	}
	if n := o.stream.Delivered(); m.Entries != n {
		return false, failure.Input("%s has %d samples, but an epoch's batches have %d", what,
			m.Entries, n)
	}
	ids, err := request.ReadSamples(file, what, m.Entries, nil) // the memory is already claimed
	if err != nil {
		return false, err
	}
	if err := o.stream.Give(m.Epoch, ids); err != nil {
		return false, failure.Input("%v", err)
	}
	return false, nil
}

// givePart adds a rank's part of an epoch. A part of another length than earlier ones is accepted
// here, because the other ranks must learn of it too.
func (o *Order) givePart(rank int, m request.Give, what string, file *os.File,
	admit request.Admit,
) error {
	mine := &request.Part{
		Rank:    rank,
		Epoch:   m.Epoch,
		Batch:   o.said.Part.Batch,
		Entries: m.Entries,
		Apart:   human.Text(m.Apart),
	}
	if mine.Apart != "" {
		return o.turns.give(mine)
	}
	if m.Entries <= o.stream.RankSamples(rank) { // the memory is already claimed
		admit = nil
	}
	var err error
	if mine.IDs, err = request.ReadSamples(file, what, m.Entries, admit); err != nil {
		return err
	}
	samples := o.index.Len()
	for i, k := range mine.IDs {
		if k < 0 || int(k) >= samples {
			return failure.Input("epoch %d is given with sample %d at index %d; allowed: 0 to %d",
				m.Epoch, k, i, samples-1)
		}
	}
	return o.turns.give(mine)
}
