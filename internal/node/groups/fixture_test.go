package groups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/budget"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

const (
	samples = 48
	size    = 64 // bytes of a sample
	batch   = 4  // of a rank
	epochs  = 3
)

// source is a dataset whose samples consist of their own number.
type fakeSource struct{ index *source.Index }

func (s *fakeSource) Index() *source.Index { return s.index }
func (s *fakeSource) Close() error         { return nil }
func (s *fakeSource) Path(id int) string   { return "/data/" + s.index.Name(id) }

func (s *fakeSource) Read(_ context.Context, id int, dst []byte) (source.Stamp, error) {
	copy(dst, bytes.Repeat([]byte{byte(id)}, len(dst)))
	return 0, nil
}

func (s *fakeSource) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }

// openSource opens a dataset whose files' names begin with its path.
func openSource(_ context.Context, path string, _ source.OpenOptions) (source.Indexed, error) {
	b := source.NewBuilder([]string{"a"}, []string{".x"})
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Path: "a", Class: 0})
	for i := range samples {
		b.Sample(fmt.Sprintf("%s%04d.x", path[1:], i), size, 0, 0)
	}
	index, err := b.Build()
	if err == nil {
		index, err = index.WithContents(make([][16]byte, samples))
	}
	return &fakeSource{index}, err
}

func newGroups() *Groups { return New(slog.New(slog.DiscardHandler)) }

// world is the nodes of a test, which reach each other over a network in memory: node k has the
// address 10.0.0.(k+1).
type world struct {
	t       *testing.T
	network *networktest.Network
	nodes   []*node.Node
	groups  []*Groups
}

// newWorld returns n nodes, for a test in virtual time. with, if not nil, is the network of a node.
func newWorld(t *testing.T, n int, with func(k int, of cluster.Network) cluster.Network) *world {
	w := &world{t: t, network: networktest.New()}
	for k := range n {
		var network cluster.Network = w.network.Host(fmt.Sprintf("10.0.0.%d", k+1))
		if with != nil {
			network = with(k, network)
		}
		log := slog.New(slog.DiscardHandler)
		all := New(log)
		w.groups = append(w.groups, all)
		w.nodes = append(w.nodes, node.New(node.Options{
			Shared: node.Shared{Budget: new(budget.Budget), Network: network},
			Groups: all,
			Kinds: catalog.Kinds{
				Sources: []source.Kind{{
					Name: "fake", Open: openSource,
					Options: []option.Option{{Key: source.ExtensionsKey, Kind: option.List}},
				}},
				Classes: []store.Kind{memory.Kind(memory.New(memory.Options{}))},
			},
			Machine: config.Machine{Processors: 4},
		}, log))
	}
	return w
}

// close checks that nothing is left of any group or job.
func (w *world) close() {
	w.t.Helper()
	for k, n := range w.nodes {
		w.groups[k].mu.Lock()
		for name, g := range w.groups[k].all {
			w.t.Errorf("node %d: group %s is left, with %d jobs", k, name, g.jobs)
		}
		w.groups[k].mu.Unlock()
		for _, r := range n.Reports() {
			w.t.Errorf("node %d: job %s is left", k, r.Job)
		}
		if err := n.Close(); err != nil {
			w.t.Error(err)
		}
	}
	time.Sleep(time.Minute) // a probe of the failure detection that is in progress ends
}

// request returns a request of a rank of a job over all nodes, in a group.
func (w *world) request(number, rank, each int, change ...func(*request.Open)) request.Open {
	seed := uint64(7)
	m := request.Open{
		Job: fmt.Sprintf("j%d", number), Rank: rank, WorldSize: each * len(w.nodes),
		Dataset: source.Spec{Kind: "fake", Path: "/data", Options: option.Values{
			source.ExtensionsKey: []string(nil),
		}},
		Stream: request.Stream{
			Seed: &seed, Epochs: epochs, GlobalBatch: batch * each * len(w.nodes),
			Shuffle: "torch", Scheme: "strided", Tail: "pad",
		},
		Transforms: []byte(`[{"name": "Reshape", "w": 4, "h": 4, "c": 4, "dtype": "uint8"}]`),
		Settings: request.Settings{Arguments: map[string]any{
			"memory": "10000B", "staging_buffer": "64KiB", "share": "s",
		}},
	}
	if len(w.nodes) > 1 {
		m.Cluster = &request.Cluster{
			Nodes: len(w.nodes), Node: rank / each, LocalWorldSize: each,
			Address: fmt.Sprintf("10.0.0.1:%d", 6000+100*number),
			Secret:  fmt.Sprintf("a secret that is long enough %d", number),
		}
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

// jobs opens so many jobs with so many ranks on each node, all of them at the same time, and
// returns their ranks by job.
func (w *world) jobs(n, each int, change ...func(*request.Open)) (all [][]*node.Rank) {
	w.t.Helper()
	var failed []error
	all, failed = w.open(w.t.Context(), n, each, change...)
	if err := errors.Join(failed...); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// open is jobs with a context and the errors of all ranks.
func (w *world) open(ctx context.Context, n, each int, change ...func(*request.Open)) (
	all [][]*node.Rank, failed []error,
) {
	var opening sync.WaitGroup
	world := each * len(w.nodes)
	all, failed = make([][]*node.Rank, n), make([]error, n*world)
	for j := range n {
		ranks := make([]*node.Rank, world)
		all[j] = ranks
		for r := range world {
			opening.Go(func() {
				m := w.request(j, r, each, change...)
				ranks[r], failed[j*world+r] = w.nodes[r/each].Open(ctx, m, nil,
					func(request.Step) {})
			})
		}
	}
	opening.Wait()
	return all, failed
}

// process is the training process of a rank.
type process struct {
	rank *node.Rank
	kept []taken // batches
	done error
	maps map[uint32]*os.File // segments of the group's window
	hold chan struct{}       // after its last batch it stays in the stream until this is closed
}

// taken is what a process has got of a batch.
type taken struct {
	epoch, step int
	ids         []int
}

// run takes batches from an epoch on, until it has so many, and checks their bytes.
func (p *process) run(epoch, step, n int) {
	enough := errors.New("enough")
	p.kept = nil
	p.rank.Wait()
	p.done = p.rank.Run(context.Background(), epoch, step, func(b *stage.Batch) error {
		if len(p.kept) == n {
			if p.hold != nil {
				<-p.hold
			}
			return enough
		}
		for _, e := range b.Extras {
			fd, err := unix.FcntlInt(e.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return err
			}
			p.maps[e.Segment] = os.NewFile(uintptr(fd), "")
		}
		of := taken{epoch: b.Epoch, step: b.Step}
		for i, id := range b.IDs {
			of.ids = append(of.ids, int(id))
			data, err := p.read(b, i)
			if err != nil {
				return err
			}
			if !bytes.Equal(data, bytes.Repeat([]byte{byte(id)}, size)) {
				return fmt.Errorf("sample %d has other bytes", id)
			}
		}
		p.kept = append(p.kept, of)
		for _, slot := range b.Slots {
			if _, err := p.rank.Return(slot); err != nil {
				return err
			}
		}
		p.rank.Yielded(b.Epoch, b.Step, stage.Stall{}, b.Audit)
		p.rank.Wait()
		return nil
	})
	if errors.Is(p.done, enough) {
		p.done = nil
	}
}

// read returns the bytes of a sample of a batch.
func (p *process) read(b *stage.Batch, i int) ([]byte, error) {
	data := make([]byte, b.Lengths[i])
	if f := p.maps[b.Segments[i]]; f != nil {
		_, err := f.ReadAt(data, int64(b.Offsets[i]))
		return data, err
	}
	for _, s := range p.rank.Segments() {
		if s.Number == b.Segments[i] {
			_, err := s.File.ReadAt(data, int64(b.Offsets[i]))
			return data, err
		}
	}
	return nil, fmt.Errorf("segment %d is not known", b.Segments[i])
}

// all is the number of batches of a rank in all epochs.
func all(ranks int) int { return epochs * samples / batch / ranks }

// train has the ranks of some jobs take n batches from an epoch on.
func train(jobs [][]*node.Rank, epoch, n int) (processes [][]*process) {
	for j, ranks := range jobs {
		processes = append(processes, nil)
		for _, r := range ranks {
			processes[j] = append(processes[j], &process{rank: r, maps: make(map[uint32]*os.File)})
		}
	}
	goOn(processes, epoch, n)
	return processes
}

// goOn is train for processes that have trained before.
func goOn(processes [][]*process, epoch, n int) {
	var training sync.WaitGroup
	for _, ranks := range processes {
		for _, p := range ranks {
			training.Go(func() { p.run(epoch, 0, n) })
		}
	}
	training.Wait()
}

// check compares what processes got with what the ranks of a job of its own get, from an epoch on.
func check(t *testing.T, processes [][]*process, epoch, n int) {
	t.Helper()
	each := len(processes[0])
	w := newWorld(t, 1, nil)
	private := w.jobs(1, each, func(m *request.Open) {
		delete(m.Arguments, "share")
		m.Stream.Epochs = 9
	})
	want := train(private, epoch, n)[0]
	closeAll(private)
	w.close()
	for j, ranks := range processes {
		for r, p := range ranks {
			if p.done != nil {
				t.Errorf("job %d, rank %d: %v", j, r, p.done)
			}
			if !slices.EqualFunc(p.kept, want[r].kept, func(a, b taken) bool {
				return a.epoch == b.epoch && a.step == b.step && slices.Equal(a.ids, b.ids)
			}) {
				t.Errorf("job %d, rank %d got %v, want %v", j, r, p.kept, want[r].kept)
			}
		}
	}
}

func closeAll(jobs [][]*node.Rank) {
	var closing sync.WaitGroup
	for _, ranks := range jobs {
		for _, r := range ranks {
			if r != nil {
				closing.Go(r.Close)
			}
		}
	}
	closing.Wait()
}

// made returns how many samples were transformed by producers, and by members.
func (w *world) made() (shared, private int64) {
	for _, n := range w.nodes {
		for _, r := range n.Reports() {
			switch {
			case r.Preprocessing == nil:
			case len(r.Job) > 6 && r.Job[:6] == "share ":
				shared += r.Preprocessing.Samples
			default:
				private += r.Preprocessing.Samples
			}
		}
	}
	return shared, private
}

// announced has the first batch wait for so many members.
func announced(n int) func(*request.Open) {
	return func(m *request.Open) { m.Arguments["share_members"] = n }
}
