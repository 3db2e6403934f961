package cache

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// TestAnyPlansWhileBatchesFlow replaces random plans while samples are fetched, viewed, located and
// served, and processes release memory at once, late or too late. All samples have the right bytes,
// the classes keep within their room, and in the end they hold what the last plan assigns to them.
func TestAnyPlansWhileBatchesFlow(t *testing.T) {
	const samples = 60
	rapid.Check(t, func(r *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 900), samples, samples).Draw(r, "sizes")
		room := [2]int{
			rapid.IntRange(4000, 20_000).Draw(r, "memory"),
			rapid.IntRange(4000, 20_000).Draw(r, "file"),
		}
		plans := rapid.IntRange(1, 4).Draw(r, "plans")
		seed := rapid.Uint64().Draw(r, "seed")
		slow := rapid.SampledFrom([]time.Duration{
			0, time.Millisecond, time.Second, time.Minute,
		}).Draw(r, "processes let go after")
		synctest.Test(t, func(t *testing.T) {
			class := memory.New(memory.Options{Segment: 4096})
			g := newRig(t, rigOptions{
				sizes: sizes, threads: 3, memory: int64(room[0]), memoryClass: class,
				file: int64(room[1]), dir: t.TempDir(),
			})
			defer g.close()
			leave := g.cache.Watch(&watched{settle: func(settled, gone func()) {
				time.AfterFunc(slow/2, settled)
				time.AfterFunc(slow, gone)
			}})
			defer leave()
			stop := g.flow(t, seed, min(slow, 50*time.Millisecond))
			rnd := rand.New(rand.NewPCG(seed, 0))
			var plan [][]int32
			for range plans {
				plan = randomPlan(rnd, sizes, room)
				g.use.Keep(plan)
				g.use.Release()
				g.use.Fill(plan, func(int64) {})
				g.keepsWithin()
			}
			stop()
			time.Sleep(2 * slow)
			class.Allow(1 << 40) // what waited for memory that was in use is brought now
			synctest.Wait()
			g.cache.Flush()
			g.holds(plan...)
			g.keepsWithin()
		})
		if t.Failed() {
			r.Fatal("see above")
		}
	})
}

// keepsWithin checks that the classes have taken no more than their room. A segment is 4096 bytes,
// of which samples that do not fit leave a part free: lent memory includes that.
func (g *rig) keepsWithin() {
	g.t.Helper()
	for j, opened := range g.stores {
		total, used := opened.Capacity()
		if used > total {
			g.t.Errorf("class %d has %d of %d bytes in use", j+1, used, total)
		}
		if p, ok := opened.(store.Shrinker); ok {
			if lent := p.Returned().Used; used+lent/2 > total+4096 {
				g.t.Errorf("%d of %d bytes are in use, and %d lent", used, total, lent)
			}
		}
	}
}

// randomPlan returns a plan of which as much as possible fits.
func randomPlan(rnd *rand.Rand, sizes []int, room [2]int) [][]int32 {
	plan, left := make([][]int32, 2), room
	for _, id := range rnd.Perm(len(sizes)) {
		if j := rnd.IntN(3); j < 2 && sizes[id] <= left[j] {
			left[j] -= sizes[id]
			plan[j] = append(plan[j], int32(id))
		}
	}
	return plan
}

// flow fetches samples in several ways, with pauses, until stop is called.
func (g *rig) flow(t *testing.T, seed uint64, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var users sync.WaitGroup
	right := func(how string, id int, data []byte, err error) {
		if size := g.source.Index.Size(id); err != nil || !bytes.Equal(data, content(id, size)) {
			t.Errorf("%s sample %d: %d bytes, %v", how, id, len(data), err)
		}
	}
	for n := range uint64(3) {
		users.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, n+1))
			for ctx.Err() == nil {
				id := rnd.IntN(g.source.Index.Len())
				switch rnd.IntN(4) {
				case 0:
					data, err := g.fetch(context.Background(), id)
					right("fetched", id, data, err)
				case 1:
					got := g.serve(context.Background(), id)
					right("served", id, got.data, got.err)
				case 2:
					if data, _, hold, ok := g.cache.Held(id); ok {
						right("viewed", id, data, nil)
						hold.Release()
					}
				case 3:
					if at, ok := g.cache.Locate(id); ok {
						g.cache.Segment(at.Segment)
					}
				}
				if pause > 0 { // virtual time passes only if all pause
					time.Sleep(time.Duration(rnd.Int64N(int64(pause))))
				}
			}
		})
	}
	return func() {
		cancel()
		users.Wait()
	}
}
