package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// training is what determines a job's history: what all ranks together are given at each step.
type training struct {
	Seed            uint64
	Epochs, Batch   int
	Subset          []int32 // of the samples; nil: all
	Shuffle, Scheme string
	Bad             []int // samples that cannot be read
	OnError         string
	Arrays          bool // with transforms
}

// setup is what must not change the history.
type setup struct {
	Nodes, Each                 int // nodes; ranks on each
	Policy                      string
	Memory, File                int // bytes of the classes on each node; File 0: none
	Staging, Prefetch           int
	SourceThreads, CacheThreads int
	Background                  bool // plans are made while the job runs
	Delay                       time.Duration
	Until                       at // from there on the next setup continues
}

func drawTraining(r *rapid.T) training {
	j := training{
		Seed:    rapid.Uint64Range(0, 1<<40).Draw(r, "seed"),
		Epochs:  rapid.IntRange(1, 3).Draw(r, "epochs"),
		Batch:   4 * rapid.IntRange(1, 6).Draw(r, "batch / 4"),
		Shuffle: rapid.SampledFrom([]string{"none", "torch", "feistel"}).Draw(r, "shuffle"),
		Scheme:  rapid.SampledFrom([]string{"strided", "uniform", "whole"}).Draw(r, "scheme"),
		OnError: rapid.SampledFrom([]string{"raise", "skip", "substitute"}).Draw(r, "on_error"),
		Arrays:  rapid.Bool().Draw(r, "transforms"),
	}
	if rapid.Bool().Draw(r, "of a subset") {
		n := 4 * rapid.IntRange(2, samples/4).Draw(r, "samples / 4")
		j.Subset = rapid.SliceOfNDistinct(rapid.Int32Range(0, samples-1), n, n,
			rapid.ID[int32]).Draw(r, "subset")
	}
	if j.OnError != "raise" {
		j.Bad = rapid.SliceOfNDistinct(rapid.IntRange(0, samples-1), 0, 5,
			rapid.ID[int]).Draw(r, "bad")
	}
	return j
}

// steps returns the number of steps of an epoch.
func (j *training) steps() int {
	n := samples
	if j.Subset != nil {
		n = len(j.Subset)
	}
	return (n + j.Batch - 1) / j.Batch
}

func drawSetup(r *rapid.T, j *training, last bool) setup {
	shape := rapid.SampledFrom([][2]int{{1, 1}, {1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}}).
		Draw(r, "nodes and ranks")
	s := setup{
		Nodes: shape[0], Each: shape[1],
		Policy: rapid.SampledFrom(policies.Names(keepingOrder())).Draw(r, "policy"),
		Memory: rapid.IntRange(1, 45).Draw(r, "memory") * sampleSize,
		File:   rapid.IntRange(0, 45).Draw(r, "file") * sampleSize,
		Staging: rapid.SampledFrom([]int{256 << 10, 512 << 10, 4 << 20}).
			Draw(r, "staging_buffer"),
		Prefetch:      rapid.IntRange(1, 8).Draw(r, "prefetch_batches"),
		SourceThreads: rapid.IntRange(0, 4).Draw(r, "source_threads"),
		CacheThreads:  rapid.IntRange(1, 4).Draw(r, "cache_threads"),
		Background:    rapid.Bool().Draw(r, "background"),
		Delay: rapid.SampledFrom([]time.Duration{0, time.Millisecond, 100 * time.Millisecond}).
			Draw(r, "delay"),
		Until: end,
	}
	if !last {
		s.Until = at{
			rapid.IntRange(0, j.Epochs-1).Draw(r, "until epoch"),
			rapid.IntRange(0, j.steps()-1).Draw(r, "and step"),
		}
	}
	return s
}

// TestHistoryDependsOnTheJobAlone runs a random job over random nodes, ranks, classes, buffers,
// threads, policies and sources, some of them from a step on with another setup, which finds the
// caches on disk. It must be given the same samples, in the same order, with the same bytes, as by
// one rank without caches.
func TestHistoryDependsOnTheJobAlone(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
		_ = f.Value.Set("20")
	}
	rapid.Check(t, func(r *rapid.T) {
		j := drawTraining(r)
		setups := []setup{drawSetup(r, &j, true)}
		if rapid.Bool().Draw(r, "continued") {
			setups = []setup{drawSetup(r, &j, false), setups[0]}
		}
		plain := setup{
			Nodes: 1, Each: 1, Policy: "naive", Memory: sampleSize, Staging: 4 << 20, Prefetch: 1,
			CacheThreads: 1, Until: end,
		}
		want, err := history(t, j, plain)
		if err != nil {
			r.Fatalf("one rank without caches: %v", err)
		}
		got, err := history(t, j, setups...)
		if err != nil && strings.Contains(err.Error(), "cannot run this job") {
			r.Skip(err)
		}
		if err != nil {
			r.Fatal(err)
		}
		if n := j.Epochs * j.steps(); len(want) != n || len(got) != n {
			r.Fatalf("%d steps, and without caches %d; want %d", len(got), len(want), n)
		}
		for here, batch := range want {
			if !slices.Equal(got[here], batch) {
				r.Fatalf("%+v: got %v, want %v", here, got[here], batch)
			}
		}
	})
}

// history runs the job, by one setup after the other, and returns what was delivered at each step.
func history(t *testing.T, j training, setups ...setup) (map[at][]string, error) {
	all := map[at][]string{}
	var dirs []string // of the nodes
	for range 4 {
		dirs = append(dirs, t.TempDir())
	}
	from := at{}
	for _, s := range setups {
		var ranks []map[at][]string
		var err error
		synctest.Test(t, func(t *testing.T) { ranks, err = s.run(t, &j, dirs, from) })
		if err != nil {
			return nil, fmt.Errorf("%+v: %w", s, err)
		}
		for here := range ranks[0] {
			if all[here], err = j.join(ranks, here); err != nil {
				return nil, fmt.Errorf("%+v, at %+v: %w", s, here, err)
			}
		}
		from = s.Until
	}
	return all, nil
}

// join returns the global batch that was divided among the ranks.
func (j *training) join(ranks []map[at][]string, here at) (batch []string, err error) {
	switch j.Scheme {
	case "whole":
		for r, delivered := range ranks {
			if !slices.Equal(delivered[here], ranks[0][here]) {
				return nil, fmt.Errorf("rank %d got %v, rank 0 %v", r, delivered[here], ranks[0][here])
			}
		}
		batch = ranks[0][here]
	case "uniform":
		for _, delivered := range ranks {
			batch = append(batch, delivered[here]...)
		}
	default:
		for i := range j.Batch {
			for _, delivered := range ranks {
				if i < len(delivered[here]) {
					batch = append(batch, delivered[here][i])
				}
			}
		}
	}
	if j.OnError == "skip" {
		slices.Sort(batch) // ranks that skipped samples have shorter batches
	}
	return batch, nil
}

// run runs the job from a position on, and returns what each rank was given.
func (s *setup) run(t *testing.T, j *training, dirs []string, from at) ([]map[at][]string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	c := newVirtualNodes(t, s.Nodes, s.Background)
	for _, w := range c.worlds {
		w.read = func(ctx context.Context, id int) error {
			select {
			case <-time.After(s.Delay * time.Duration(id%3)):
			case <-ctx.Done():
				return ctx.Err()
			}
			if slices.Contains(j.Bad, id) {
				return unreadable(id)
			}
			return nil
		}
	}
	world := s.Nodes * s.Each
	ranks, errs := make([]*Rank, world), make([]error, world)
	given := make([]map[at][]string, world)
	var all sync.WaitGroup
	for n := range world {
		all.Go(func() {
			m := s.message(t, j, n, dirs[n/s.Each])
			ranks[n], errs[n] = c.list[n/s.Each].Open(ctx, m, nil, func(request.Step) {})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for n, r := range ranks {
		all.Go(func() { given[n], errs[n] = delivered(ctx, r, from, s.Until) })
	}
	all.Wait()
	closeAll(ranks)
	c.close()
	return given, errors.Join(errs...)
}

// message returns a rank's request.
func (s *setup) message(t *testing.T, j *training, rank int, dir string) request.Open {
	change := []func(*request.Open){
		set("policy", s.Policy), set("on_error", j.OnError),
		set("memory", fmt.Sprintf("%dB", s.Memory)),
		set("staging_buffer", fmt.Sprintf("%dB", s.Staging)),
		set("prefetch_batches", s.Prefetch),
		set("source_threads", s.SourceThreads), set("cache_threads", s.CacheThreads),
		func(m *request.Open) {
			m.Stream.Seed = &j.Seed
			m.Stream.Epochs = j.Epochs
			m.Stream.GlobalBatch = j.Batch
			m.Stream.Shuffle, m.Stream.Scheme = j.Shuffle, j.Scheme
		},
	}
	if s.File > 0 {
		change = append(change, set("cache_dir", dir), set("cache_size", fmt.Sprintf("%dB", s.File)))
	}
	if j.Subset != nil {
		change = append(change, over(t, j.Subset))
	}
	if j.Arrays {
		change = append(change, arrays)
	}
	if s.Nodes > 1 {
		change = append(change, onNodes(s.Nodes, s.Each, "10.0.0.1:6000"))
	}
	return message(rank, s.Nodes*s.Each, change...)
}

// delivered plays a training process in [from, to), and returns the samples of each batch with the
// digests of their bytes.
func delivered(ctx context.Context, r *Rank, from, to at) (map[at][]string, error) {
	out := map[at][]string{}
	sums := map[int]uint64{} // of epochs
	r.Wait()                 // before policy naive reads anything
	err := r.Run(ctx, from.epoch, from.step, func(b *stage.Batch) error {
		here := at{b.Epoch, b.Step}
		if here == to {
			return errEnough
		}
		out[here] = []string{}
		for i, id := range b.IDs {
			data, err := read(r, b, i)
			if err != nil {
				return err
			}
			out[here] = append(out[here], fmt.Sprintf("%d:%08x", id, digest.Of(data)))
		}
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		sums[b.Epoch] += b.Audit
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, sums[b.Epoch])
		r.Wait()
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return out, err
}
