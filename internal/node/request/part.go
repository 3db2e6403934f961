package request

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/failure"
)

// Part is one rank's part of an epoch that the ranks of several nodes give together. Nodes send it
// to each other as JSON, and the samples separately.
type Part struct {
	Rank    int `json:"rank"`
	Epoch   int `json:"epoch"`
	Batch   int `json:"batch"`   // samples of each of its batches, except the last
	Entries int `json:"entries"` // number of samples
	// Seed is the seed that the rank would use if it read alone; the job uses rank 0's, of turn 0.
	Seed uint64 `json:"seed"`
	// Apart is why the rank reads by itself, and gives no samples; "": it does not.
	Apart string  `json:"apart,omitempty"`
	Left  bool    `json:"left,omitempty"` // the rank has left
	IDs   []int32 `json:"-"`
}

// Same reports whether two parts have the same epoch, samples and Apart.
func (a *Part) Same(b *Part) bool {
	return a.Epoch == b.Epoch && a.Apart == b.Apart && slices.Equal(a.IDs, b.IDs)
}

// readPart reads a rank's part of the first epoch that the ranks of several nodes give together.
func readPart(m *Open, admit Admit) (*Order, error) {
	g := m.Stream.Given
	switch {
	case g.First < 0 || g.First > MaxEpoch || g.Epochs != 1:
		return nil, failure.Input("stream.given.first = %d, epochs = %d: ranks that share epochs "+
			"give one at a time, 0 to %d", g.First, g.Epochs, MaxEpoch)
	case g.Apart == "" && (g.Batch < 1 || g.Batch > MaxBatch):
		return nil, failure.Input("stream.given.batch = %d: allowed: 1 to %d", g.Batch, MaxBatch)
	}
	o := &Order{
		First: g.First,
		Part: &Part{
			Rank:  m.Rank,
			Epoch: g.First,
			Batch: g.Batch,
			Seed:  g.Seed,
			Apart: human.Text(g.Apart),
		},
	}
	o.Digest = "a part of each rank" // parts are compared once all ranks have given theirs
	if o.Part.Apart != "" {
		return o, nil
	}
	var err error
	o.Part.IDs, err = ReadSamples(m.Stream.List, "stream.given", g.Entries, admit)
	o.Part.Entries = g.Entries
	return o, err
}
