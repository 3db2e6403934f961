package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/prefetch"
	"github.com/hdmlp/hdmlp/internal/protocol"
)

// partOf makes a job one in which this rank gives its part, with batches of this size, from epoch first on.
func partOf(t *testing.T, batch, first int, ids []int32) func(*protocol.OpenMessage) {
	return func(m *protocol.OpenMessage) {
		m.Stream.Shuffle, m.Stream.Epochs, m.Stream.Seed = "given", 0, nil
		m.Stream.Given = &protocol.GivenMessage{Batch: batch, Entries: len(ids), Epochs: 1, First: first, Seed: uint64(100 + m.Rank)}
		m.Stream.List = memfd(t, ids)
	}
}

// apartFrom makes a rank one that gives no part.
func apartFrom(t *testing.T, why string) func(*protocol.OpenMessage) {
	return func(m *protocol.OpenMessage) {
		partOf(t, 0, 0, nil)(m)
		m.Stream.Given.Apart = why
	}
}

// sampled draws a part of an epoch: n samples, with repeats, as a user's sampler yields them.
func sampled(rank, epoch, n int) []int32 {
	rng := rand.New(rand.NewPCG(uint64(rank), uint64(epoch)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(samples))
	}
	return ids
}

// openParts opens a job with `each` ranks on every node. change says what each rank brings; the errors are by rank.
func (c *nodes) openParts(each int, change func(rank int) []func(*protocol.OpenMessage)) ([]*Rank, []error) {
	world := each * len(c.list)
	ranks, errs := make([]*Rank, world), make([]error, world)
	address := c.address()
	var all sync.WaitGroup
	for r := range world {
		all.Go(func() {
			m := message(r, world, append(change(r), onNodes(len(c.list), each, address))...)
			ranks[r], errs[r] = c.list[r/each].Open(c.t.Context(), m, nil, func(protocol.ProgressMessage) {})
		})
	}
	all.Wait()
	return ranks, errs
}

// mustOpenParts opens a job whose ranks have n samples of each epoch, in batches of this size.
func (c *nodes) mustOpenParts(each, batch, n int, change ...func(*protocol.OpenMessage)) []*Rank {
	c.t.Helper()
	ranks, errs := c.openParts(each, func(r int) []func(*protocol.OpenMessage) {
		return append(slices.Clone(change), partOf(c.t, batch, 0, sampled(r, 0, n)))
	})
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
	return ranks
}

// trained has a rank give its part of an epoch, unless that came with OPEN, and go through it from a step on; what it gets is its part.
func trained(t *testing.T, r *Rank, epoch, step, batch, n int) {
	t.Helper()
	ids := sampled(r.rank, epoch, n)
	if err := give(t, r, epoch, ids); err != nil {
		t.Error(err)
	}
	if err := r.Check(epoch, step); err != nil {
		t.Error(err)
	}
	r.Wait() // before naive reads anything
	got := consume(t, r, at{epoch, step}, end)
	steps := (n + batch - 1) / batch
	if len(got) != steps-step {
		t.Errorf("rank %d got %d batches of epoch %d, want %d", r.rank, len(got), epoch, steps-step)
	}
	for here, batchIDs := range got {
		if want := ids[here.step*batch : min((here.step+1)*batch, n)]; here.epoch != epoch || !slices.Equal(batchIDs, want) {
			t.Errorf("rank %d, %+v: samples %v, want %v", r.rank, here, batchIDs, want)
		}
	}
}

// TestPartsOverNodes: ranks of several nodes that give each epoch's order together are each given its own part, under each policy, with
// a plan that is there at once or made meanwhile; the audit is over all of them.
func TestPartsOverNodes(t *testing.T) {
	const each, batch, n, epochs = 2, 3, 10, 4
	for _, policy := range placement.Policies() {
		for _, background := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/background=%v", policy.Name(), background), func(t *testing.T) {
				c := newNodes(t, 2, background)
				ranks := c.mustOpenParts(each, batch, n, set("policy", policy.Name()))
				for _, r := range ranks {
					if o := r.Opened(); o.Seed != 100 || o.Steps != 4 || o.RankSamples != n || o.Positions != n*len(ranks) {
						t.Errorf("rank %d opened %+v", r.rank, o)
					}
				}
				together(ranks, func(r *Rank) {
					for e := range epochs {
						trained(t, r, e, 0, batch, n)
						if a, err := r.Audit(t.Context(), e); err != nil || !a.Complete || a.Samples != n*int64(len(ranks)) {
							t.Errorf("rank %d: audit of epoch %d: %+v, %v", r.rank, e, a, err)
						}
					}
				})
				for _, r := range ranks {
					if known := r.job.stream.GivenEpochs(); !slices.Equal(known, []int{epochs - 2, epochs - 1}) {
						t.Errorf("epochs %v are known after %d", known, epochs)
					}
					if p := r.Report(); p.GlobalBatch != batch*len(ranks) || len(p.Demands) != epochs {
						t.Errorf("report: %+v", p)
					}
				}
				closeAll(ranks)
				c.close()
			})
		}
	}
}

// TestPartsAreReadOnce: where the nodes together have room for the dataset, what several epochs need is read from the source once, whichever
// epoch and node needs it first.
func TestPartsAreReadOnce(t *testing.T) {
	const each, batch, n, epochs = 2, 3, 8, 5
	for _, background := range []bool{false, true} {
		c := newNodes(t, 3, background)
		needed := map[int32]bool{}
		ranks := c.mustOpenParts(each, batch, n, set("memory", "14000B"))
		for _, r := range ranks {
			for e := range epochs {
				for _, k := range sampled(r.rank, e, n) {
					needed[k] = true
				}
			}
		}
		for e := range epochs { // together, as in training
			together(ranks, func(r *Rank) { trained(t, r, e, 0, batch, n) })
		}
		if total, most := c.read(); total != len(needed) || most != 1 {
			t.Errorf("background=%v: the source was read %d times, one sample %d times; want %d, and 1", background, total, most, len(needed))
		}
		closeAll(ranks)
		c.close()
	}
}

// TestPartsBeginAnywhere: a job resumes amid an epoch; ranks break an epoch off, and begin it again, or go on with the next one, and none waits
// for a rank that has given its part and does something else.
func TestPartsBeginAnywhere(t *testing.T) {
	const batch, n = 2, 7
	c := newNodes(t, 2, false)
	ranks, errs := c.openParts(2, func(r int) []func(*protocol.OpenMessage) {
		return []func(*protocol.OpenMessage){partOf(t, batch, 5, sampled(r, 5, n))}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	together(ranks, func(r *Rank) {
		trained(t, r, 5, 2, batch, n)
		trained(t, r, 5, 0, batch, n) // again
	})
	together(ranks, func(r *Rank) {
		if err := give(t, r, 6, sampled(r.rank, 6, n)); err != nil {
			t.Error(err)
		}
		consume(t, r, at{6, 0}, at{6, 1 + r.rank}) // and breaks off
	})
	together(ranks, func(r *Rank) { trained(t, r, 9, 0, batch, n) }) // all jump
	if a, err := ranks[3].Audit(t.Context(), 9); err != nil || !a.Complete {
		t.Errorf("%+v, %v", a, err)
	}
	closeAll(ranks)
	c.close()
}

// lines is what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestPartsWait: a rank that begins an epoch before the others waits, and is given it when they come; meanwhile the others go on with theirs, and
// what the rank gives again is compared.
func TestPartsWait(t *testing.T) {
	const batch, n = 2, 6
	c := newNodes(t, 2, false)
	var log lines
	c.list[0].log = slog.New(slog.NewTextHandler(&log, nil))
	ranks := c.mustOpenParts(1, batch, n)
	early, late := ranks[0], ranks[1]
	trained(t, early, 0, 0, batch, n)
	if err := early.Check(1, 0); err == nil || !strings.Contains(err.Error(), "epoch 1 was not given") {
		t.Errorf("an epoch that the rank has not given: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		trained(t, early, 1, 0, batch, n)
	}()
	eventually(t, "the early rank gives its part", func() bool { return early.job.parts.expects(0, 1) })
	if err := give(t, early, 1, sampled(0, 1, n)); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if x, err := early.Explain(1, 0, -1); err == nil {
		t.Errorf("explained %+v", x)
	}
	if turn, missing := late.job.parts.missing(); turn != 1 || !slices.Equal(missing, []int{1}) {
		t.Errorf("turn %d waits for ranks %v of node 1", turn, missing)
	}
	if answer := late.job.answer(t.Context(), askMissing+" 1"); string(answer) != "[1]" {
		t.Errorf("node 1 answers %s", answer)
	}
	early.job.parts.sayWaiting(1)
	if text := log.String(); !strings.Contains(text, "epoch=1 ranks=[1]") {
		t.Errorf("the log does not name the rank that is waited for: %s", text)
	}
	trained(t, late, 0, 0, batch, n)
	select {
	case <-done:
		t.Error("the early rank did not wait")
	default:
	}
	trained(t, late, 1, 0, batch, n)
	<-done
	if err := give(t, early, 1, sampled(0, 2, n)); err == nil || !strings.Contains(err.Error(), "epoch 1 is given again with another order") {
		t.Errorf("another order: %v", err)
	}
	closeAll(ranks)
	c.close()
}

// refusedApart tells whether each rank may read by itself, for this reason.
func refusedApart(t *testing.T, what string, errs []error, why string) {
	t.Helper()
	for r, err := range errs {
		var e *protocol.ErrorMessage
		if !errors.As(err, &e) || e.Kind != protocol.KindConfig || e.Details[apart] != true || !strings.Contains(e.Message, why) {
			t.Errorf("%s: rank %d is told %v; want %q", what, r, err, why)
		}
	}
}

// TestIrregularParts: where the ranks' parts make no order that can be shared, all ranks are told alike, and nothing of the job is left.
func TestIrregularParts(t *testing.T) {
	for what, c := range map[string]struct {
		of3  func(t *testing.T) func(*protocol.OpenMessage) // what rank 3 brings
		want string
	}{
		"another length": {func(t *testing.T) func(*protocol.OpenMessage) { return partOf(t, 2, 0, sampled(3, 0, 5)) }, "rank 3 has 5 samples in epoch 0, and rank 0 has 6"},
		"other batches":  {func(t *testing.T) func(*protocol.OpenMessage) { return partOf(t, 3, 0, sampled(3, 0, 6)) }, "rank 3 has batches of 3 samples, and rank 0 of 2"},
		"another epoch":  {func(t *testing.T) func(*protocol.OpenMessage) { return partOf(t, 2, 4, sampled(3, 0, 6)) }, "rank 3 begins with epoch 4, and rank 0 with epoch 0"},
		"by itself":      {func(t *testing.T) func(*protocol.OpenMessage) { return apartFrom(t, "it cannot be copied") }, "rank 3: it cannot be copied"},
	} {
		nodes := newNodes(t, 2, false)
		_, errs := nodes.openParts(2, func(r int) []func(*protocol.OpenMessage) {
			if r == 3 {
				return []func(*protocol.OpenMessage){c.of3(t)}
			}
			return []func(*protocol.OpenMessage){partOf(t, 2, 0, sampled(r, 0, 6))}
		})
		refusedApart(t, what, errs, c.want)
		nodes.close()
	}
}

// TestPartsThatDisagree: a part of a later epoch that has another length, or is of another epoch, ends the job on all ranks, before that epoch and
// not sooner, with an error that names both; where all change alike, each may read by itself, and so it may where one rank says that it does.
func TestPartsThatDisagree(t *testing.T) {
	const batch, n = 2, 6
	for what, c := range map[string]struct {
		gives   func(t *testing.T, r *Rank) error // all ranks, after epoch 0
		next    func(r *Rank) int
		apart   bool
		message string
	}{
		"another length of one rank": {
			func(t *testing.T, r *Rank) error { return give(t, r, 1, sampled(r.rank, 1, n-r.rank/3)) }, nil, false,
			"the ranks disagree about the sampler: rank 3 ends epoch 1 at index 5, and the part of each rank had 6 samples until then",
		},
		"another epoch of one rank": {
			func(t *testing.T, r *Rank) error { return give(t, r, 1+r.rank/3, sampled(r.rank, 1, n)) }, func(r *Rank) int { return 1 + r.rank/3 }, false,
			"the ranks disagree about the sampler: after epoch 0 rank 3 goes on with epoch 2, and rank 0 with epoch 1",
		},
		"another length of all": {
			func(t *testing.T, r *Rank) error { return give(t, r, 1, sampled(r.rank, 1, n+1)) }, nil, true, "epoch 1 has 7 samples on each rank, and had 6 before",
		},
		"one by itself": {
			func(t *testing.T, r *Rank) error {
				if r.rank < 3 {
					return give(t, r, 1, sampled(r.rank, 1, n))
				}
				return r.Give(protocol.GiveMessage{Epoch: 1, Apart: "it depends on what happens"}, nil)
			}, nil, true, "rank 3: it depends on what happens",
		},
	} {
		t.Run(what, func(t *testing.T) {
			nodes := newNodes(t, 2, false)
			ranks := nodes.mustOpenParts(2, batch, n)
			together(ranks, func(r *Rank) {
				trained(t, r, 0, 0, batch, n)
				if err := c.gives(t, r); err != nil {
					t.Error(err)
				}
				next := 1
				if c.next != nil {
					next = c.next(r)
				}
				if err := r.Check(next, 0); err != nil {
					t.Error(err)
				}
				got, err := take(r, at{next, 0}, end)
				e := Message(err)
				if len(got) > 0 || !strings.Contains(e.Message, c.message) || (e.Details[apart] == true) != c.apart || !c.apart && e.Kind != protocol.KindMismatch {
					t.Errorf("rank %d got %d batches, and %+v; want %q", r.rank, len(got), e, c.message)
				}
			})
			closeAll(ranks)
			nodes.close()
		})
	}
}

// TestPartsOfARankThatLeaves: the others get what is known, and then an error that names the rank, whether its node goes with it or not.
func TestPartsOfARankThatLeaves(t *testing.T) {
	const batch, n = 2, 6
	for each, want := range map[int]string{2: "rank 3 has left the job", 1: "node 1 is gone"} {
		c := newNodes(t, 2, false)
		ranks := c.mustOpenParts(each, batch, n)
		together(ranks, func(r *Rank) { trained(t, r, 0, 0, batch, n) })
		last := len(ranks) - 1
		ranks[last].Close()
		together(ranks[:last], func(r *Rank) {
			if err := give(t, r, 1, sampled(r.rank, 1, n)); err != nil {
				t.Error(err)
			}
			got, err := take(r, at{1, 0}, end)
			if e := Message(err); len(got) > 0 || e.Kind != protocol.KindMismatch || !strings.Contains(e.Message, want) || !strings.Contains(e.Message, "the order of epoch 1") {
				t.Errorf("rank %d got %d batches, and %v; want %q", r.rank, len(got), err, want)
			}
		})
		closeAll(ranks[:last])
		c.close()
	}
}

// TestPartsGivenUp: a process that is gone before the others have come is not waited for any more, and a new job can be opened.
func TestPartsGivenUp(t *testing.T) {
	c := newNodes(t, 2, false)
	address := c.address()
	ctx, cancel := context.WithCancel(t.Context())
	waits, ended := make(chan struct{}), make(chan error)
	go func() {
		said := sync.OnceFunc(func() { close(waits) })
		_, err := c.list[0].Open(ctx, message(0, 2, partOf(t, 2, 0, sampled(0, 0, 6)), onNodes(2, 1, address)), nil, func(protocol.ProgressMessage) { said() })
		ended <- err
	}()
	<-waits
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ranks := c.mustOpenParts(1, 2, 6)
	together(ranks, func(r *Rank) { trained(t, r, 0, 0, 2, 6) })
	closeAll(ranks)
	c.close()
}

// TestPartsInPieces: an order that takes several rounds to tell arrives as it was given.
func TestPartsInPieces(t *testing.T) {
	const n = 5 << 18 // 5 MiB per rank, more than a node may tell at a time
	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(1, 1<<10, n, set("staging_buffer", "8MiB"), func(m *protocol.OpenMessage) { m.Arguments["prefetch_batches"] = 1.0 })
	for _, r := range ranks {
		e := r.job.stream.Epoch(0)
		for of := range ranks {
			want := sampled(of, 0, n)
			for i, k := range want {
				if e.At(of, i) != int(k) {
					t.Fatalf("node %d has %d for sample %d of rank %d, want %d", r.rank, e.At(of, i), i, of, k)
				}
			}
		}
	}
	closeAll(ranks)
	c.close()
}

// TestPartsOccur: a sample that two ranks have draws other random numbers on each, wherever it is read.
func TestPartsOccur(t *testing.T) {
	c := newNodes(t, 2, false)
	ranks, errs := c.openParts(1, func(int) []func(*protocol.OpenMessage) {
		return []func(*protocol.OpenMessage){partOf(t, 2, 0, []int32{7, 7, 9, 7})}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	seen := map[[2]int32]int{}
	for _, r := range ranks {
		for step := range r.job.stream.Steps() {
			e := r.job.stream.Epoch(0)
			for i, occurrence := range e.Occurrence(r.rank, step) {
				seen[[2]int32{e.Batch(nil, r.rank, step)[i], occurrence}]++
			}
		}
	}
	want := map[[2]int32]int{{9, 0}: 1, {9, 1}: 1}
	for i := range int32(6) {
		want[[2]int32{7, i}] = 1
	}
	if !maps.Equal(seen, want) {
		t.Errorf("occurrences %v, want %v", seen, want)
	}
	closeAll(ranks)
	c.close()
}

// TestPartsRunOn: a rank that gives its next epoch while its run still waits for more takes that epoch in another run, and nothing twice.
func TestPartsRunOn(t *testing.T) {
	const batch, n = 3, 6
	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(1, batch, n)
	var batches atomic.Int64
	together(ranks, func(r *Rank) {
		for e := range 20 {
			if e > 0 {
				if err := give(t, r, e, sampled(r.rank, e, n)); err != nil {
					t.Error(err)
				}
			}
			err := r.Run(t.Context(), e, 0, func(b *prefetch.Batch) error {
				for _, slot := range b.Slots {
					if _, err := r.Return(slot); err != nil {
						return err
					}
				}
				if b.Epoch != e {
					return fmt.Errorf("batch %d of epoch %d in a run of epoch %d", b.Step, b.Epoch, e)
				}
				batches.Add(1)
				r.Yielded(b.Epoch, b.Step, prefetch.Stall{}, 0)
				return nil
			})
			if err != nil {
				t.Errorf("rank %d, epoch %d: %v", r.rank, e, err)
				return
			}
		}
	})
	if k := batches.Load(); k != 2*20*2 {
		t.Errorf("%d batches, want %d", k, 2*20*2)
	}
	closeAll(ranks)
	c.close()
}

// TestBadParts: what a process says of its part may be anything; it is refused before memory is taken for it.
func TestBadParts(t *testing.T) {
	var w world
	n := w.node()
	change := func(f func(g *protocol.GivenMessage)) func(*protocol.OpenMessage) {
		return func(m *protocol.OpenMessage) {
			partOf(t, 2, 0, []int32{1, 2, 3})(m)
			f(m.Stream.Given)
			m.Cluster = &protocol.ClusterMessage{Nodes: 2, LocalWorldSize: 1, Address: "127.0.0.1:0", Secret: "0123456789abcdef0123456789abcdef"}
		}
	}
	for want, f := range map[string]func(g *protocol.GivenMessage){
		"stream.given.batch = 0":                         func(g *protocol.GivenMessage) { g.Batch = 0 },
		"stream.given.batch = 9223372036854775807":       func(g *protocol.GivenMessage) { g.Batch = 1<<63 - 1 },
		"stream.given.first = -1":                        func(g *protocol.GivenMessage) { g.First = -1 },
		"epochs = 2":                                     func(g *protocol.GivenMessage) { g.Epochs = 2 },
		"1 epoch(s) of 0 samples":                        func(g *protocol.GivenMessage) { g.Entries = 0 },
		"its descriptor has 12 bytes, and 16 are needed": func(g *protocol.GivenMessage) { g.Entries = 4 },
	} {
		if e := refusal(t, n, message(0, 2, change(f))); e.Kind != protocol.KindConfig || !strings.Contains(e.Message, want) {
			t.Errorf("%+v; want %q", e, want)
		}
		w.empty(t, n)
	}
	w.close(t, n)

	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(1, 2, 6)
	for _, bad := range []struct {
		ids  []int32
		want string
	}{
		{[]int32{1, 2, 3, 40, 4, 5}, "epoch 1 is given with sample 40 at index 3; allowed: 0 to 39"},
		{[]int32{1, 2, 3, -1, 4, 5}, "epoch 1 is given with sample -1 at index 3"},
	} {
		if err := give(t, ranks[0], 1, bad.ids); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v: %v; want %q", bad.ids, err, bad.want)
		}
	}
	for e := 1; e <= mostQueued; e++ {
		if err := give(t, ranks[0], e, sampled(0, e, 6)); err != nil {
			t.Error(err)
		}
	}
	if err := give(t, ranks[0], 3, sampled(0, 3, 6)); err == nil || !strings.Contains(err.Error(), "while those of epochs 1 and 2 wait for the other ranks") {
		t.Errorf("a third epoch ahead: %v", err)
	}
	closeAll(ranks)
	c.close()
}
