package cache

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/routing"
)

// given returns what reads of a tier take, whatever their size, as given in the configuration.
func given(latency, queued float64) model.Known {
	return model.Known{
		Coefficients: model.Coefficients{Latency: latency, Queued: queued},
		Origin:       model.Given,
	}
}

// farPeer is another node that owns all samples, and that takes this many seconds for one.
type farPeer float64

func (p farPeer) Relays(int) bool { return false }

func (p farPeer) Owner(int, int64, float64) (routing.Tier, bool) {
	return routing.Tier{Arrival: float64(p)}, true
}

func (p farPeer) Fetch(_ context.Context, id int, dst []byte, _ routing.Want,
	_ func() time.Duration, _ time.Duration,
) (a routing.Answer, err error) {
	copy(dst, content(id, int64(len(dst))))
	return a, context.DeadlineExceeded // it is not asked in these tests but for its arrival
}

func soon(seconds float64) func(time.Time) float64 {
	return func(time.Time) float64 { return seconds }
}

// TestRoute checks which tier a sample is read from: of those that have it in time, the one that
// costs others least, and otherwise the fastest.
func TestRoute(t *testing.T) {
	for _, c := range []struct {
		name               string
		due                func(time.Time) float64
		file, peer, source float64 // seconds
		want               route
	}{
		{"ahead of time", nil, 9, 5, 0.1, route{tier: FirstClass, peer: true}},
		{"the file is in time", soon(10), 9, 5, 0.1, route{tier: FirstClass, peer: true}},
		{"the file is late", soon(8), 9, 5, 0.1, route{tier: Peer, peer: true, direct: true}},
		{"only the source is in time", soon(1), 9, 5, 0.1, route{tier: Source, direct: true}},
		{"all late", soon(0), 9, 2, 1, route{tier: Peer, peer: true, direct: true}},
		{"all late, none by much", soon(0), 9, 5, 6, route{tier: FirstClass, peer: true}},
		{"all late, all alike", soon(0), 5, 5, 5, route{tier: FirstClass, peer: true}},
	} {
		o := plain(4)
		o.file, o.dir = 400, t.TempDir()
		o.known = map[string]model.Known{
			"file": given(c.file, 0), "source": given(c.source, 0),
		}
		g := newRig(t, o)
		if _, _, err := g.fetched(t, &Request{}, 0); err != nil {
			t.Fatal(err)
		}
		g.cache.Flush()
		r := &Request{Peers: farPeer(c.peer), Due: c.due}
		if got := g.cache.route(r, 0); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if got := g.cache.route(&Request{remote: true}, 0); got.tier != FirstClass || got.peer {
			t.Errorf("%s: a read for another node goes to %+v, not to this node's copy", c.name,
				got)
		}
		if got := g.cache.route(&Request{remote: true}, 1); got != (route{tier: Source}) {
			t.Errorf("%s: a read for another node of a sample that is not held: %+v", c.name, got)
		}
		g.close()
	}
}

// TestOwnerIsAskedWhereItsCopyIsSooner: a class that would be late is not read if the owner was
// chosen, and is where it was not.
func TestOwnerIsAskedWhereItsCopyIsSooner(t *testing.T) {
	for file, want := range map[float64]Tier{9: Peer, 4: FirstClass} { // seconds
		o := plain(4)
		o.file, o.dir = 400, t.TempDir()
		o.known = map[string]model.Known{"file": given(file, 0), "source": given(20, 0)}
		g := newRig(t, o)
		if _, _, err := g.fetched(t, &Request{}, 0); err != nil {
			t.Fatal(err)
		}
		g.cache.Flush()
		p := &fakePeer{data: func(id int) []byte { return content(id, 100) }, arrival: 5}
		r := &Request{Peers: p, Due: soon(8)}
		if _, got, err := g.fetched(t, r, 0); got != want || err != nil {
			t.Errorf("the class takes %v s, and the owner 5 s: from tier %v, %v; want %v", file, got, err,
				want)
		}
		g.close()
	}
}

// TestTiersWorkInParallel checks that reads which are all late are divided among two tiers that are
// equally fast, so that both are busy. More wait at the one whose reads cost others nothing.
func TestTiersWorkInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(100)
		o.known = map[string]model.Known{"source": {
			Coefficients: model.Coefficients{PerMB: 1e4, Queued: 1e4}, // 1 s each, in turn
			Origin:       model.Given,
		}}
		g := newRig(t, o)
		defer g.close()
		now, inFlight := time.Now(), 0
		for range 20 {
			r := &Request{Peers: farPeer(float64(1 + inFlight)), Due: soon(0)}
			if g.cache.route(r, 0).tier == Source {
				g.cache.meters[Source].Begin(now, 100)
			} else {
				inFlight++
			}
		}
		if inFlight < 10 || inFlight > 17 {
			t.Errorf("%d of 20 reads are in progress at the other node, want 10 to 17", inFlight)
		}
	})
}

// TestOldEstimatesAreRenewed checks that a tier which is not chosen is read from now and then, the
// source for at most a thousandth of the bytes.
func TestOldEstimatesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, plain(1000))
		defer g.close()
		if _, _, err := g.fetched(t, &Request{}, 0); err != nil { // measures the source
			t.Fatal(err)
		}
		r := &Request{Peers: farPeer(1e-9)}
		direct := 0
		for range 20000 {
			<-time.After(time.Millisecond)
			if way := g.cache.route(r, 1); way.direct {
				direct++
				now := time.Now()
				g.cache.meters[Source].End(now, g.cache.meters[Source].Begin(now, 100), nil)
			}
		}
		if direct == 0 || direct > 20 {
			t.Errorf("%d of 20000 reads, over 20 s, explored the source; want 1 to 20", direct)
		}
	})
}

// TestWhatAnEarlierJobStoredIsCheckedAtOnce: a class that is slow by what is stored is read once,
// and chosen if it turns out to be fast; it is not read again and again if it is slow.
func TestWhatAnEarlierJobStoredIsCheckedAtOnce(t *testing.T) {
	for took, want := range map[time.Duration]Tier{
		time.Millisecond: FirstClass, 3 * time.Second: Source,
	} {
		synctest.Test(t, func(t *testing.T) {
			o := plain(4)
			o.file, o.dir = 400, t.TempDir()
			stored := model.FromCurve(model.Constant(1e-5), 1e-4) // 10 s for a sample
			o.known = map[string]model.Known{
				"file": {Coefficients: stored, Origin: model.Probed}, "source": given(0.1, 0),
			}
			g := newRig(t, o)
			defer g.close()
			if _, _, err := g.fetched(t, &Request{}, 0); err != nil {
				t.Fatal(err)
			}
			g.cache.Flush()
			r := &Request{Due: soon(0)}
			if got := g.cache.route(r, 0); got.tier != FirstClass {
				t.Errorf("%+v, want the class, of which no read has told anything", got)
			}
			read := g.cache.meters[FirstClass].Begin(time.Now(), 100)
			if got := g.cache.route(r, 0); got.tier != Source {
				t.Errorf("%+v, want the source, while another read tells", got)
			}
			<-time.After(took)
			g.cache.meters[FirstClass].End(time.Now(), read, nil)
			if got := g.cache.route(r, 0); got.tier != want {
				t.Errorf("%+v after a read took %v, want tier %v", got, took, want)
			}
		})
	}
}

// TestDueIsUnlimitedAheadOfTime checks that a request without a Due is not late, however long all
// tiers take.
func TestDueIsUnlimitedAheadOfTime(t *testing.T) {
	o := plain(1)
	o.known = map[string]model.Known{"source": given(0.001, 0)}
	g := newRig(t, o)
	defer g.close()
	if got := g.cache.route(&Request{Peers: farPeer(math.MaxFloat64)}, 0); got.tier != Peer {
		t.Errorf("%+v, want another node", got)
	}
}

// patientPeer is another node that notes how long it may take.
type patientPeer struct {
	fakePeer
	wait time.Duration
}

func (p *patientPeer) Fetch(ctx context.Context, id int, dst []byte, w routing.Want,
	source func() time.Duration, due time.Duration,
) (routing.Answer, error) {
	p.wait = due.Round(time.Millisecond)
	return p.fakePeer.Fetch(ctx, id, dst, w, source, due)
}

// TestNodesHaveTimeUntilTheirSamplesAreNeeded: a request may take until its sample is needed.
func TestNodesHaveTimeUntilTheirSamplesAreNeeded(t *testing.T) {
	for due, want := range map[float64]time.Duration{ // seconds
		0: 0, 0.25: 250 * time.Millisecond, 4: 4 * time.Second,
	} {
		g := newRig(t, plain(4))
		p := &patientPeer{fakePeer: fakePeer{data: func(id int) []byte { return content(id, 100) }}}
		if _, from, err := g.fetched(t, &Request{Peers: p, Due: soon(due)}, 1); err != nil ||
			from != Peer || p.wait != want {
			t.Errorf("%v s: it may take %v; from %v, %v", due, p.wait, from, err)
		}
		g.close()
	}
}
