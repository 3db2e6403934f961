package order

import (
	"fmt"
	"os"
	"slices"

	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/request"
)

// Give adds the order of an epoch, or a rank's part of it, which lies in the file; the file stays
// the caller's. apart: the rank gives no further ones. admit refuses a part that is longer than
// those before, where there is no memory for it.
func (o *Order) Give(rank int, m request.Give, file *os.File,
	admit request.Admit,
) (apart bool, err error) {
	what := fmt.Sprintf("the order of epoch %d", m.Epoch)
	if !o.Given() {
		return false, failure.Input("%s is given, but the orders of this job are drawn: "+
			"stream.shuffle is %q",
			what, o.stream.Spec().Shuffle)
	}
	if m.Epoch < 0 || m.Epoch > request.MaxEpoch {
		return false, failure.Input("%s is given: epochs are 0 to %d", what, request.MaxEpoch)
	}
	if o.turns != nil {
		return m.Apart != "", o.givePart(rank, m, what, file, admit)
	}
	if held := o.stream.GivenEpochs(); len(held) >= o.held && !slices.Contains(held, m.Epoch) {
		return false,
			failure.Input("%s is given, while those of epochs %v are known and not over: at "+
				"most %d may be, so give it later",
				what, held, o.held)
	}
	if n := o.stream.Delivered(); m.Entries != n {
		return false,
			failure.Input("%s has %d samples; the batches of an epoch have %d", what, m.Entries, n)
	}
	ids, err := request.ReadSamples(file, what, m.Entries, nil) // the job has claimed the memory
	if err != nil {
		return false, err
	}
	if err := o.stream.Give(m.Epoch, ids); err != nil {
		return false, failure.Input("%v", err)
	}
	return false, nil
}

// givePart adds a rank's part of an epoch. That it has another length than those before the other
// ranks hear as well.
func (o *Order) givePart(rank int, m request.Give, what string, file *os.File,
	admit request.Admit,
) error {
	mine := &request.Part{
		Rank:    rank,
		Epoch:   m.Epoch,
		Batch:   o.said.Part.Batch,
		Entries: m.Entries,
		Apart:   printable.Text(m.Apart),
	}
	if mine.Apart != "" {
		return o.turns.give(mine)
	}
	if m.Entries <= o.stream.RankSamples(rank) { // the job has claimed the memory
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
