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

func (p farPeer) Arrival(int, int64, float64) (float64, bool) { return float64(p), true }

func (farPeer) Nodes() int { return 2 }

func (p farPeer) Fetch(_ context.Context, id int, dst []byte, _, _ func() time.Duration,
	_ time.Duration,
) (int, uint32, time.Duration, error) {
	copy(dst, content(id, int64(len(dst))))
	return 1, 0, 0, context.DeadlineExceeded // it is not asked in these tests but for its arrival
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
		{"all late", soon(0), 9, 5, 6, route{tier: Peer, peer: true, direct: true}},
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

// TestSourceIsSparedIfOthersWaitForIt checks that the delay that a read from the source causes to
// the other nodes counts.
func TestSourceIsSparedIfOthersWaitForIt(t *testing.T) {
	for queued, want := range map[float64]Tier{0: Source, 1e6: Peer} { // seconds per MB
		o := plain(1)
		o.known = map[string]model.Known{"source": given(1, queued)}
		g := newRig(t, o)
		r := &Request{Peers: farPeer(10), Due: soon(0)}
		if got := g.cache.route(r, 0); got.tier != want {
			t.Errorf("%v s per MB: %+v, want tier %v", queued, got, want)
		}
		g.close()
	}
}

// TestBusySourceIsLeftToOwners checks that a sample which its owner has not read yet is not read
// from the source twice while the source is busy, although the way through the owner takes somewhat
// longer; and that it is read directly if the source is not busy.
func TestBusySourceIsLeftToOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(1)
		o.known = map[string]model.Known{"source": {
			Coefficients: model.Coefficients{PerMB: 1e4, Queued: 1e4}, // 1 s each, in turn
			Origin:       model.Given,
		}}
		g := newRig(t, o)
		defer g.close()
		for range 20 {
			g.cache.meters[Source].Begin(time.Now(), 100)
		}
		r := &Request{Peers: farPeer(30), Due: soon(0)}
		if got := g.cache.route(r, 0).tier; got != Peer {
			t.Errorf("busy: tier %v, want the owner, which takes 30 s instead of 21", got)
		}
		o.known["source"] = given(21, 0)
		other := newRig(t, o)
		defer other.close()
		if got := other.cache.route(r, 0).tier; got != Source {
			t.Errorf("not busy: tier %v, want the source", got)
		}
	})
}

// TestCrowdedProcessorsMakeNodesLookLate: while processors are busy, a full source is spared more,
// because requests to other nodes then take long.
func TestCrowdedProcessorsMakeNodesLookLate(t *testing.T) {
	for _, c := range []struct {
		busy   bool
		queued float64 // by which reads of the source delay each other, seconds per MB
		peer   float64 // seconds
		want   Tier
	}{
		{false, 1e3, 0.7, Source}, // the source: 0.2 s, and 0.2 s for others
		{true, 1e3, 0.7, Peer},
		{true, 1e3, 1.2, Source},
		{true, 0, 0.7, Source}, // one that is not full delays nothing
	} {
		o := plain(1)
		o.known = map[string]model.Known{"source": given(0.1, c.queued)}
		g := newRig(t, o)
		g.cache.busy = func() bool { return c.busy }
		g.cache.meters[Source].Begin(time.Now(), 100)
		r := &Request{Peers: farPeer(c.peer), Due: soon(0)}
		if got := g.cache.route(r, 0).tier; got != c.want {
			t.Errorf("busy: %v, %v s per MB, the owner takes %v s: tier %v, want %v", c.busy,
				c.queued, c.peer, got, c.want)
		}
		g.close()
	}
}

// TestSourceIsNotReadBesidesWithoutProcessors: once the processors are busy, reads go to the tier
// that was seen to give more, and both are used again when they are not.
func TestSourceIsNotReadBesidesWithoutProcessors(t *testing.T) {
	g := newRig(t, plain(1))
	defer g.close()
	busy := false
	g.cache.busy = func() bool { return busy }
	for tier, seconds := range map[Tier]float64{Source: 0.01, Peer: 0.001} { // per read, one by one
		m, now := &g.cache.meters[tier], time.Now().Add(-time.Minute)
		for range 1000 {
			r := m.Begin(now, 100)
			now = now.Add(time.Duration(seconds * float64(time.Second)))
			m.End(now, r, nil)
		}
	}
	for _, due := range []func(time.Time) float64{soon(0), soon(0.1)} {
		r := &Request{Peers: farPeer(1), Due: due}
		busy = false
		if got := g.cache.route(r, 0).tier; got != Source {
			t.Errorf("processors to spare: %v, want the source", got)
		}
		busy = true
		if got := g.cache.route(r, 0).tier; got != Peer {
			t.Errorf("no processors to spare: %v, want the other node", got)
		}
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

func (p *patientPeer) Fetch(ctx context.Context, id int, dst []byte,
	source, due func() time.Duration, least time.Duration,
) (int, uint32, time.Duration, error) {
	p.wait = max(due(), least).Round(time.Millisecond)
	return p.fakePeer.Fetch(ctx, id, dst, source, due, least)
}

// TestNodesHaveTimeWhileProcessorsAreBusy: a node may take until its sample is needed, and longer
// while threads of all nodes wait for processors.
func TestNodesHaveTimeWhileProcessorsAreBusy(t *testing.T) {
	for _, c := range []struct {
		busy bool
		due  float64 // seconds
		want time.Duration
	}{
		{false, 0, 0},
		{false, 0.25, 250 * time.Millisecond},
		{true, 0.25, routing.BusyLimit},
		{true, 4, 4 * time.Second},
	} {
		o := plain(4)
		o.busy = c.busy
		g := newRig(t, o)
		p := &patientPeer{fakePeer: fakePeer{data: func(id int) []byte { return content(id, 100) }}}
		if _, from, err := g.fetched(t, &Request{Peers: p, Due: soon(c.due)}, 1); err != nil ||
			from != Peer || p.wait != c.want {
			t.Errorf("%+v: it may take %v; from %v, %v", c, p.wait, from, err)
		}
		g.close()
	}
}

// TestNoNodeHasTimeBesideAMuchFasterSource: if the source gives several times as much as links, a
// node may take no longer than until the sample is needed, however busy processors are.
func TestNoNodeHasTimeBesideAMuchFasterSource(t *testing.T) {
	for _, c := range []struct {
		peer time.Duration // of a read of 1 MB; the source takes 10 ms
		want time.Duration
	}{
		{39 * time.Millisecond, routing.BusyLimit},
		{41 * time.Millisecond, 0},
	} {
		o := plain(4)
		o.busy = true
		g := newRig(t, o)
		now := time.Now()
		for tier, takes := range map[Tier]time.Duration{Source: 10 * time.Millisecond, Peer: c.peer} {
			for i := range 100 {
				r := g.cache.meters[tier].Begin(now.Add(time.Duration(i)*takes), 1e6)
				g.cache.meters[tier].End(now.Add(time.Duration(i+1)*takes), r, nil)
			}
		}
		if got := g.cache.busyLeast(); got != c.want {
			t.Errorf("%+v: it may take %v", c, got)
		}
		g.close()
	}
}
