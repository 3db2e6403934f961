package stage

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// TestCorruptCopyIsReadAgain checks that a sample is read from the source again if its copy on disk
// is corrupt.
func TestCorruptCopyIsReadAgain(t *testing.T) {
	o := plain(4, 2)
	o.file, o.dir = 400, t.TempDir()
	g := newRig(t, o)
	defer g.close()
	if _, err := g.run(g.ranks[0], step{0, 0}, 2, 0); err != nil {
		t.Fatal(err)
	}
	g.cache.Flush()
	found, err := filepath.Glob(filepath.Join(o.dir, "*", "data"))
	if err != nil || len(found) != 1 {
		t.Fatalf("data files %v, %v", found, err)
	}
	if err := os.WriteFile(found[0], bytes.Repeat([]byte{7}, 400), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := g.run(g.ranks[0], step{1, 0}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at, got := range out {
		if !equal(got, g.want(0, at)) {
			t.Errorf("%+v: wrong content", at)
		}
	}
	if samples, _ := g.cache.SourceReads(); samples != 8 {
		t.Errorf("%d samples were read from the source, want every one twice", samples)
	}
	g.cache.Flush()
	if held := len(g.stores[0].Held()); held != 4 {
		t.Errorf("%d samples are held, want all 4 again", held)
	}
}

// TestPlanMayBeLargerThanItsClass checks that a class that is smaller than its plan is no fault:
// samples that do not fit are read from the source whenever they are needed.
func TestPlanMayBeLargerThanItsClass(t *testing.T) {
	o := plain(8, 3)
	o.memory = 300
	o.planAll = true
	o.fill = true
	g := newRig(t, o)
	defer g.close()
	out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at, got := range out {
		if !equal(got, g.want(0, at)) {
			t.Errorf("%+v: got %v", at, ids(got))
		}
	}
	held := g.stores[0].Held()
	if len(held) == 0 || len(held) == 8 {
		t.Fatalf("%d samples are held, want some", len(held))
	}
	for id := range 8 {
		if slices.Contains(held, int32(id)) != g.cache.Destined(id) {
			t.Errorf("sample %d: held %v, destined %v", id, slices.Contains(held, int32(id)),
				g.cache.Destined(id))
		}
	}
}

// TestPlanChangesDoNotChangeTheStream checks that a change of plan at any time only changes where
// samples are kept. Here the plan changes at every read.
func TestPlanChangesDoNotChangeTheStream(t *testing.T) {
	o := plain(64, 6)
	o.memory = 1600
	o.file = 1600
	o.dir = t.TempDir()
	o.fill = true
	var all [][][]int32
	for n := range 4 { // the classes swap, and lose all that they had
		var plan [][]int32
		for class := range 2 {
			var ids []int32
			for id := range 16 {
				ids = append(ids, int32((id+16*(class+n))%64))
			}
			plan = append(plan, ids)
		}
		all = append(all, plan, nil)
	}
	var g *rig
	var reads atomic.Int64
	planned := make(chan struct{})
	o.hook = func(context.Context, int) error {
		<-planned
		g.use.Keep(all[int(reads.Add(1))%len(all)])
		return nil
	}
	g = newRig(t, o)
	close(planned)
	defer g.close()
	out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	if err != nil || len(out) != 6*32 {
		t.Fatalf("%d batches: %v", len(out), err)
	}
	for at, got := range out {
		if !equal(got, g.want(0, at)) {
			t.Errorf("%+v: got %v", at, ids(got))
		}
	}
	g.cache.Flush()
	if len(g.stores[0].Held()) == 0 || len(g.stores[1].Held()) == 0 {
		t.Error("nothing was kept")
	}
}

// TestCachesMayShareAStore checks two caches over one store, because one dataset was opened under
// two names: a sample that one cache is filling is read into the staging buffer by the other.
func TestCachesMayShareAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(4, 1)
		o.memory, o.memoryClass = 400, memory.New(memory.Options{})
		other := o
		other.hook = func(context.Context, int) error { <-gate; return nil }
		a, b := newRig(t, other), newRig(t, o)
		stuck := make(chan error)
		go func() { stuck <- a.serve(2) }()
		synctest.Wait()
		out, err := b.run(b.ranks[0], step{0, 0}, 0, 0)
		if err != nil || !slices.Equal(stream(out), []int{0, 1, 2, 3}) {
			t.Errorf("got %v, %v", stream(out), err)
		}
		close(gate)
		if err := <-stuck; err != nil {
			t.Error(err)
		}
		b.close()
		a.close()
	})
}

// TestReadsAreCountedByTier checks that reads are counted and named by the tier that they came
// from.
func TestReadsAreCountedByTier(t *testing.T) {
	o := plain(4, 2)
	o.memory = 200
	o.file = 200
	o.dir = t.TempDir()
	o.threads = 1 // else a batch of the second epoch may read what one of the first needs as well
	g := newRig(t, o)
	defer g.close()
	if _, err := g.run(g.ranks[0], step{0, 0}, 2, 0); err != nil {
		t.Fatal(err)
	}
	g.cache.Flush() // so that the copies are read from the class
	if _, err := g.run(g.ranks[0], step{1, 0}, 0, 0); err != nil {
		t.Fatal(err)
	}
	speeds := g.cache.Speeds()
	if speeds[cache.Source].Tier != "source" || speeds[cache.Source].Samples != 4 ||
		speeds[cache.Source].Bytes != 400 {
		t.Errorf("source: %+v, want every sample once", speeds[cache.Source])
	}
	if f := speeds[cache.FirstClass+1]; f.Tier != "file" || f.Samples < 2 {
		t.Errorf("file: %+v, want its 2 samples in the second epoch", f)
	}
	if reads := g.ranks[0].ledger.Epochs()[0].Reads; len(reads) != 1 ||
		reads["source"].Samples != 4 {
		t.Errorf("the first epoch read %+v", reads)
	}
	reads := g.ranks[0].ledger.Epochs()[1].Reads
	if reads["memory"].Samples != 2 || reads["file"].Samples != 2 || reads["source"].Samples != 0 {
		t.Errorf("the second epoch read %+v", reads)
	}
}

// TestWorkersFollowTheOrderOfNeed checks that workers first bring what the job needs first.
func TestWorkersFollowTheOrderOfNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var order []int
		o := plain(8, 2)
		o.threads = 1
		o.hook = func(_ context.Context, id int) error {
			order = append(order, id)
			if id == 7 {
				<-gate
			}
			return nil
		}
		g := newRig(t, o)
		defer g.close()
		s := g.ranks[0].stager
		var batches []*batch
		for n, at := range []step{{0, 3}, {1, 1}, {0, 2}, {0, 0}, {0, 1}} {
			b, tasks, err := s.prepare(t.Context(), g.stream.Epoch(at.epoch), at.step)
			if err != nil {
				t.Fatal(err)
			}
			batches = append(batches, b)
			if n == 0 {
				tasks[0], tasks[1] = tasks[1], tasks[0] // 7 first, which blocks
				tasks = tasks[:1]
				b.arrived()
			}
			g.cache.Submit(tasks)
			synctest.Wait()
		}
		close(gate)
		for _, b := range batches {
			<-b.done
			s.discard(b)
		}
		s.reap.Wait()
		if want := []int{7, 0, 1, 2, 3, 4, 5, 2, 3}; !slices.Equal(order, want) {
			t.Errorf("read in the order %v, want %v", order, want)
		}
	})
}

// TestSamplesForAClassTakeNoSlots checks that no memory of the staging buffer is reserved for
// samples that go to a class.
func TestSamplesForAClassTakeNoSlots(t *testing.T) {
	o := plain(4, 2)
	o.memory = 400
	g := newRig(t, o)
	defer g.close()
	r := g.ranks[0]
	err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
		if len(b.Slots) > 0 {
			t.Errorf("batch %d of epoch %d has taken slots", b.Step, b.Epoch)
		}
		r.stager.Taken(b.Epoch, b.Step, Stall{})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// everything is a peer that owns every sample, and waits for so long for its source.
type everything struct{ waits time.Duration }

func (everything) Relays(int) bool { return false }

func (everything) Owner(int, int64, float64) (t routing.Tier, ok bool) { return t, true }

func (e everything) Fetch(_ context.Context, id int, dst []byte, _ routing.Want,
	_ func() time.Duration, _ time.Duration,
) (routing.Answer, error) {
	time.Sleep(e.waits)
	copy(dst, cachetest.Content(id, int64(len(dst))))
	return routing.Answer{Node: 1, Digest: digest.Of(dst), Waited: e.waits}, nil
}

// TestOwnersAreAsked checks that samples that other nodes own are fetched from them.
func TestOwnersAreAsked(t *testing.T) {
	g := newRig(t, plain(4, 1))
	defer g.close()
	g.ranks[0].stager.o.Peers = everything{}
	out, err := g.run(g.ranks[0], step{}, 0, 0)
	if err != nil || !equal(out[step{0, 1}], g.want(0, step{0, 1})) {
		t.Errorf("%v, %v", stream(out), err)
	}
	if e := g.ranks[0].ledger.Epochs()[0]; e.Reads["peer"].Samples != 4 || e.Source.Samples != 0 {
		t.Errorf("read %+v, %d samples of it from the source", e.Reads, e.Source.Samples)
	}
}

// TestStallForASourceBehindAnOwner checks that the wait for samples that their owner has to read
// from the source is charged to the source, although they come from the owner.
func TestStallForASourceBehindAnOwner(t *testing.T) {
	for _, waits := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, plain(4, 1))
			defer g.close()
			r := g.ranks[0]
			r.stager.o.Peers = everything{waits}
			r.stall = Stall{All: time.Millisecond}
			if _, err := g.run(r, step{}, 0, 0); err != nil {
				t.Fatal(err)
			}
			cause, e := "peer", r.ledger.Epochs()[0]
			if waits > 0 {
				cause = "source"
			}
			if e.Stall[cause] != e.StallSeconds() || e.StallSeconds() == 0 ||
				e.Reads["peer"].Samples != 4 || e.Source.Samples != 0 {
				t.Errorf("owner waits %v: stall %v, read %v", waits, e.Stall, e.Reads)
			}
		})
	}
}
