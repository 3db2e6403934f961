package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/study/replay"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// The jobs of this file read 960 samples of 500 to 1500 bytes, with batches of 10 for each of the
// nodes' ranks, in 3 epochs, from a source of 1 MB/s, and compute for 20 ms on a batch.
const (
	comparedSamples = 960
	comparedAhead   = 4 // batches
	comparedBatch   = 10
	comparedEpochs  = 3
	comparedSeed    = 7
	comparedRate    = 1e6 // bytes per second
	comparedStep    = 20 * time.Millisecond
)

func comparedSizes() (sizes []int64, all int64) {
	for k := range comparedSamples {
		sizes = append(sizes, 500+int64(access.Mix(3, k)%1001))
		all += sizes[k]
	}
	return sizes, all
}

// shared is a source that delivers one sample after the other, to each node in turn.
type shared struct {
	mu      sync.Mutex
	waiting [][]*delivery // by node
	serving bool
}

// delivery is a sample that a node waits for.
type delivery struct {
	bytes int64
	done  chan struct{}
}

func (s *shared) read(ctx context.Context, node int, bytes int64) error {
	d := &delivery{bytes, make(chan struct{})}
	s.mu.Lock()
	s.waiting[node] = append(s.waiting[node], d)
	if !s.serving {
		s.serving = true
		go s.serve(node)
	}
	s.mu.Unlock()
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve delivers what nodes wait for, beginning with one of them.
func (s *shared) serve(node int) {
	for {
		var next *delivery
		s.mu.Lock()
		for range s.waiting {
			if list := s.waiting[node]; len(list) > 0 && next == nil {
				next, s.waiting[node] = list[0], list[1:]
			}
			if node++; node == len(s.waiting) {
				node = 0
			}
			if next != nil {
				break
			}
		}
		s.serving = next != nil
		s.mu.Unlock()
		if next == nil {
			return
		}
		time.Sleep(time.Duration(float64(next.bytes) / comparedRate * float64(time.Second)))
		close(next.done)
	}
}

// steps lets ranks wait for each other after each step.
type steps struct {
	mu    sync.Mutex
	ranks int
	in    int
	next  chan struct{}
}

func (s *steps) wait() {
	s.mu.Lock()
	next := s.next
	if s.in++; s.in == s.ranks {
		s.in, s.next = 0, make(chan struct{})
		close(next)
	}
	s.mu.Unlock()
	<-next
}

// capacities are those of each node's classes, in bytes.
type capacities struct{ memory, disk int64 }

// runCompared runs the job on real nodes in virtual time. The error is why the policy cannot.
func runCompared(t *testing.T, n int, policy string, room capacities) (run *replay.Run, err error) {
	var dirs []string
	for range n {
		dirs = append(dirs, t.TempDir())
	}
	synctest.Test(t, func(t *testing.T) {
		var data []byte
		if data, err = nodesRun(t, n, policy, room, dirs); err == nil {
			run, err = replay.Read(data)
		}
	})
	return run, err
}

// nodesRun returns the report of the job.
func nodesRun(t *testing.T, n int, policy string, room capacities, dirs []string) ([]byte, error) {
	c := newVirtualNodes(t, n, false)
	for from := range n {
		for to := range n {
			if from != to {
				c.network.Set(fmt.Sprintf("10.0.0.%d", from+1), fmt.Sprintf("10.0.0.%d", to+1),
					networktest.Link{Delay: 50 * time.Microsecond, Rate: 100e6})
			}
		}
	}
	source := &shared{waiting: make([][]*delivery, n)}
	sizes, _ := comparedSizes()
	for node, w := range c.worlds {
		w.sizes = sizes
		w.read = func(ctx context.Context, id int) error { return source.read(ctx, node, sizes[id]) }
	}
	ranks, errs := c.openUntil(t.Context(), func() {}, 1, func(rank int) []func(*request.Open) {
		return []func(*request.Open){
			set("policy", policy), set("memory", fmt.Sprintf("%dB", room.memory)),
			set("cache_dir", dirs[rank]), set("cache_size", fmt.Sprintf("%dB", room.disk)),
			set("staging_buffer", "1MB"), set("prefetch_batches", comparedAhead),
			func(m *request.Open) {
				m.Stream.Epochs, m.Stream.GlobalBatch = comparedEpochs, comparedBatch*n
			},
		}
	})
	if err := errors.Join(errs...); err != nil {
		c.close()
		return nil, err
	}
	barrier := &steps{ranks: n, next: make(chan struct{})}
	together(ranks, func(r *Rank) {
		r.Wait()
		sum, since := uint64(0), time.Now()
		err := r.Run(t.Context(), 0, 0, func(b *stage.Batch) error {
			if b.Step == 0 {
				sum = 0
			}
			sum += b.Audit
			r.Yielded(b.Epoch, b.Step, stage.Stall{All: time.Since(since)}, sum)
			time.Sleep(comparedStep)
			for _, slot := range b.Slots {
				if _, err := r.Return(slot); err != nil {
					return err
				}
			}
			barrier.wait()
			r.Wait()
			since = time.Now()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	job := ranks[0].ClusterReport(t.Context())
	for i := range job.Nodes {
		n := &job.Nodes[i]
		takeTime(n.Tiers)
		for e := range n.Epochs {
			takeTime(n.Epochs[e].Tiers)
		}
	}
	data, err := json.Marshal(job)
	closeAll(ranks)
	c.close()
	return data, err
}

// takeTime gives reads of files, which take no virtual time, the time that they take at 1000 MB/s.
func takeTime(tiers []model.Speed) {
	for i := range tiers {
		if s := &tiers[i]; s.Bytes > 0 && s.Busy == 0 {
			s.Busy = float64(s.Bytes) / 1e9
		}
	}
}

// simulateCompared runs the same job in the simulator of policies. fills reports whether classes
// are filled ahead of time while it trains.
func simulateCompared(t *testing.T, n int, policy string, room capacities) (
	r *simulate.Result, fills bool,
) {
	class := func(capacity int64, rate float64) model.Class {
		return model.Class{
			Capacity: (float64(capacity) + 0.5) / 1e6, Threads: 4, Read: model.Constant(rate),
			Write: model.Constant(rate),
		}
	}
	job := &simulate.Job{
		Env: model.Environment{
			Compute: comparedBatch * 1e-3 / comparedStep.Seconds(), Preprocess: 1e6,
			PeerBandwidth: 1e5, SourceBandwidth: comparedRate / 1e6,
			SourceThroughput: model.Constant(comparedRate / 1e6),
			Classes: []model.Class{
				class(comparedAhead*comparedBatch*1000, 1e6), class(room.memory, 1e6),
				class(room.disk, 1e5),
			},
		},
		Nodes: n, Epochs: comparedEpochs, GlobalBatch: comparedBatch * n, Seed: comparedSeed,
	}
	sizes, _ := comparedSizes()
	for _, size := range sizes {
		job.Sizes = append(job.Sizes, float64(size)/1e6)
	}
	r, err := simulate.RunModel(t.Context(), job, policy)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Supported {
		return r, false
	}
	p, err := policies.ByName(policy)
	if err != nil {
		t.Fatal(err)
	}
	in, err := simulate.Input(job)
	if err == nil {
		in, err = plan.Ordered(p, in)
	}
	if err != nil {
		t.Fatal(err)
	}
	planned, err := p.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	return r, p.About().Copies != plan.NoCopies && !planned.OnRead && !planned.Preload
}

// tiers are the bytes that ranks were given, in MB. What waits to be written to disk counts as
// there.
type tiers struct{ memory, disk, peer, source float64 }

func tiersOf(mb map[string]float64) tiers {
	return tiers{mb["memory"], mb["file"] + mb[report.Writeback], mb["peer"], mb["source"]}
}

// own returns the same with all that the nodes have or read themselves in one: which of these tiers
// a sample comes from while classes are being filled depends on whether the fill or the batch comes
// first.
func (t tiers) own() tiers { return tiers{peer: t.peer, source: t.memory + t.disk + t.source} }

// apart returns the largest difference between the tiers of two, as a share of all.
func (t tiers) apart(o tiers) float64 {
	return max(math.Abs(t.memory-o.memory), math.Abs(t.disk-o.disk), math.Abs(t.peer-o.peer),
		math.Abs(t.source-o.source)) / (t.memory + t.disk + t.peer + t.source)
}

// differences are those between a run on real nodes and what is predicted, as shares of what it
// read, was given, or took.
type differences struct {
	// Of package replay: bytes read from the source; given by other nodes in epoch 0; given in a
	// later epoch by any tier; seconds of epoch 0, of a later one, and of all.
	read, first, later, begin, epoch, time float64
	// Of package simulate: bytes read from the source, and given, by any tier, or, of a policy that
	// fills classes while it trains, by other nodes.
	simulated, given float64
}

// list returns the differences by name.
func (d differences) list() map[string]float64 {
	return map[string]float64{
		"replay: read from the source": d.read, "replay: epoch 0 from other nodes": d.first,
		"replay: later epochs, by tier": d.later, "replay: time of epoch 0": d.begin,
		"replay: time of a later epoch":    d.epoch,
		"replay: time of all epochs":       d.time,
		"simulate: read from the source":   d.simulated,
		"simulate: by tier or other nodes": d.given,
	}
}

// most are the largest differences allowed: 1 % of bytes, and 5 % of times, of epoch 0 10 %: the
// source is limited by its rate then, and that seems higher than it is, because a report has how
// long each node read, not how long any did, and nodes read at different times later.
var most = differences{0.01, 0.01, 0.01, 0.1, 0.05, 0.05, 0.01, 0.01}

// reasons are why the bytes of some jobs differ more than most, and by how much they may.
var reasons = []struct {
	policy   string
	complete bool // the caches hold the dataset
	may      differences
	why      string
}{
	{
		"frequency", true,
		differences{read: 0.05, first: 0.02, later: 0.03, simulated: 0.08, given: 0.02},
		"a sample of two nodes is read by both, or by one for both, as their fills come to it",
	},
	{
		"frequency", false,
		differences{read: 0.02, first: 0.02, later: 0.04},
		"a sample of two nodes is read by both, or by one for both, as their fills come to it",
	},
	{
		"cooperative", true,
		differences{first: 0.05, given: 0.04},
		"second copies come ahead of time, or with the batch that needs them",
	},
	{
		"minio", true,
		differences{later: 0.06, epoch: 0.1}, // as begin, of epoch 0
		"classes are being filled in epoch 1 as well: all nodes read the whole dataset",
	},
}

// withOptions are the policies with options, each with other values than the defaults.
var withOptions = map[string]string{
	"pytorch":  "pytorch:workers=2:prefetch_factor=3",
	"tfdata":   "tfdata:buffer=20:file_size=8KB",
	"locality": "locality:copies=2",
}

// TestNodesReadWhatIsPredicted runs a job under each policy on 2 and on 4 nodes, whose caches hold
// the dataset, or a part of it, and compares the bytes by tier with those that package replay
// predicts from the run's report, and with those that package simulate predicts without it, and the
// times with those of replay: processors, which take no virtual time, are the nodes' own.
func TestNodesReadWhatIsPredicted(t *testing.T) {
	var names []string
	for _, p := range policies.Engine() {
		names = append(names, p.Name())
		if with := withOptions[p.Name()]; with != "" {
			names = append(names, with)
		}
	}
	_, all := comparedSizes()
	for _, n := range []int64{2, 4} {
		for _, complete := range []bool{true, false} {
			room := capacities{all / n * 2 / 5, all / n / 5}
			if complete {
				room.memory = all / n * 11 / 10
			}
			for _, name := range names {
				t.Run(fmt.Sprintf("%s/%d_nodes/complete=%v", name, n, complete),
					func(t *testing.T) {
						compare(t, int(n), name, room, complete)
					})
			}
		}
	}
}

// TestPartitionedReadsTheSourceInTheFirstEpochOnly runs `partitioned` with caches for little more
// than the dataset: each sample is read once, although nodes read ahead over the end of the first
// epoch, when others have not yet read all that they are to keep.
func TestPartitionedReadsTheSourceInTheFirstEpochOnly(t *testing.T) {
	sizes, all := comparedSizes()
	for _, room := range []capacities{
		{all * 105 / 200, 1}, {1, all * 105 / 200}, {all * 65 / 200, all * 40 / 200},
	} {
		run, err := runCompared(t, 2, "partitioned", room)
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(all) / 1e6; math.Abs(run.SourceMB-want) > 1e-9 {
			t.Errorf("%v: %v MB of %d samples are read from the source; want %v", room, run.SourceMB,
				len(sizes), want)
		}
		// A read of the first epoch may also bring the sample for the second one.
		for e, delivered := range run.DeliveredIn[2:] {
			if delivered["source"] > 0 {
				t.Errorf("%v: in epoch %d, %v MB come from the source", room, e+2, delivered["source"])
			}
		}
	}
}

func compare(t *testing.T, n int, name string, room capacities, complete bool) {
	run, err := runCompared(t, n, name, room)
	simulated, fills := simulateCompared(t, n, name, room)
	if err != nil {
		if simulated.Supported || !strings.Contains(err.Error(), "cannot run this job") {
			t.Errorf("%v; the simulator: %q", err, simulated.Reason)
		}
		return
	}
	if !simulated.Supported {
		t.Fatalf("the simulator refuses what has run: %s", simulated.Reason)
	}
	sizes, _ := comparedSizes()
	again, err := run.Simulate(t.Context(), func(k int) int64 { return sizes[k] }, replay.AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	if run.Free || len(run.Epochs) != comparedEpochs {
		t.Fatalf("%d epochs, of ranks that wait for each other: %v", len(run.Epochs), !run.Free)
	}
	var got differences
	var took, takes float64
	for e, epoch := range run.Epochs {
		is, will := tiersOf(run.DeliveredIn[e]), tiersOf(again.DeliveredIn[e])
		apart := math.Abs(again.Epochs[e]/epoch.Seconds - 1)
		if e == 0 {
			got.first, got.begin = is.own().apart(will.own()), apart
		} else {
			got.later, got.epoch = max(got.later, is.apart(will)), max(got.epoch, apart)
		}
		took, takes = took+epoch.Seconds, takes+again.Epochs[e]
	}
	got.time = math.Abs(takes/took - 1)
	got.read = math.Abs(again.Source/run.SourceMB - 1)
	got.simulated = math.Abs(simulated.SourceTotal/run.SourceMB - 1)
	reads := &simulated.Reads
	is := tiersOf(run.Delivered)
	will := tiers{reads.Local["1"].MB, reads.Local["2"].MB, reads.Remote.MB, reads.Source.MB}
	if got.given = is.apart(will); fills {
		got.given = is.own().apart(will.own())
	}
	t.Logf("read from the source %.4f / %.4f / %.4f MB (nodes / replay / simulate); given %.4f / "+
		"%.4f / %.4f MB (memory, disk, peer, source); before training %.3f / %.3f / %.3f s",
		run.SourceMB, again.Source, simulated.SourceTotal, is, tiersOf(again.Delivered), will,
		run.BeforeTraining, again.BeforeTraining, simulated.BeforeTraining)
	t.Logf("apart %.4f", got)
	may, why := most.list(), ""
	for _, r := range reasons {
		if r.policy == name && r.complete == complete {
			why = r.why
			for what, much := range r.may.list() {
				may[what] = max(may[what], much)
			}
		}
	}
	for what, much := range got.list() {
		if much > may[what] {
			t.Errorf("%s: %.2f %% apart, and may be %.0f %% %s", what, 100*much, 100*may[what], why)
		}
	}
	if (run.BeforeTraining > 0) != (again.BeforeTraining > 0) ||
		(run.BeforeTraining > 0) != (simulated.BeforeTraining > 0) {
		t.Errorf("before training %v, %v and %v s", run.BeforeTraining, again.BeforeTraining,
			simulated.BeforeTraining)
	}
}
