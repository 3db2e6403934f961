package cache

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestFollowersOfHungReadFail checks that a fetch that waits for another one's hung read fails too,
// and that its buffer is not written to later.
func TestFollowersOfHungReadFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(4)
		o.timeout, o.hook = time.Minute, cachetest.Hanging(gate, 1)
		g := newRig(t, o)
		go func() { _, _ = g.cache.Fetch(context.Background(), &Request{}, 1, make([]byte, 100)) }()
		synctest.Wait()
		dst := make([]byte, 100)
		_, err := g.cache.Fetch(t.Context(), &Request{}, 1, dst)
		if !errors.Is(err, source.ErrUnavailable) {
			t.Errorf("the follower got %v", err)
		}
		close(gate)
		synctest.Wait()
		if !slices.Equal(dst, make([]byte, 100)) {
			t.Error("the follower's buffer was written to after it was told of the failure")
		}
		g.close()
	})
}

// TestFillContinuesPastHungRead checks that filling continues when a read hangs.
func TestFillContinuesPastHungRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(8)
		o.threads = 1
		o.timeout = time.Minute
		o.memory = 800
		o.fill = true
		o.hook = cachetest.Hanging(gate, 0)
		g := newRig(t, o)
		<-time.After(2 * time.Minute)
		if held := g.stores[0].Held(); len(held) != 7 {
			t.Errorf("samples %v are held, want all but the hung one", held)
		}
		if n := g.cache.pool.Filling(); n != 0 {
			t.Errorf("%d workers count as filling, want none", n)
		}
		close(gate)
		synctest.Wait()
		if held := g.stores[0].Held(); len(held) != 8 {
			t.Errorf("samples %v are held after the read returned, want all", held)
		}
		if n := g.cache.pool.Filling(); n != 0 {
			t.Errorf("after the read returned %d workers count as filling, want none", n)
		}
		g.close()
	})
}

// TestWaitingReturnsTheOldestRead checks that Waiting names the read that has been in progress
// longest.
func TestWaitingReturnsTheOldestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(4)
		o.hook = cachetest.Hanging(gate, 1, 2)
		g := newRig(t, o)
		if w, ok := g.cache.Waiting(); ok {
			t.Errorf("waiting %+v, want none", w)
		}
		for _, id := range []int{2, 1} {
			go func() {
				_, _ = g.cache.Fetch(context.Background(), &Request{}, id, make([]byte, 100))
			}()
			<-time.After(10 * time.Second)
		}
		if w, ok := g.cache.Waiting(); !ok || w.Sample != 2 || w.Path != g.source.Path(2) ||
			time.Since(w.Since) != 20*time.Second {
			t.Errorf("waiting %+v, %v; want sample 2 for 20 s", w, ok)
		}
		close(gate)
		synctest.Wait()
		g.close()
	})
}

// slowConsumer delays GivenUp until tell is closed.
type slowConsumer struct {
	consumer
	tell chan struct{}
}

func (b *slowConsumer) GivenUp(err error) {
	<-b.tell
	b.consumer.GivenUp(err)
}

func (b *slowConsumer) Bring(*Worker, int) (abandoned bool) {
	_, err := b.cache.Fetch(context.Background(), &Request{Consumer: b}, b.id, make([]byte, 100))
	b.back <- err == ErrAbandoned
	return err == ErrAbandoned
}

// TestConsumersAreToldBeforeTheReadReturns checks that a hung read that returns after it was given
// up finds its consumer notified: GivenUp must not come after the end of the read.
func TestConsumersAreToldBeforeTheReadReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(4)
		o.threads = 1
		o.timeout = time.Minute
		o.hook = cachetest.Hanging(gate, 1)
		g := newRig(t, o)
		b := &slowConsumer{consumer{
			cache: g.cache,
			id:    1,
			done:  make(chan error, 1),
			back:  make(chan bool, 1),
		}, make(chan struct{})}
		g.cache.Submit([]Task{{Consumer: b}})
		<-time.After(2 * time.Minute)
		close(gate)
		synctest.Wait()
		if len(b.back) > 0 {
			t.Error("the read returned before its consumer was told that it was given up")
		}
		close(b.tell)
		if err := <-b.done; !errors.Is(err, source.ErrUnavailable) {
			t.Errorf("the read failed with %v", err)
		}
		if !<-b.back {
			t.Error("the fetch does not report that it was abandoned")
		}
		g.close()
	})
}

// TestHungWorkersAreReplaced checks that a worker whose read was given up is replaced, and ends
// when the read returns, whether it read for a batch or ahead of time.
func TestHungWorkersAreReplaced(t *testing.T) {
	for name, fill := range map[string]bool{"for a batch": false, "ahead of time": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, second := make(chan struct{}), make(chan struct{})
				under := make(chan int, 10)
				o := plain(8)
				o.threads = 2
				o.timeout = time.Minute
				o.memory = 800
				o.hook = func(_ context.Context, id int) error {
					under <- id
					if id == 0 {
						<-gate
					} else {
						<-second
					}
					return nil
				}
				g := newRig(t, o)
				first := &consumer{cache: g.cache, id: 0, done: make(chan error, 1)}
				if fill {
					g.use.Fill([][]int32{{0}}, func(int64) {})
					synctest.Wait()
				} else {
					g.cache.Submit([]Task{{Consumer: first}})
				}
				<-time.After(2 * time.Minute)
				close(gate)
				synctest.Wait()
				var later []*consumer
				for id := 1; id < 5; id++ {
					b := &consumer{cache: g.cache, id: id, done: make(chan error, 1)}
					later = append(later, b)
					g.cache.Submit([]Task{{Consumer: b}})
				}
				synctest.Wait()
				if n := len(under); n != 1+2 {
					t.Errorf("%d reads are in progress, want 2", n-1)
				}
				if n := g.cache.pool.Filling(); n != 0 {
					t.Errorf("%d workers count as filling, want none", n)
				}
				close(second)
				for _, b := range later {
					if err := <-b.done; err != nil {
						t.Error(err)
					}
				}
				g.close()
			})
		})
	}
}

// TestReadsThatWaitTheirTurnDoNotHang checks that reads which wait for others to end are not given
// up, however long that takes, and that those are which hang then.
func TestReadsThatWaitTheirTurnDoNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(16)
		o.threads = 2
		o.mostThreads = 2
		o.timeout = time.Minute
		gate := make(chan struct{})
		o.hook = func(_ context.Context, id int) error {
			if id == 15 {
				<-gate
			} else {
				<-time.After(40 * time.Second)
			}
			return nil
		}
		g := newRig(t, o)
		var all []*consumer
		for id := range 16 {
			b := &consumer{cache: g.cache, id: id, done: make(chan error, 1)}
			all = append(all, b)
			g.cache.Submit([]Task{{Order: int64(id), Consumer: b}})
		}
		for id, b := range all {
			if err := <-b.done; (err != nil) != (id == 15) {
				t.Errorf("sample %d: %v", id, err)
			}
		}
		close(gate)
		synctest.Wait()
		g.close()
	})
}

// stuck is a source whose stats wait until the channel is closed.
type stuck struct {
	*cachetest.Source
	until chan struct{}
}

func (s stuck) Stat(ctx context.Context, id int) (source.Stamp, error) {
	<-s.until
	return s.Source.Stat(ctx, id)
}

// TestHungStatAdmitsNoRead checks that a flight whose stat hangs is given up as well, that no other
// read is admitted in its place, because it has none, and that it reads nothing when the stat
// returns.
func TestHungStatAdmitsNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(8)
		o.threads = 1
		o.mostThreads = 1
		o.timeout = time.Minute
		o.file = 800
		o.dir = t.TempDir()
		var reading, most atomic.Int32
		o.hook = func(context.Context, int) error {
			most.Store(max(most.Load(), reading.Add(1)))
			<-time.After(time.Second)
			reading.Add(-1)
			return nil
		}
		g := newRig(t, o)
		if err := g.stores[0].Put(0, content(0, 100), store.Origin{}); err != nil {
			t.Fatal(err)
		}
		s := stuck{g.source, make(chan struct{})}
		g.cache.source = s
		var all []*consumer
		submit := func(ids ...int) {
			for _, id := range ids {
				b := &consumer{cache: g.cache, id: id, done: make(chan error, 1)}
				all = append(all, b)
				g.cache.Submit([]Task{{Consumer: b}})
			}
		}
		submit(0)
		<-time.After(2 * time.Minute)
		submit(1, 2, 3, 4)
		for i, b := range all {
			if err := <-b.done; errors.Is(err, source.ErrUnavailable) != (i == 0) {
				t.Errorf("sample %d: %v", i, err)
			}
		}
		close(s.until)
		<-time.After(time.Minute)
		if n := g.source.Reads[0].Load(); n != 0 || most.Load() != 1 {
			t.Errorf("%d reads at the same time, want 1; %d after the stat returned", most.Load(), n)
		}
		g.close()
	})
}
