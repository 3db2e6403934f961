package breaker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
)

// one is what a request for a sample of one byte takes.
var one = exchange.Want{Size: 1}

// node is a peer that behaves as a test sets it.
type node struct {
	takes time.Duration
	reads time.Duration // of what it takes: for the source
	err   error
	asked int
}

func (n *node) Fetch(ctx context.Context, id int32, dst []byte, _ exchange.Want) (
	exchange.Answer, error,
) {
	n.asked++
	select {
	case <-time.After(n.takes):
	case <-ctx.Done():
		return exchange.Answer{}, &exchange.FetchError{Kind: exchange.ErrUnavailable, Err: ctx.Err()}
	}
	if n.err == nil {
		dst[0] = byte(id)
	}
	return exchange.Answer{Digest: 9, Waited: n.reads}, n.err
}

type rig struct {
	nodes  []*node
	set    *Set
	source time.Duration
	said   []string
}

func newRig(n int) *rig { return newTimedRig(n, 0) }

// newTimedRig is newRig for reads that may take so long in all.
func newTimedRig(n int, timeout time.Duration) *rig {
	r := &rig{}
	o := Options{Node: 0, Peers: []Fetcher{nil}, Timeout: timeout}
	for range n - 1 {
		r.nodes = append(r.nodes, &node{takes: time.Millisecond})
		o.Peers = append(o.Peers, r.nodes[len(r.nodes)-1])
	}
	o.Tell = func(node int, text string) {
		r.said = append(r.said, fmt.Sprintf("%d %s", node, text))
	}
	r.set = NewSet(o)
	return r
}

// takes returns how long the source takes.
func (r *rig) takes() time.Duration { return r.source }

// read reads a sample as a cache does, and returns from where.
func (r *rig) read(id int) string {
	if _, ok := r.set.Owner(id, 1, 1); ok {
		dst := make([]byte, 1)
		a, err := r.set.Fetch(context.Background(), id, dst, one, r.takes, 0)
		if err == nil {
			if a.Digest != 9 {
				return fmt.Sprintf("digest %d", a.Digest)
			}
			if dst[0] != byte(id) {
				panic("another sample")
			}
			return "peer"
		}
	}
	return "source"
}

func TestOnlyOwnedSamplesAreFetchedFromPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(3)
		if r.read(1) != "source" {
			t.Error("a sample has an owner before SetOwner")
		}
		r.set.SetOwner(func(id int) int { return id - 1 })
		for id, want := range map[int]string{
			0: "source",
			1: "source",
			2: "peer",
			3: "peer",
			4: "source",
		} {
			if got := r.read(id); got != want {
				t.Errorf("sample %d, of node %d: from the %s, want %s", id, id-1, got, want)
			}
		}
	})
}

// TestOwnersSourceIsNotTheNetwork: what a node waits for its source, on behalf of others, is not
// counted as the network's.
func TestOwnersSourceIsNotTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const source = 0.5
		r := newRig(2)
		r.source = source * 1e9
		r.set.SetOwner(func(int) int { return 1 })
		expect := func(when string, want float64, relays bool) {
			t.Helper()
			if r.set.Relays(0) != relays {
				t.Errorf("%s: expected to read the sample: %v", when, !relays)
			}
			if got, _ := r.set.Owner(0, 1, 1); math.Abs(got.Arrival-want) > 0.02 {
				t.Errorf("%s: expected to take %.3f s, want %.3f", when, got.Arrival, want)
			}
		}
		expect("before it has answered", source/1000, true)
		r.nodes[0].takes, r.nodes[0].reads = 1010*time.Millisecond, time.Second
		for id := range 100 {
			r.read(id)
		}
		expect("cold", 0.01, true)
		r.nodes[0].takes, r.nodes[0].reads = 10*time.Millisecond, 0
		for id := range 100 {
			r.read(id)
		}
		expect("warm", 0.01, false)
	})
}

// TestHangingNodeIsBypassed: a node that hangs costs a request a tenth of a second, and after two
// seconds nothing for growing pauses.
func TestHangingNodeIsBypassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2)
		r.set.SetOwner(func(int) int { return 1 })
		r.read(0)
		r.nodes[0].takes = time.Hour
		begun := time.Now()
		for range 1000 {
			if r.read(1) != "source" {
				t.Fatal("it answered")
			}
			time.Sleep(100 * time.Millisecond) // the source
		}
		if waited := time.Since(begun) - 100*time.Second; waited > 4*time.Second ||
			r.nodes[0].asked < 5 {
			t.Errorf("waited %v, asked %d times", waited, r.nodes[0].asked)
		}
		r.nodes[0].takes = time.Millisecond
		time.Sleep(routing.MaxPause)
		for range 2 {
			if r.read(1) != "peer" {
				t.Error("not asked though it answers again")
			}
		}
		if want := "1 is bypassed; its samples are read from the source: |1 " +
			"answers again"; len(r.said) != 2 ||
			!strings.HasPrefix(r.said[0], strings.Split(want, "|")[0]) ||
			r.said[1] != strings.Split(want, "|")[1] {
			t.Errorf("said %q", r.said)
		}
	})
}

// TestTimeLimitFollowsTheSource: a node gets a time to answer that depends on how long the source
// takes, since it may have to read the sample first.
func TestTimeLimitFollowsTheSource(t *testing.T) {
	type times struct{ source, due time.Duration }
	for of, want := range map[times]time.Duration{
		{}:                              routing.MinTimeout,
		{source: 10 * time.Millisecond}: routing.MinTimeout,
		{source: 10 * time.Millisecond, due: 70 * time.Millisecond}: routing.MinTimeout,
		{due: 700 * time.Millisecond}:                               700 * time.Millisecond,
		{due: time.Minute}:                                          routing.ExpectedLimit,
		{source: 500 * time.Millisecond, due: time.Second}:          4 * time.Second,
		{source: 5 * time.Second}:                                   routing.MaxTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(2)
			r.set.SetOwner(func(int) int { return 1 })
			r.read(1) // it has answered at once
			r.nodes[0].takes, r.source = time.Hour, of.source
			begun := time.Now()
			_, err := r.set.Fetch(t.Context(), 1, make([]byte, 1), one, r.takes, of.due)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != want {
				t.Errorf("%+v: %v after %v, want an error after %v", of, err, time.Since(begun), want)
			}
		})
	}
}

// TestSlowSourceIsKnownWhenALimitIsOver: how long the source takes is a guess at first. If it was
// found to be slow when the request's limit is over, the node has as long as the source may take.
func TestSlowSourceIsKnownWhenALimitIsOver(t *testing.T) {
	const guessed, known = time.Millisecond, 900 * time.Millisecond
	for _, test := range []struct {
		source, answers, want time.Duration
		late                  bool
	}{
		{guessed, 1100 * time.Millisecond, routing.ExpectedLimit, true},
		{time.Second, 1100 * time.Millisecond, 1100 * time.Millisecond, false},
		{500 * time.Millisecond, time.Hour, 4 * time.Second, true},
		{time.Minute, time.Hour, routing.MaxTimeout, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(2)
			r.set.SetOwner(func(int) int { return 1 })
			r.nodes[0].takes = test.answers
			begun := time.Now()
			_, err := r.set.Fetch(t.Context(), 1, make([]byte, 1), one, func() time.Duration {
				if time.Since(begun) < known {
					return guessed
				}
				return test.source
			}, 0)
			if took := time.Since(begun); took != test.want ||
				test.late != errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v: %v after %v", test, err, took)
			}
		})
	}
}

// TestSilentNodeLeavesTimeForTheSource: where a read may take 5 s in all, a node that does not
// answer takes a quarter of that, however slow the source is thought to be.
func TestSilentNodeLeavesTimeForTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimedRig(2, 5*time.Second)
		r.source, r.nodes[0].takes = time.Minute, time.Hour
		r.set.SetOwner(func(int) int { return 1 })
		began := time.Now()
		if got, took := r.read(1), time.Since(began); got != "source" ||
			took != 1250*time.Millisecond {
			t.Errorf("from the %s after %v", got, took)
		}
	})
}

// TestLateAnswersAreNoFailures: a node that answers some requests too late is asked all the same,
// and its reads are predicted to take as long as they do.
func TestLateAnswersAreNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2)
		r.source = 10 * time.Millisecond
		r.set.SetOwner(func(int) int { return 1 })
		for i := range 200 {
			r.nodes[0].takes = time.Duration(10+190*(i%2)) * time.Millisecond
			want := []string{"peer", "source"}[i%2]
			if got := r.read(1); got != want {
				t.Fatalf("request %d: from the %s, want %s", i, got, want)
			}
		}
		if len(r.said) > 0 || r.set.States()[0].Failed > 0 {
			t.Errorf("said %q; state %+v", r.said, r.set.States())
		}
		if got, ok := r.set.Owner(1, 1, 1); !ok || got.Arrival < 0.02 || got.Arrival > 0.2 {
			t.Errorf("predicted to take %.3f s, %v", got.Arrival, ok)
		}
	})
}

func TestFailureKindsOpenTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, c := range map[error]struct {
			asked int // of 20 requests within a second
			said  bool
		}{
			exchange.ErrNotHeld:     {20, false},
			exchange.ErrFailed:      {20, false},
			exchange.ErrUnavailable: {2, true},
			exchange.ErrCorrupt:     {1, true},
			exchange.ErrRefused:     {1, true},
		} {
			r := newRig(2)
			r.set.SetOwner(func(int) int { return 1 })
			r.nodes[0].err = &exchange.FetchError{Kind: kind, Err: errors.New("why")}
			for range 20 {
				if r.read(1) != "source" {
					t.Errorf("%v: from the peer", kind)
				}
				time.Sleep(40 * time.Millisecond)
			}
			if r.nodes[0].asked != c.asked || (len(r.said) > 0) != c.said {
				t.Errorf("%v: asked %d times, want %d; said %q", kind, r.nodes[0].asked, c.asked,
					r.said)
			}
			if s := r.set.States(); len(s) != 1 || s[0].Node != 1 ||
				s[0].Failed != int64(c.asked) || s[0].Bypassed != c.said {
				t.Errorf("%v: state %+v", kind, s)
			}
		}
	})
}

func TestDeadNodeIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2)
		r.set.SetOwner(func(int) int { return 1 })
		r.set.SetAlive(1, false)
		if r.read(1) != "source" || r.nodes[0].asked != 0 {
			t.Error("asked though it is dead")
		}
		r.set.SetAlive(1, true)
		if r.read(1) != "peer" {
			t.Error("not asked though it is back")
		}
		if len(r.said) != 2 {
			t.Errorf("said %q", r.said)
		}
	})
}

// TestSamplesThatANodeGaveBackAreNotAskedFor checks that the latest set of samples that a node gave
// back decides, in parts that may come in any order, and that they are asked for again.
func TestSamplesThatANodeGaveBackAreNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(3)
		r.set.SetOwner(func(id int) int { return 1 + id%2 })
		check := func(when string, fromSource ...int) {
			t.Helper()
			for id := range 40 {
				want := "peer"
				if slices.Contains(fromSource, id) {
					want = "source"
				}
				if got := r.read(id); got != want {
					t.Errorf("%s: sample %d comes from the %s", when, id, got)
				}
			}
		}
		check("at first")
		r.set.SetAway(1, 2, 0, []byte{0b101, 0b10}) // samples 0, 2 and 9, which is not its own
		check("gave back", 0, 2)
		r.set.SetAway(1, 1, 0, []byte{0xff})
		check("an older set", 0, 2)
		r.set.SetAway(1, 2, 24, []byte{1})
		check("another part", 0, 2, 24)
		r.set.SetAlive(1, false)
		r.set.SetAlive(1, true)
		check("the node was cut off", 0, 2, 24)
		r.set.SetAway(1, 3, 16, []byte{1})
		check("a newer set", 16)
		r.set.SetAway(1, 4, 0, nil)
		check("holds all again")
		r.set.SetAway(7, 1, 0, []byte{1}) // no such node
	})
}
