package feed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/share"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
)

// TestWhatAMemberKeepsStaysUntilTheGroupEnds: the daemon ends a connection, and the process has
// batches, in its hands or in its socket.
func TestWhatAMemberKeepsStaysUntilTheGroupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 4)
		f := newFeed(t, p, share.Options{Members: 2, Deadline: time.Hour, Keep: 1})
		kept, other := join(t, f, shapeOf(8, false)), join(t, f, shapeOf(8, false))
		kept.begin(0, 100)
		other.begin(0, 100)
		synctest.Wait()
		b := <-kept.ready
		slot := f.pieces[kept.m.slots[b.Slots[0]].of.piece].Slots[0]
		kept.cancel()
		for range kept.ready {
		}
		<-kept.ended
		kept.m.Keep()
		kept.m.Close()
		other.take(0, 100)
		p.mu.Lock() // it goes on preparing
		used := p.used[slot]
		p.mu.Unlock()
		if !used {
			t.Error("its batch was freed")
		}
		other.cancel()
		for range other.ready {
		}
		<-other.ended
		other.m.Close()
		f.Close()
	})
}

// TestMembersThatDoNotComeAreLogged announces one more than comes, and once as many.
func TestMembersThatDoNotComeAreLogged(t *testing.T) {
	for _, members := range []int{2, 1} {
		synctest.Test(t, func(t *testing.T) {
			p := newProducer(t, 8, 3)
			f := newFeed(t, p, share.Options{Members: members, Deadline: time.Minute, Keep: 1})
			var log strings.Builder
			f.o.Log = slog.New(slog.NewTextHandler(&log, nil))
			m := join(t, f, shapeOf(8, false))
			begun := time.Now()
			m.begin(0, 10)
			m.take(0, 10)
			late := time.Since(begun) >= time.Minute
			end(t, f, p, m)
			want := "came=1 share_members=2 start_timeout=1m0s"
			lines := strings.Count(log.String(), "\n")
			missing := members > 1
			if late != missing || missing != strings.Contains(log.String(), want) ||
				missing != (lines == 1) {
				t.Errorf("%d members: late: %v, log: %s", members, late, &log)
			}
		})
	}
}

// TestABatchThatIsNotDeliveredIsReleased refuses the first batch, with which the window would be
// announced to the process, as when another rank of the job stops.
func TestABatchThatIsNotDeliveredIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped")
		p := newProducer(t, 8, 3)
		f := newFeed(t, p, share.Options{Keep: 1})
		m := join(t, f, shapeOf(8, false))
		m.refuses = func(*stage.Batch) error { return stopped }
		if err := m.m.Run(t.Context(), 0, 10, m); !errors.Is(err, stopped) {
			t.Errorf("the run ended with %v", err)
		}
		if len(m.m.slots) > 0 || len(m.m.segments) > 0 {
			t.Errorf("it holds slots %v and segments %v", m.m.slots, m.m.segments)
		}
		told := 0
		m.refuses = func(b *stage.Batch) error { told += len(b.Extras); return nil }
		m.begin(0, 10)
		m.take(0, 10)
		if told != 1 || m.private > 0 {
			t.Errorf("the process was told %d times of the window, and %d samples were prepared for "+
				"it alone", told, m.private)
		}
		end(t, f, p, m)
	})
}

// TestAProcessIsSentWhatItsWorkersCanTake beyond what it has taken, up to a limit, as it cannot be
// taken back.
func TestAProcessIsSentWhatItsWorkersCanTake(t *testing.T) {
	for ahead, want := range map[int]int{0: minFlight, 1: minFlight, 10: 12, 1 << 30: mostFlight} {
		synctest.Test(t, func(t *testing.T) {
			p := newProducer(t, 1, mostFlight+20)
			f := newFeed(t, p, share.Options{Keep: 1})
			m := join(t, f, shapeOf(1, false))
			m.m.flight = f.Join("workers", m.shape, 0, ahead).flight
			m.ready = make(chan *stage.Batch, 500)
			m.begin(0, 1000)
			time.Sleep(time.Hour)
			if len(m.ready) != want {
				t.Errorf("with workers for %d, %d batches are sent, want %d", ahead, len(m.ready), want)
			}
			end(t, f, p, m)
		})
	}
}

// TestTheEpochOfAFeed is that of the furthest process, by what it has taken.
func TestTheEpochOfAFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 20)
		f := newFeed(t, p, share.Options{Keep: 1})
		wants := func(epoch int, when string) {
			t.Helper()
			if e := f.Epoch(); e != epoch {
				t.Errorf("%s: epoch %d, want %d", when, e, epoch)
			}
		}
		m, behind := join(t, f, shapeOf(8, false)), join(t, f, shapeOf(20, false))
		wants(0, "none has begun")
		m.begin(0, 15)
		m.take(0, 3)
		time.Sleep(time.Second) // it was sent more
		wants(0, "within the first epoch")
		m.take(3, 5)
		wants(1, "after the first epoch")
		behind.begin(1, 4)
		time.Sleep(time.Second)
		wants(1, "one is behind")
		m.take(5, 12)
		time.Sleep(time.Second) // all was sent
		wants(2, "with all batches sent")
		m.cancel()
		m.take(12, 15)
		wants(0, "one has taken all, and the other none")
		behind.take(1, 3)
		wants(1, "the other one has gone on")
		end(t, f, p, m, behind)
	})
}

// TestHowFarAMemberIsBehind counts what processes have taken, not what they were sent, wherever
// their batches come from.
func TestHowFarAMemberIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 20)
		f := newFeed(t, p, share.Options{Keep: 1})
		wants := func(m *process, want int64, when string) {
			t.Helper()
			if r := m.m.Report(); r.Behind != want {
				t.Errorf("%s: %d samples behind, want %d (%s)", when, r.Behind, want, r.State)
			}
		}
		first, second := join(t, f, shapeOf(8, false)), join(t, f, shapeOf(8, false))
		steps := first.shape.Steps
		wants(second, 0, "none has begun")
		first.begin(0, 100)
		second.begin(0, 100)
		first.take(0, 2)
		time.Sleep(time.Second) // it was sent more
		second.take(0, 1)
		wants(first, 0, "two have begun")
		wants(second, 8, "two have begun")
		late := join(t, f, shapeOf(20, false))
		first.take(2, steps+1)
		late.begin(0, 100)
		late.take(0, 1)
		wants(late, samples+8-20, "one prepares its own")
		if r := f.Join("waits", first.shape, 0, 0).Report(); r.Behind != 0 {
			t.Errorf("one that has not begun is %d samples behind", r.Behind)
		}
		end(t, f, p, first, second, late)
	})
}

// TestNoMemoryBeyondTheWindowWhileSlotsAreFreed has a member wait while all of the window is with
// another, which frees it after some time.
func TestNoMemoryBeyondTheWindowWhileSlotsAreFreed(t *testing.T) {
	for _, c := range []struct {
		step   time.Duration
		beyond bool
	}{{checkInterval / 5, false}, {3 * checkInterval, true}} {
		synctest.Test(t, func(t *testing.T) {
			p := newProducer(t, 8, 2)
			f := newFeed(t, p, share.Options{Members: 2, Deadline: time.Hour})
			fast, slow := join(t, f, shapeOf(8, false)), join(t, f, shapeOf(8, false))
			slow.step = c.step
			var both sync.WaitGroup
			for _, m := range []*process{fast, slow} {
				m.begin(0, 20)
				both.Go(func() { m.take(0, 20) })
			}
			both.Wait()
			if (p.beyond > 0) != c.beyond {
				t.Errorf("steps of %v: %d batches beyond the window", c.step, p.beyond)
			}
			end(t, f, p, fast, slow)
		})
	}
}

func TestAMemberThatLeavesReleasesWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 3)
		f := newFeed(t, p, share.Options{Members: 2, Deadline: time.Hour, Keep: 1})
		killed, other := join(t, f, shapeOf(8, false)), join(t, f, shapeOf(8, false))
		killed.keeps = 100
		killed.begin(0, 100)
		other.begin(0, 100)
		var wg sync.WaitGroup
		wg.Go(func() { killed.take(0, 7) })
		other.take(0, 7)
		wg.Wait()
		killed.cancel()
		for range killed.ready {
		}
		<-killed.ended
		killed.m.Close()
		other.take(7, 100)
		end(t, f, p, other)
	})
}

// TestASegmentIsRetiredWithItsLastBatch: memory beyond the window is announced to a member's
// process with the first of its batches that lie there, and retired with the last that the process
// returns.
func TestASegmentIsRetiredWithItsLastBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 8)
		p.apart = &staging.Extra{Segment: 7, File: p.file, Size: 1 << 10}
		f := newFeed(t, p, share.Options{Keep: 1})
		m := join(t, f, shapeOf(4, false)) // two batches for each of the producer's
		m.begin(0, 100)
		b := <-m.ready
		m.m.Yielded(0, 0, stage.Stall{})
		if _, err := m.m.Return(b.Slots[0]); err != nil {
			t.Error(err)
		}
		window := b.Extras[0].Segment
		m.take(1, 2)
		first, second := <-m.ready, <-m.ready
		if len(first.Extras) != 1 || first.Extras[0].Size != 1<<10 || len(second.Extras) != 0 {
			t.Fatalf("announced with the batches: %+v, %+v", first.Extras, second.Extras)
		}
		number := first.Extras[0].Segment
		if number == window {
			t.Errorf("the segment and the window both have number %d", number)
		}
		for _, c := range []struct {
			b    *stage.Batch
			want uint32
		}{{first, 0}, {second, number}} {
			if c.b.Segments[0] != number {
				t.Errorf("batch %d lies in segment %d, want %d", c.b.Step, c.b.Segments[0], number)
			}
			m.m.Yielded(c.b.Epoch, c.b.Step, stage.Stall{})
			if retired, err := m.m.Return(c.b.Slots[0]); retired != c.want || err != nil {
				t.Errorf("with batch %d, segment %d is retired, want %d; %v", c.b.Step, retired,
					c.want, err)
			}
		}
		m.take(4, 20)
		end(t, f, p, m)
	})
}

// TestWaitSaysWhetherTheGroupPreparesTheBatch: if it does not, the member's own stager must.
func TestWaitSaysWhetherTheGroupPreparesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 8)
		f := newFeed(t, p, share.Options{Members: 2, Deadline: time.Hour, Keep: 1})
		first, second := join(t, f, shapeOf(8, false)), join(t, f, shapeOf(8, false))
		waits := func(m *process, state string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := m.m.Wait(); got != want || m.m.Report().State != state {
				t.Errorf("a member that is %s waits for the group: %v, want %s, %v",
					m.m.Report().State, got, state, want)
			}
		}
		first.begin(0, 100)
		waits(first, "gathering", true)
		second.begin(0, 100)
		waits(first, "attached", true)
		first.take(0, 12)
		second.take(0, 12)
		late := join(t, f, shapeOf(8, false))
		late.begin(0, 100)
		waits(late, "private", false)
		end(t, f, p, first, second, late)
	})
}

// TestTakesCountAfterTheProducerWasMoved: it was moved back, to where batches had been taken
// already.
func TestTakesCountAfterTheProducerWasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 8)
		f := newFeed(t, p, share.Options{Keep: 1})
		later, earlier := join(t, f, shapeOf(8, false)), join(t, f, shapeOf(8, false))
		later.begin(20, 24)
		later.take(20, 24)
		time.Sleep(time.Second) // its run has ended
		earlier.begin(0, 100)
		earlier.take(0, 3)
		p.mu.Lock()
		if p.taken != 2 {
			t.Errorf("the producer was notified of batches up to %d, want 2", p.taken)
		}
		p.mu.Unlock()
		end(t, f, p, later, earlier)
	})
}

// TestABatchMayBeLargerThanTheWindow: the producer is notified that what is there was taken,
// although the member has yet to be given it, and prepares the rest beyond the window.
func TestABatchMayBeLargerThanTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 2)
		f := newFeed(t, p, share.Options{Keep: 1})
		m := join(t, f, shapeOf(20, false))
		m.begin(0, 100)
		defer time.AfterFunc(time.Hour, m.cancel).Stop()
		m.take(0, 10)
		end(t, f, p, m)
	})
}

// TestTheProducerStopsWithItsLastMember: once no member takes batches, none are prepared, although
// the producer waits for memory that a process keeps.
func TestTheProducerStopsWithItsLastMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, 8, 3)
		f := newFeed(t, p, share.Options{Keep: 1})
		m := join(t, f, shapeOf(8, false))
		m.keeps = 100
		goOn := make(chan struct{})
		m.refuses = func(b *stage.Batch) error {
			if b.Step == 2 {
				<-goOn
			}
			return nil
		}
		m.begin(0, 3)
		m.take(0, 2)
		time.Sleep(time.Second) // all wait, and nothing but the end of the run changes that
		close(goOn)
		if b := <-m.ready; b.Step != 2 {
			t.Errorf("the last batch is %+v", b)
		}
		time.Sleep(time.Second)
		p.mu.Lock()
		if p.running {
			t.Error("the producer goes on")
		}
		p.mu.Unlock()
		end(t, f, p, m)
	})
}

// TestMembersGetTheErrorOfTheProducer after the batches before it: of the producer itself, or of
// memory beyond the window that cannot be passed on to processes.
func TestMembersGetTheErrorOfTheProducer(t *testing.T) {
	unreadable := errors.New("a sample cannot be read")
	for _, want := range []error{unreadable, os.ErrNotExist} {
		synctest.Test(t, func(t *testing.T) {
			p := newProducer(t, 8, 8)
			if want == unreadable {
				p.fails = unreadable
			} else {
				closed, err := os.Open(p.file.Name())
				if err != nil {
					t.Fatal(err)
				}
				closed.Close()
				p.apart = &staging.Extra{Segment: 7, File: closed, Size: 1}
			}
			f := newFeed(t, p, share.Options{Keep: 1})
			m := join(t, f, shapeOf(8, false))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go func() { m.ended <- m.m.Run(ctx, 0, 10, m) }()
			m.take(0, 1)
			if err := <-m.ended; !errors.Is(err, want) || len(m.ready) > 0 {
				t.Errorf("the run ended with %v and %d more batches, want %v", err, len(m.ready), want)
			}
			m.m.Close()
			f.Close()
		})
	}
}
