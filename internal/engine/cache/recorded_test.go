package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/model/routing/routingtest"
	"github.com/hdmlp/hdmlp/internal/peers/breaker"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
	"github.com/hdmlp/hdmlp/internal/store"
)

// recorder records a run. What it reads from takes one read after another, each for a time that
// follows from the read, so that every run is the same.
type recorder struct {
	mu     sync.Mutex // guards the following
	begun  time.Time
	events []routingtest.Event
	open   map[int]bool // samples that are read from the class and not given up
	tiers  map[string]*fakeTier
	relays bool // the owner has to read some samples
}

type fakeTier struct {
	takes time.Duration // for a read of a mean sample
	hangs time.Duration // at most, for one read of 25
	free  time.Time     // when it has served all so far
	reads uint64
}

// add records an event. If the class was read for the sample that another tier is read for now, it
// was given up.
func (r *recorder) add(what routingtest.What, tier string, sample int, duration time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	event := routingtest.Event{
		At: time.Since(r.begun), What: what, Tier: tier, Sample: sample, For: duration,
	}
	if what == routingtest.Begin && tier == routingtest.Class {
		r.open[sample] = true
	} else if r.open[sample] && (what == routingtest.Begin || what == routingtest.End) {
		delete(r.open, sample)
		if what == routingtest.Begin {
			late := event
			late.What, late.Tier = routingtest.GiveUp, routingtest.Class
			r.events = append(r.events, late)
		}
	}
	r.events = append(r.events, event)
}

// read reads a sample from a tier.
func (r *recorder) read(ctx context.Context, tier string, sample int) error {
	r.add(routingtest.Begin, tier, sample, 0)
	r.mu.Lock()
	t := r.tiers[tier]
	t.reads++
	chance := rand.New(rand.NewPCG(t.reads, uint64(len(tier))))
	takes := time.Duration(float64(t.takes) * (0.5 + chance.Float64()))
	now := time.Now()
	if t.hangs > 0 && chance.IntN(25) == 0 {
		takes += time.Duration(chance.Float64() * float64(t.hangs))
	} else {
		if t.free.Before(now) {
			t.free = now
		}
		t.free = t.free.Add(takes)
		takes = t.free.Sub(now)
	}
	r.mu.Unlock()
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// phase is how long tiers take for a time, in milliseconds.
type phase struct {
	lasts                time.Duration
	class, owner, source time.Duration
	relays               bool // the owner has to read some samples
}

// phases are such that each way of reads occurs, and each reason to give one up.
var phases = []phase{
	{2000, 4, 3, 5, true},
	{800, 4, 30, 5, false},
	{800, 40, 3, 20, true},
	{800, 20, 30, 8, false},
	{900, 8, 300, 9, false},
	{4000, 8, 9, 50, false},
	{6000, 8, 60_000, 50, false},
	{3000, 8, 2, 50, false},
}

// begin begins a phase.
func (r *recorder) begin(p phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.relays = p.relays
	for tier, takes := range map[string]time.Duration{
		routingtest.Class: p.class, routingtest.Owner: p.owner, routingtest.Source: p.source,
	} {
		r.tiers[tier].takes = takes * time.Millisecond
		r.tiers[tier].free = time.Now()
	}
}

// Fetch implements breaker.Fetcher: a node that has to read some samples, and refuses others.
func (r *recorder) Fetch(ctx context.Context, id int32, dst []byte, _ exchange.Want) (
	a exchange.Answer, err error,
) {
	began := time.Now()
	if r.read(ctx, routingtest.Owner, int(id)) != nil {
		r.add(routingtest.GiveUp, routingtest.Owner, int(id), 0)
		return a, &exchange.FetchError{Kind: exchange.ErrUnavailable, Err: ctx.Err()}
	}
	chance := rand.New(rand.NewPCG(uint64(id), uint64(time.Since(r.begun))))
	if chance.IntN(20) == 0 {
		r.add(routingtest.Refuse, routingtest.Owner, int(id), 0)
		return a, &exchange.FetchError{Kind: exchange.ErrNotHeld, Err: errors.New("being fetched")}
	}
	r.mu.Lock()
	relays := r.relays
	r.mu.Unlock()
	if relays && chance.IntN(8) == 0 {
		a.Waited = time.Since(began) / 2
	}
	copy(dst, content(int(id), int64(len(dst))))
	a.Digest = digest.Of(dst)
	r.add(routingtest.End, routingtest.Owner, int(id), a.Waited)
	return a, nil
}

// recordedStore is a class that takes time.
type recordedStore struct {
	store.Store
	recorder *recorder
}

func (s recordedStore) Read(id int, dst []byte) error {
	_ = s.recorder.read(context.Background(), routingtest.Class, id)
	s.recorder.add(routingtest.End, routingtest.Class, id, 0)
	return s.Store.Read(id, dst)
}

// record runs a node of a job on two nodes, whose tiers become slower and faster, and returns its
// reads.
func record(t *testing.T) []routingtest.Event {
	r := &recorder{begun: time.Now(), open: map[int]bool{}, tiers: map[string]*fakeTier{
		routingtest.Class: {hangs: time.Second}, routingtest.Owner: {hangs: 5 * time.Second},
		routingtest.Source: {},
	}}
	r.begin(phases[0])
	o := rigOptions{threads: 1, dir: t.TempDir()}
	for id := range routingtest.Samples {
		o.sizes = append(o.sizes, routingtest.Size(id))
		if id < routingtest.Held {
			o.file += int64(o.sizes[id])
		}
	}
	o.wrap = func(s store.Store) store.Store { return recordedStore{s, r} }
	o.hook = func(ctx context.Context, id int) error {
		err := r.read(ctx, routingtest.Source, id)
		r.add(routingtest.End, routingtest.Source, id, 0)
		return err
	}
	g := newRig(t, o)
	defer g.close()
	for id := range routingtest.Held {
		if _, _, err := g.fetched(t, &Request{}, id); err != nil {
			t.Fatal(err)
		}
	}
	g.cache.Flush()
	peers := breaker.NewSet(breaker.Options{Node: 0, Peers: []breaker.Fetcher{nil, r}})
	peers.SetOwner(func(id int) int {
		if id >= routingtest.OwnedFrom && id < routingtest.OwnedTo {
			return 1
		}
		return -1
	})
	const workers = 8
	var all sync.WaitGroup
	ends := time.Since(r.begun)
	for _, p := range phases {
		ends += p.lasts * time.Millisecond
	}
	for w := range workers {
		all.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(w), 1))
			for time.Since(r.begun) < ends {
				time.Sleep(time.Duration(1 + chance.Int64N(100e6)))
				id := w + workers*chance.IntN(routingtest.Samples/workers)
				due := time.Now().Add(time.Duration(chance.Int64N(150e6)))
				if chance.IntN(4) == 0 {
					due = due.Add(time.Duration(chance.Int64N(3e9)))
				}
				r.add(routingtest.Fetch, "-", id, due.Sub(r.begun))
				_, _, err := g.fetched(t, &Request{Peers: peers, Due: func(now time.Time) float64 {
					return max(due.Sub(now).Seconds(), 0)
				}}, id)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for k, p := range phases {
		r.begin(p)
		<-time.After(p.lasts*time.Millisecond + time.Duration(k))
	}
	all.Wait()
	return r.events
}

// TestRecordedReads records the reads of a run, by which the replay decides alike (package replay):
// it must be recorded again, with -rewrite, when decisions change.
func TestRecordedReads(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Log("recorded on amd64: the last digits of estimates may differ here")
		return
	}
	synctest.Test(t, func(t *testing.T) {
		events := record(t)
		for tier, least := range map[string][2]int{ // begun, given up
			routingtest.Class: {100, 5}, routingtest.Owner: {100, 5}, routingtest.Source: {100, 0},
		} {
			for k, what := range []routingtest.What{routingtest.Begin, routingtest.GiveUp} {
				n := len(slices.DeleteFunc(slices.Clone(events), func(e routingtest.Event) bool {
					return e.Tier != tier || e.What != what
				}))
				if n < least[k] {
					t.Errorf("%s: %d events %q, want %d at least", tier, n, what, least[k])
				}
			}
		}
		testkit.Compare(t, "reads.txt", routingtest.Format(events))
	})
}
