package lockstep

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/failure"
)

// TestHistories has ranks run alike, and checks that each of their runs ends before the same batch
// on all of them, with an error on all or on none, whatever is staged and heard when.
func TestHistories(t *testing.T) {
	for seed := range uint64(3000) {
		h := newHistory(seed)
		if wrong := h.run(); wrong != "" {
			t.Fatalf("seed %d: %s\n%s", seed, wrong, strings.Join(h.log, "\n"))
		}
	}
}

// history is a training loop that several ranks run alike: it trains batch after batch, each
// together with all ranks; breaks off before some batches, and goes on elsewhere; and begins again
// after errors. Batches are staged ahead of it, some cannot be read by some ranks, once or ever,
// and nodes hear of each other late, and not of everything. What happens next is drawn by chance.
type history struct {
	*rand.Rand
	batches int
	over    bool // after an error the loop goes on after the batch, else with it
	nodes   []*Stops
	mail    [][][]Stop // by node, lists that it has not heard
	sent    []int      // by node, the version of its last list
	ranks   []*looping
	unread  map[int]bool // batches that some rank could not read
	parts   []*part
	log     []string
}

// part is what the loop does between two beginnings.
type part struct {
	from, breaks, to int  // it breaks off before a batch, and goes on elsewhere
	ended            bool // on some rank, before batch at
	failed           bool // with an error
	at               int
}

// bad is when a batch cannot be read: from a part of the loop on, once or ever.
type bad struct {
	part int
	ever bool
}

// looping is the loop of a rank, and what is staged for it.
type looping struct {
	rank, node int
	bad        map[int]bad // batches that cannot be read
	ahead      int         // most batches that are staged and not taken
	run        *Run
	canceled   bool
	err        error // with which the run has ended
	limit      int   // the batch before which its process sees its stream end; negative: none
	part, at   int   // the next batch
	done       bool
}

func newHistory(seed uint64) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 0)), unread: map[int]bool{}}
	h.batches, h.over = 6+h.IntN(18), h.IntN(2) == 0
	h.add(0)
	for n := range 1 + h.IntN(3) {
		h.nodes = append(h.nodes, New(n, fmt.Sprint(n), func(error) {}))
		h.mail, h.sent = append(h.mail, nil), append(h.sent, 0)
		for range 1 + h.IntN(2) {
			l := &looping{rank: len(h.ranks), node: n, bad: map[int]bad{}, ahead: 1 + h.IntN(9)}
			for range h.IntN(4) { // the last batch is no such one: then a loop may be gone
				l.bad[h.IntN(h.batches-1)] = bad{h.IntN(4), h.over && h.IntN(2) == 0}
			}
			h.ranks = append(h.ranks, l)
			h.begin(l)
		}
	}
	return h
}

// add adds a part that begins with a batch.
func (h *history) add(from int) {
	p := &part{from: from, breaks: -1}
	if len(h.parts) < 8 && h.IntN(3) > 0 {
		p.breaks, p.to = from+1+h.IntN(h.batches), h.IntN(h.batches)
	}
	h.parts = append(h.parts, p)
}

func (h *history) begin(l *looping) {
	if l.run != nil && l.err == nil {
		_ = l.run.End(context.Canceled, true)
	}
	l.at = h.parts[l.part].from
	l.err = nil
	l.canceled = false
	l.run = h.nodes[l.node].Begin(l.rank, l.at, func() { l.canceled = true },
		func(at int) { l.limit = at })
	h.say("rank %d begins at %d in round %d, limit %d", l.rank, l.at, l.run.round, l.limit)
}

func (h *history) say(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// run lets things happen until all loops are through. It returns what went wrong.
func (h *history) run() (wrong string) {
	for quiet, turns := false, 0; ; turns++ {
		if turns > 100_000 {
			return "it does not end"
		}
		acts := false
		for _, i := range h.Perm(3 * len(h.ranks)) {
			l := h.ranks[i/3]
			switch i % 3 {
			case 0:
				acts = h.stage(l)
			case 1:
				acts, wrong = h.train(l, quiet)
			case 2:
				acts = h.talk(l.node)
			}
			if wrong != "" {
				return wrong
			}
			if acts {
				break
			}
		}
		if !acts && quiet {
			break
		}
		quiet = !acts
	}
	for _, l := range h.ranks {
		if !l.done {
			return fmt.Sprintf("rank %d waits for batch %d", l.rank, l.at)
		}
	}
	return ""
}

// talk has a node hear a list, or sends its own to the others.
func (h *history) talk(node int) bool {
	if mail := h.mail[node]; len(mail) > 0 && h.IntN(3) == 0 {
		i := h.IntN(len(mail)) // they may overtake each other
		h.say("node %d hears %+v", node, brief(mail[i]))
		h.nodes[node].Hear(mail[i])
		h.mail[node] = append(mail[:i:i], mail[i+1:]...)
		return true
	}
	list, version, _ := h.nodes[node].Own()
	if h.sent[node] == version {
		return len(h.mail[node]) > 0
	}
	h.sent[node] = version
	for other := range h.nodes {
		if other != node {
			h.mail[other] = append(h.mail[other], list)
		}
	}
	return true
}

func brief(list []Stop) (out []string) {
	for _, p := range list {
		out = append(out, fmt.Sprintf("rank %d round %d at %d raised %v over %v", p.Rank, p.Round,
			p.At, p.Raised, p.Over))
	}
	return out
}

// stage stages a batch for a loop, or ends its run. It reports whether it did.
func (h *history) stage(l *looping) bool {
	if l.done || l.err != nil {
		return false
	}
	next := l.run.next
	bad, is := l.bad[next]
	switch {
	case l.canceled:
		l.err = l.run.End(context.Canceled, false)
	case next == h.batches || next-l.at >= l.ahead:
		return false
	case is && l.part >= bad.part:
		if !bad.ever {
			delete(l.bad, next)
		}
		h.unread[next] = true
		l.err = l.run.End(&failure.Error{Kind: failure.Sample, Message: "unreadable"}, false)
		h.say("rank %d cannot read %d, limit %d", l.rank, next, l.limit)
	default:
		_ = l.run.Deliver(func() error { return nil })
	}
	return true
}

// train has a loop take its next batch, break off before it, or fail. It reports whether it did.
// quiet is set if all news has been received.
func (h *history) train(l *looping, quiet bool) (did bool, wrong string) {
	p := h.parts[l.part]
	if l.done {
		return false, ""
	}
	if p.ended && p.failed && l.at > p.at && quiet {
		l.at-- // it took what another did not get, and fails when the news has come
		if l.err == nil || l.run.end() > l.at {
			return true, fmt.Sprintf("rank %d is not told of batch %d", l.rank, p.at)
		}
		h.nodes[l.node].Raised(l.rank)
		return true, h.goOn(l, true)
	}
	if p.ended && p.at < l.at || slices.ContainsFunc(h.ranks, func(o *looping) bool {
		return h.behind(o, l)
	}) {
		return false, "" // in its allreduce
	}
	switch {
	case l.at == p.breaks:
		return true, h.goOn(l, false)
	case l.at == h.batches:
		l.done = true
		_ = l.run.End(nil, false)
		return true, ""
	case l.run.next > l.at && (l.limit < 0 || l.at < l.limit):
		h.nodes[l.node].Took(l.rank, l.at)
		l.at++
		return true, ""
	case l.err != nil:
		h.nodes[l.node].Raised(l.rank)
		return true, h.goOn(l, true)
	}
	return false, ""
}

// behind reports whether loop o has yet to take a batch that l has had, so that l is in its
// allreduce. While o has yet to end the part that l has ended, l may take a first batch, or fail.
func (h *history) behind(o, l *looping) bool {
	switch l.part - o.part {
	case 0:
		return o.at < l.at
	case 1:
		return o.at < h.parts[o.part].at || l.at > h.parts[l.part].from
	}
	return o.part < l.part
}

// goOn ends the part of a loop before its next batch, and begins the next one.
func (h *history) goOn(l *looping, failed bool) (wrong string) {
	p := h.parts[l.part]
	h.say("rank %d ends part %d before batch %d, failed %v", l.rank, l.part, l.at, failed)
	if failed && !h.unread[l.at] {
		return fmt.Sprintf("rank %d fails at batch %d, which all can read", l.rank, l.at)
	}
	if p.ended && (p.at != l.at || p.failed != failed) {
		return fmt.Sprintf("rank %d ends part %d before batch %d (with an error: %v), where others "+
			"end before %d (%v)", l.rank, l.part, l.at, failed, p.at, p.failed)
	}
	if !p.ended {
		p.ended = true
		p.failed = failed
		p.at = l.at
		to := p.to
		if failed {
			to = l.at
			if h.over {
				to++
			}
		}
		h.add(to)
	}
	l.part++
	h.begin(l)
	return ""
}
