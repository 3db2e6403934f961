package order

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// TestTranscripts runs the transcripts in testdata/turns. Ranks 0 and 1 are on node 0, ranks 2 and
// 3 on node 1. At the start nodes wait 30 s for each other. A part has 2 samples. The output of a
// command is what ranks got, and the next turn of each node.
//
//	open ids=               the ranks open the job with these samples of epoch 0; each letter
//	                        stands for 2 samples: a for 0 and 1, b for 2 and 3
//	give rank= epoch= ids=  a rank gives its part of an epoch
//	apart rank= epoch=      a rank gives no part, because it reads apart
//	await rank= epoch=      a rank waits for an epoch
//	leave rank=             a rank leaves
//	gone node=              a node fails, with its ranks
//	hold, release           samples of parts do not arrive meanwhile
//	wait for=               time passes
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/turns", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			p := newPlayer(t)
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				p.do(t, d)
				synctest.Wait()
				return p.state()
			})
			p.end()
		})
	})
}

// hub connects the two nodes.
type hub struct {
	mu      sync.Mutex
	said    map[string][2][]byte
	gone    [2]bool
	held    bool          // samples of parts do not arrive
	changed chan struct{} // closed and replaced with each change
}

// member is a node's connection to the hub.
type member struct {
	hub *hub
	me  int
}

func (m member) Ranks() [][]int                     { return [][]int{{0, 1}, {2, 3}} }
func (m member) Me() int                            { return m.me }
func (m member) Missing(context.Context, int) []int { return nil }

func (m member) Gather(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	h := m.hub
	h.mu.Lock()
	said := h.said[what]
	said[m.me] = mine
	h.said[what] = said
	h.signal()
	for {
		said := h.said[what]
		gone := h.gone[1-m.me]
		changed := h.changed
		late := h.held && strings.Contains(what, "from")
		h.mu.Unlock()
		switch {
		case late:
		case said[0] != nil && said[1] != nil:
			return said[:], nil
		case gone:
			return said[:], &cluster.GatherError{What: what, Missing: []int{1 - m.me}}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		h.mu.Lock()
	}
}

func (m member) GatherInTime(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	return m.Gather(ctx, what, mine)
}

// set changes the hub.
func (h *hub) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	h.signal()
}

// signal wakes waiting goroutines. h.mu must be held.
func (h *hub) signal() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// player runs the nodes of a transcript.
type player struct {
	hub     *hub
	turns   [2]*Turns
	streams [2]*access.Stream
	end     func()

	mu   sync.Mutex
	told []string
}

func newPlayer(t *testing.T) *player {
	p := &player{hub: &hub{said: map[string][2][]byte{}, changed: make(chan struct{})}}
	life, end := context.WithCancel(t.Context())
	for n := range p.turns {
		p.turns[n] = NewTurns(life, 30*time.Second, slog.New(slog.NewTextHandler(io.Discard, nil)))
	}
	p.end = func() {
		end()
		for _, turns := range p.turns {
			turns.Close()
		}
	}
	return p
}

func (p *player) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprintf(format, args...))
}

func (p *player) do(t *testing.T, d *datadriven.TestData) {
	var rank, epoch, node int
	var ids, pause string
	for name, to := range map[string]any{
		"rank":  &rank,
		"epoch": &epoch,
		"node":  &node,
		"ids":   &ids,
		"for":   &pause,
	} {
		if d.HasArg(name) {
			d.ScanArgs(t, name, to)
		}
	}
	turns := p.turns[rank/2]
	switch d.Cmd {
	case "open":
		p.open(t, ids)
	case "give":
		if err := turns.give(part(rank, epoch, ids)); err != nil {
			p.tell("rank %d is refused: %v", rank, err)
		}
	case "apart":
		if err := turns.give(&request.Part{
			Rank:  rank,
			Epoch: epoch,
			Apart: "it cannot be copied",
		}); err != nil {
			p.tell("rank %d is refused: %v", rank, err)
		}
	case "await":
		go func() {
			if err := turns.Await(t.Context(), epoch); err != nil {
				p.tell("rank %d: %v", rank, err)
			} else {
				p.tell("rank %d gets epoch %d", rank, epoch)
			}
		}()
	case "leave":
		turns.Leave(rank)
	case "gone":
		p.hub.set(func() { p.hub.gone[node] = true })
	case "hold", "release":
		p.hub.set(func() { p.hub.held = d.Cmd == "hold" })
	case "wait":
		length, err := time.ParseDuration(pause)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		<-time.After(length)
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
}

// part returns a rank's part of an epoch: 2 samples for each letter.
func part(rank, epoch int, ids string) *request.Part {
	x := &request.Part{Rank: rank, Epoch: epoch, Batch: 2, Entries: 2 * len(ids)}
	for _, c := range ids {
		x.IDs = append(x.IDs, 2*(c-'a'), 2*(c-'a')+1)
	}
	return x
}

func (p *player) open(t *testing.T, ids string) {
	for rank := range 4 {
		p.turns[rank/2].Came(part(rank, 0, ids[rank:rank+1]))
	}
	for n, turns := range p.turns {
		go func() {
			first, order, err := turns.Open(t.Context(), member{p.hub, n},
				func(int64, string, string) error {
					return nil
				})
			if err != nil {
				p.tell("node %d: %v", n, err)
				return
			}
			stream, err := access.NewGivenShared(100, 4, first.Batch, first.Entries, 0)
			if err == nil {
				err = stream.Give(0, order)
			}
			if err != nil {
				p.tell("node %d: %v", n, err)
				return
			}
			p.streams[n] = stream
			turns.opened(stream, 0, func() {})
		}()
	}
}

// state returns what ranks got since the last call, and the state of the nodes' turns.
func (p *player) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.told)
	var out strings.Builder
	for _, text := range p.told {
		fmt.Fprintln(&out, text)
	}
	p.told = nil
	for n, turns := range p.turns {
		if p.streams[n] == nil {
			continue
		}
		turns.mu.Lock()
		fmt.Fprintf(&out, "node %d: turn %d, epochs", n, turns.turn)
		for _, e := range p.streams[n].GivenEpochs() {
			var order strings.Builder
			for rank := range 4 {
				order.WriteString(string(rune('a' + p.streams[n].Epoch(e).At(rank, 0)/2)))
			}
			out.WriteString(" " + strconv.Itoa(e) + "=" + order.String())
		}
		if turns.err != nil {
			out.WriteString(", and no further ones")
		}
		turns.mu.Unlock()
		out.WriteString("\n")
	}
	return out.String()
}
