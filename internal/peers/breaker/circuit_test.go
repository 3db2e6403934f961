package breaker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
)

const ms = time.Millisecond

var errDown = &exchange.FetchError{Kind: exchange.ErrUnavailable, Err: errors.New("down")}

// TestPausesGrowUntilAnAnswer checks when a node that fails is asked: after half a second, and then
// twice as long each time, up to 30 s; and that an answer, or its return, begins again.
func TestPausesGrowUntilAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2)
		r.set.SetOwner(func(int) int { return 1 })
		asked := func(seconds int) (at []time.Duration) {
			begun, before := time.Now(), r.nodes[0].asked
			for range 10 * seconds {
				if r.read(1); r.nodes[0].asked > before {
					before = r.nodes[0].asked
					at = append(at, time.Since(begun).Round(100*time.Millisecond))
				}
				time.Sleep(100 * time.Millisecond)
			}
			return at
		}
		growing := []time.Duration{
			0, 500 * time.Millisecond, 1500 * time.Millisecond, 3500 * time.Millisecond,
			7500 * time.Millisecond, 15500 * time.Millisecond, 31500 * time.Millisecond,
			61500 * time.Millisecond, 91500 * time.Millisecond,
		}
		r.nodes[0].err, r.nodes[0].takes = errDown, 0
		if got := asked(100); !slices.Equal(got, growing) {
			t.Errorf("asked at %v, want %v", got, growing)
		}
		time.Sleep(routing.MaxPause)
		r.nodes[0].err = nil
		r.read(1)
		r.nodes[0].err = errDown
		if got := asked(3); !slices.Equal(got, growing[:3]) {
			t.Errorf("after an answer asked at %v, want %v", got, growing[:3])
		}
		r.set.SetAlive(1, false)
		r.set.SetAlive(1, true)
		if got := asked(3); !slices.Equal(got, growing[:3]) {
			t.Errorf("after its return asked at %v, want %v", got, growing[:3])
		}
	})
}

// TestBypassIsSaidOnce checks what is reported of a node, and its state: once that it is bypassed,
// with the reason, however often it fails; once that it answers again.
func TestBypassIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(3)
		r.set.SetOwner(func(int) int { return 1 })
		state := func() (failed int64, reason string, bypassed bool) {
			s := r.set.States()
			if len(s) != 2 || s[0].Node != 1 || s[1].Node != 2 || s[1].Failed != 0 {
				t.Fatalf("states %+v", s)
			}
			return s[0].Failed, s[0].Reason, s[0].Bypassed
		}
		r.nodes[0].takes = 4 * time.Millisecond
		r.read(1)
		if got := r.set.States()[0]; got.Latency != 4e6 || !got.Alive || got.Bypassed {
			t.Errorf("after an answer: %+v", got)
		}
		r.nodes[0].takes = 20 * time.Millisecond
		r.read(1)
		if got := r.set.States()[0].Latency; got != 5e6 {
			t.Errorf("after answers in 4 and 20 ms the average is %d ns, want 5 ms", got)
		}
		r.nodes[0].err = errDown
		for range 3 {
			r.read(1)
			time.Sleep(routing.MaxPause)
		}
		if failed, reason, _ := state(); failed != 3 || !strings.Contains(reason, "down") {
			t.Errorf("failed %d times, because of %q", failed, reason)
		}
		if _, _, bypassed := state(); bypassed {
			t.Error("bypassed after its pause")
		}
		r.nodes[0].err = nil
		r.read(1)
		r.read(1)
		r.set.SetAlive(1, false)
		r.set.SetAlive(1, false)
		if _, _, bypassed := state(); !bypassed {
			t.Error("a node that is gone is not bypassed")
		}
		r.set.SetAlive(1, true)
		r.set.SetAlive(1, true)
		want := []string{"1 is bypassed", "1 answers again", "1 is gone", "1 is back"}
		if !slices.EqualFunc(r.said, want, strings.HasPrefix) {
			t.Errorf("said %q, want %q", r.said, want)
		}
		r.set.SetAway(3, 1, 0, []byte{1}) // no such node
		r.set.SetAlive(3, false)
		r.set.SetAlive(-1, false)
	})
}

// TestSilenceIsCountedFromTheFirstRequest checks that a node which answers no request for a time is
// bypassed, and one that answers some is not.
func TestSilenceIsCountedFromTheFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2)
		r.set.SetOwner(func(int) int { return 1 })
		c := r.set.circuits[1]
		r.read(1)
		r.nodes[0].takes = time.Hour
		fetch := func() error {
			_, err := r.set.Fetch(t.Context(), 1, make([]byte, 1), one, r.takes, 0)
			return err
		}
		for begun := time.Now(); ; {
			err := fetch()
			if silent := time.Since(begun); silent < routing.MinSilence && !errors.Is(err, errLate) {
				t.Fatalf("after %v of silence: %v", silent, err)
			} else if silent < routing.MinSilence {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), "no answer for 2") {
				t.Errorf("after 2 s of silence: %v", err)
			}
			break
		}
		if c.worth(1, time.Now()) || !r.set.States()[0].Bypassed {
			t.Error("asked although it is silent")
		}
		time.Sleep(routing.MinPause)
		if err := fetch(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errLate) {
			t.Errorf("when it is probed: %v, want that it does not answer", err)
		}
		r.nodes[0].takes = 0
		time.Sleep(routing.MaxPause)
		if err := fetch(); err != nil {
			t.Fatal(err)
		}
		r.nodes[0].takes = time.Hour
		if err := fetch(); !errors.Is(err, errLate) {
			t.Errorf("once after an answer: %v", err)
		}
	})
}

// TestCancelledRequestIsNoFailure checks that a request that its caller gives up does not count
// against the node.
func TestCancelledRequestIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2)
		r.set.SetOwner(func(int) int { return 1 })
		r.nodes[0].takes, r.source = time.Hour, time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := r.set.Fetch(ctx, 1, make([]byte, 1), one, r.takes, 0); err == nil {
			t.Error("it answered")
		}
		if s := r.set.States()[0]; s.Failed != 0 || s.Bypassed || len(r.said) > 0 {
			t.Errorf("state %+v, said %q", s, r.said)
		}
	})
}

// TestRequestThatWaitsForTheOwnersSource checks that a request in progress is not taken for a sign
// of a slow node as long as it has taken no longer than the node waits for its source on average.
func TestRequestThatWaitsForTheOwnersSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2)
		r.source = time.Second
		r.set.SetOwner(func(int) int { return 1 })
		r.nodes[0].takes, r.nodes[0].reads = 1010*time.Millisecond, time.Second
		for id := range 100 {
			r.read(id)
		}
		go r.read(1)
		time.Sleep(900 * time.Millisecond)
		if got, _ := r.set.Owner(2, 1, 1); got.Arrival > 0.1 {
			t.Errorf("expected to take %.3f s, want 0.01 without its source", got.Arrival)
		}
		time.Sleep(time.Second)
	})
}

// watched notes the context of a request.
type watched struct{ ctx context.Context }

func (w *watched) Fetch(ctx context.Context, _ int32, _ []byte, _ exchange.Want) (
	exchange.Answer, error,
) {
	w.ctx = ctx
	return exchange.Answer{}, nil
}

// TestRequestsContextEndsWithIt checks that nothing of a request is left.
func TestRequestsContextEndsWithIt(t *testing.T) {
	w := &watched{}
	set := NewSet(Options{Node: 0, Peers: []Fetcher{nil, w}})
	set.SetOwner(func(int) int { return 1 })
	dst := make([]byte, 1)
	if _, err := set.Fetch(t.Context(), 1, dst, one, (&rig{}).takes, 0); err != nil {
		t.Fatal(err)
	}
	if w.ctx.Err() == nil {
		t.Error("its context goes on")
	}
	set.SetAlive(1, false) // Options.Tell is nil
}

// TestOwnerThatCannotBeAsked checks that a sample without an owner, of this node, or of one that is
// not there is read from the source.
func TestOwnerThatCannotBeAsked(t *testing.T) {
	r := newRig(2)
	for _, owner := range []int{-1, 0, 2} {
		r.set.SetOwner(func(int) int { return owner })
		if _, ok := r.set.Owner(1, 1, 1); ok {
			t.Errorf("owner %d: worth asking", owner)
		}
		if a, err := r.set.Fetch(t.Context(), 1, nil, routing.Want{}, r.takes, 0); a.Node != -1 ||
			!errors.Is(err, ErrBypassed) {
			t.Errorf("owner %d: asked node %d: %v", owner, a.Node, err)
		}
	}
	if r.nodes[0].asked > 0 {
		t.Errorf("asked %d times", r.nodes[0].asked)
	}
}

// TestIdleNodeIsStale checks when a node is asked only to renew its estimate: if it was not asked
// for a second, or, if the source is slow, for longer; and again at once if it has turned out to be
// faster. One that does not answer leaves time for the source.
func TestIdleNodeIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2)
		r.set.SetOwner(func(int) int { return 1 })
		stale := func(source time.Duration, want bool) {
			t.Helper()
			owner, ok := r.set.Owner(1, 1, source.Seconds())
			if !ok || owner.Stale != want {
				t.Errorf("worth asking: %v, stale: %v, want %v", ok, owner.Stale, want)
			}
		}
		fetch := func(source, due time.Duration) error {
			r.source = source
			_, err := r.set.Fetch(t.Context(), 1, make([]byte, 1), one, r.takes, due)
			return err
		}
		time.Sleep(time.Hour)
		stale(ms, false) // before it was asked
		r.nodes[0].takes = 600 * ms
		for range 50 {
			if err := fetch(time.Second, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		for range 400 { // so that there may be a few requests in vain
			stale(ms, false)
		}
		time.Sleep(999 * ms)
		stale(ms, false)
		time.Sleep(ms)
		stale(15*ms, false)
		stale(ms, true)
		begun := time.Now()
		if err := fetch(10*ms, 300*ms); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begun) != 290*ms {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		stale(ms, false)
		r.nodes[0].takes = ms
		time.Sleep(time.Second)
		asked := 0
		for owner, _ := r.set.Owner(1, 1, 1e-3); owner.Arrival > 0.02; asked++ {
			stale(ms, true)
			if err := fetch(ms, 10*ms); err != nil {
				t.Fatal(err)
			}
			owner, _ = r.set.Owner(1, 1, 1e-3)
		}
		if asked < 2 || asked > 12 {
			t.Errorf("asked %d times until it is known to be fast", asked)
		}
	})
}

// TestTrialsInVainAreFew checks that, of many reads, no more than a hundredth are asked of a node
// that stays slow only to renew its estimate.
func TestTrialsInVainAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reads = 5000
		r := newRig(2)
		r.set.SetOwner(func(int) int { return 1 })
		r.nodes[0].takes = 600 * ms
		for range 50 {
			if _, err := r.set.Fetch(t.Context(), 1, make([]byte, 1), one, func() time.Duration {
				return time.Second
			}, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		before := r.nodes[0].asked
		for range reads {
			if owner, ok := r.set.Owner(1, 1, 1e-3); ok && owner.Stale {
				r.source = ms
				_, err := r.set.Fetch(t.Context(), 1, make([]byte, 1), one, r.takes, 10*ms)
				if err == nil {
					t.Fatal("it answered in time")
				}
			}
			time.Sleep(30 * ms)
		}
		if asked := r.nodes[0].asked - before; asked < 5 || asked > reads/100+1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// TestKnownIsOfTheOtherNodes checks that estimates of this node's own circuit do not count.
func TestKnownIsOfTheOtherNodes(t *testing.T) {
	r := newRig(3)
	if k := r.set.Known(1); k.Origin != model.Guessed {
		t.Errorf("at first %+v", k)
	}
	r.set.circuits[0].meter.Know(model.Known{
		Coefficients: model.Coefficients{Latency: 9}, Origin: model.Given,
	})
	if k := r.set.Known(1); k.Origin != model.Guessed {
		t.Errorf("of this node %+v", k)
	}
	given := model.Known{
		Coefficients: model.Coefficients{Latency: 3}, Origin: model.Given,
	}
	r.set.Know(given)
	if k := r.set.Known(1); k.Origin != model.Given || k.Coefficients.Latency != 3 {
		t.Errorf("of the others %+v, want %+v", k, given)
	}
}

// TestConcurrentUse has the race detector check that each method takes the lock.
func TestConcurrentUse(t *testing.T) {
	c := newRig(2).set.circuits[1]
	c.meter.Know(model.GuessedPeer)
	now, version := time.Now(), 0
	for name, call := range map[string]func(){
		"setAway":  func() { c.setAway(1, 0, []byte{1}) },
		"worth":    func() { c.worth(1, now) },
		"tier":     func() { c.tier(now, 1, 0) },
		"ask":      func() { c.ask(now, 1, 0, 0) },
		"late":     func() { c.late(now, routing.Asked{}, 1) },
		"answered": func() { c.answered(now, routing.Asked{}, 1, 1, nil) },
		"setAlive": func() { c.setAlive(false) },
		"state":    func() { c.state(now) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				version += 2
				var both sync.WaitGroup // nothing else orders the two
				both.Go(call)
				both.Go(func() {
					c.setAway(version, 0, nil)
					c.ask(now, 1, 0, 0)
					c.setAlive(true)
					c.answered(now, routing.Asked{}, 1, 1, errDown)
					c.answered(now, routing.Asked{}, 1, 1, nil)
				})
				both.Wait()
			}
		})
	}
}

// sends is a node that sends a form of so many bytes for each sample.
type sends int

func (n sends) Fetch(context.Context, int32, []byte, exchange.Want) (exchange.Answer, error) {
	return exchange.Answer{Kind: 1, Size: int(n)}, nil
}

// TestFormsCountWithTheirBytes checks that what is measured of a node is what it has sent, and that
// its answer has its number.
func TestFormsCountWithTheirBytes(t *testing.T) {
	set := NewSet(Options{Node: 0, Peers: []Fetcher{nil, sends(120)}})
	set.SetOwner(func(int) int { return 1 })
	for range 3 {
		a, err := set.Fetch(t.Context(), 1, make([]byte, 150),
			exchange.Want{Size: 100, Most: 150}, (&rig{}).takes, 0)
		if err != nil || a.Node != 1 || a.Kind != 1 || a.Size != 120 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if got := set.circuits[1].meter.Speed(time.Now()); got.Samples != 3 || got.Bytes != 360 {
		t.Errorf("measured: %+v", got)
	}
}
