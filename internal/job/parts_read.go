package job

import (
	"os"

	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// readPart reads a rank's part of the first epoch that the ranks of several nodes give together.
func (n *Node) readPart(m *protocol.OpenMessage) (*order, error) {
	g := m.Stream.Given
	switch {
	case g.First < 0 || g.First > maxEpoch || g.Epochs != 1:
		return nil, badInput("stream.given.first = %d, epochs = %d: ranks that share epochs give one at a time, 0 to %d", g.First, g.Epochs, maxEpoch)
	case g.Apart == "" && (g.Batch < 1 || g.Batch > protocol.MaxBatch):
		return nil, badInput("stream.given.batch = %d: allowed: 1 to %d", g.Batch, protocol.MaxBatch)
	}
	o := &order{first: g.First, part: &part{Rank: m.Rank, Epoch: g.First, Batch: g.Batch, Seed: g.Seed, Apart: printable.Text(g.Apart)}}
	o.digest = "a part of each rank" // these are compared when all have come
	if o.part.Apart != "" {
		return o, nil
	}
	l, err := openList(m.Stream.List, "stream.given", 1, g.Entries, 0)
	if err == nil {
		err = n.checkList(l)
	}
	if err == nil {
		o.part.ids, err = l.read(g.Entries)
	}
	o.part.Entries = g.Entries
	return o, err
}

// givePart adds this rank's part of an epoch. That it has another length than those before the other ranks hear as well.
func (r *Rank) givePart(m protocol.GiveMessage, what string, file *os.File) error {
	j := r.job
	mine := &part{Rank: r.rank, Epoch: m.Epoch, Batch: j.order.part.Batch, Entries: m.Entries, Apart: printable.Text(m.Apart)}
	if mine.Apart != "" {
		j.book.Leave(r.rank) // it is through with no epoch any more
		return j.parts.give(mine)
	}
	l, err := openList(file, what, 1, m.Entries, 0)
	if err == nil && m.Entries > j.stream.RankSamples(r.rank) { // else the job has claimed the memory
		err = j.node.checkList(l)
	}
	if err == nil {
		mine.ids, err = l.read(m.Entries)
	}
	if err != nil {
		return err
	}
	samples := j.dataset.Index().Len()
	for i, k := range mine.ids {
		if k < 0 || int(k) >= samples {
			return badInput("epoch %d is given with sample %d at index %d; allowed: 0 to %d", m.Epoch, k, i, samples-1)
		}
	}
	return j.parts.give(mine)
}
