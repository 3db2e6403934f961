package order

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// exchangePiece is how many bytes of an order all nodes together send at a time. It bounds the
// memory that node 0 needs for each slow node.
const exchangePiece = 16 << 20

// gather sends the other nodes what this node's ranks give in a turn, and returns what all ranks
// give, by rank. In turn 0 it waits as long as nodes wait for each other at the start, later
// without a limit.
func (p *Turns) gather(ctx context.Context, turn int,
	mine []*request.Part,
) ([]*request.Part, error) {
	gather := p.nodes.Gather
	if turn == 0 {
		gather = p.nodes.GatherInTime
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	texts, err := gather(ctx, fmt.Sprintf("order %d", turn), text)
	if err != nil {
		return nil, p.gone(err, mine)
	}
	return decodeParts(texts, p.nodes.Ranks(), p.world)
}

// decodeParts decodes the parts that nodes sent, and returns them by rank.
func decodeParts(texts [][]byte, nodes [][]int, world int) ([]*request.Part, error) {
	all := make([]*request.Part, world)
	for n, due := range nodes {
		var theirs []*request.Part
		if err := json.Unmarshal(texts[n], &theirs); err != nil || slices.Contains(theirs, nil) {
			return nil,
				failure.Input("node %d sent parts of an epoch that cannot be decoded: %v", n,
					err)
		}
		ranks := make([]int, len(theirs))
		for i, x := range theirs {
			ranks[i] = x.Rank
			if x.Entries < 0 || x.Batch < 0 || x.Epoch < 0 || x.Epoch > request.MaxEpoch {
				return nil, failure.Input("node %d sent an invalid part of rank %d: %d samples of "+
					"epoch %d, in batches of %d",
					n, x.Rank, x.Entries, x.Epoch, x.Batch)
			}
		}
		if !slices.Equal(ranks, due) {
			return nil,
				failure.Input("node %d sent parts of ranks %v, but has ranks %v", n, ranks, due)
		}
		for _, x := range theirs {
			all[x.Rank] = x
		}
	}
	return all, nil
}

// gone converts an error of a gather into one that names the nodes that are missing.
func (p *Turns) gone(err error, mine []*request.Part) error {
	var e *cluster.GatherError
	switch {
	case errors.As(err, &e) && len(e.Missing) == 0:
		return readApart("%v", err) // for example, a node that has given up
	case e == nil:
		return err
	}
	epoch, who := 0, "node"
	for _, x := range mine {
		epoch = max(epoch, x.Epoch)
	}
	if len(e.Missing) > 1 {
		who = "one of nodes"
	}
	return lost(epoch, fmt.Sprintf("%s %s is gone",
		who, strings.Trim(fmt.Sprint(e.Missing), "[]")), map[string]any{"node": e.Missing[0]})
}

// samples sends the other nodes the samples of this node's parts of a turn, entries of each rank,
// and returns all parts as one order: sample i of rank r at index i*world + r.
func (p *Turns) samples(ctx context.Context, turn int, mine []*request.Part,
	entries int,
) ([]int32, error) {
	bytes := make([]byte, 0, 4*entries*len(mine))
	for _, x := range mine {
		for _, k := range x.IDs {
			bytes = binary.LittleEndian.AppendUint32(bytes, uint32(k))
		}
	}
	nodes, most := p.nodes.Ranks(), 0
	for _, ranks := range nodes {
		most = max(most, 4*entries*len(ranks))
	}
	order := make([]int32, p.world*entries)
	size := min(cluster.MaxPayload, exchangePiece/len(nodes)) &^ 3
	for from := 0; from < most; from += size {
		piece := bytes[min(from, len(bytes)):min(from+size, len(bytes))]
		all, err := p.nodes.GatherInTime(ctx, fmt.Sprintf("order %d from %d", turn, from), piece)
		if err != nil {
			return nil, p.gone(err, mine)
		}
		for n, ranks := range nodes {
			if err := interleave(order, all[n], from, size, ranks, entries); err != nil {
				return nil, failure.Input("node %d: %v", n, err)
			}
		}
	}
	return order, nil
}

// interleave puts a piece of a node's parts, at most size bytes at offset from, where it belongs in
// the order of all ranks.
func interleave(order []int32, piece []byte, from, size int, ranks []int, entries int) error {
	whole, world := 4*entries*len(ranks), len(order)/entries
	if want := min(from+size, whole) - min(from, whole); len(piece) != want {
		return fmt.Errorf("it sent %d bytes of its ranks' parts of an epoch at offset %d, want %d",
			len(piece), from, want)
	}
	for at := from / 4; len(piece) > 0; at++ {
		order[at%entries*world+ranks[at/entries]] = int32(binary.LittleEndian.Uint32(piece))
		piece = piece[4:]
	}
	return nil
}

// logWaiting logs which ranks have not given their parts of an epoch that a rank of this node waits
// for.
func (p *Turns) logWaiting(epoch int) {
	turn, missing := p.Missing()
	missing = append(missing, p.nodes.Missing(p.life, turn)...)
	slices.Sort(missing)
	p.log.Warn("waiting for other ranks to begin an epoch: its order is known once all ranks have "+
		"drawn their parts",
		"epoch", epoch, "ranks", missing)
}

// Missing returns the next turn, and the ranks of this node that have not given their part of it.
func (p *Turns) Missing() (turn int, ranks []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine, _ := p.heads()
	for _, x := range mine {
		if x.IDs == nil && x.Apart == "" {
			ranks = append(ranks, x.Rank)
		}
	}
	return p.turn, ranks
}
