package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// fleet is all nodes of a job, each with its planner. They tell each other what a real cluster
// would carry.
type fleet struct {
	t       *testing.T
	members []*member

	mu     sync.Mutex
	rounds map[string]*gathering
	cut    map[string]int // by name of a gathering, the node that does not learn its result
	gone   map[int]bool   // nodes that take part in none
	other  map[int]bool   // nodes that vote for another plan
}

// gathering has what nodes have said so far.
type gathering struct {
	said map[int]any
	done chan struct{}
}

// member is a node.
type member struct {
	fleet   *fleet
	me      int
	planner *Planner
	note    func(node int, there bool)

	mu    sync.Mutex
	known model.Node
	did   []string // by its planner, in order: keep, release, fill
	kept  [][]int32
	owner func(id int) int
	took  map[int]float64 // by epoch, seconds; missing: not known
}

// gather waits until all nodes that are there have said something.
func gather[T any](ctx context.Context, m *member, what string, mine T) ([]T, error) {
	f := m.fleet
	f.mu.Lock()
	g := f.rounds[what]
	if g == nil {
		g = &gathering{make(map[int]any), make(chan struct{})}
		f.rounds[what] = g
	}
	g.said[m.me] = mine
	if len(g.said)+len(f.gone) == len(f.members) {
		close(g.done)
	}
	f.mu.Unlock()
	select {
	case <-g.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, is := f.cut[what]; len(f.gone) > 0 || is && at == m.me {
		return nil, errors.New("not all nodes took part")
	}
	var all []T
	for n := range f.members {
		all = append(all, g.said[n].(T))
	}
	return all, nil
}

func (m *member) Capacities(ctx context.Context, mine plan.Node) ([]plan.Node, error) {
	mine.Ranks = []int{m.me}
	return gather(ctx, m, "capacities", mine)
}

func (m *member) BootstrapWindows(ctx context.Context, mine plan.BootstrapWindow,
	_ int,
) ([]plan.BootstrapWindow, error) {
	return gather(ctx, m, "windows", mine)
}

func (m *member) Planned(ctx context.Context) error {
	_, err := gather(ctx, m, "planned", 0)
	return err
}

func (m *member) Reassess(ctx context.Context, round int,
	mine plan.Report,
) ([]plan.Report, error) {
	mine.Node.Ranks = []int{m.me}
	return gather(ctx, m, fmt.Sprint("reports ", round), mine)
}

func (m *member) Vote(ctx context.Context, round int,
	mine plan.Vote,
) ([]plan.Vote, error) {
	if m.fleet.other[m.me] {
		mine.Plan++
	}
	return gather(ctx, m, fmt.Sprint("votes ", round), mine)
}

func (m *member) Watch(note func(int, bool)) { m.note = note }

func (m *member) SetOwner(owner func(id int) int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner = owner
}

func (m *member) Keep(classes [][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept, m.did = classes, append(m.did, "keep")
}

func (m *member) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, "release")
}

func (m *member) Fill([][]int32, func(int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, "fill")
}

const fleetSamples, fleetBytes = 300, 100_000

func (m *member) options() Options {
	stream, err := access.New(access.Spec{
		Samples: fleetSamples, Seed: 7, Epochs: 40, WorldSize: len(m.fleet.members),
		GlobalBatch: 30, Scheme: access.Uniform, Tail: access.Keep,
	})
	if err != nil {
		m.fleet.t.Fatal(err)
	}
	return Options{
		Local: Local{
			Strategy: Strategy{AtOnce: 1e12}, Me: m.me, Nodes: m,
			Classes: []Class{{Capacity: 1e6}, {Capacity: 30e6}},
			Known: func() model.Node {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.known
			},
		},
		Name: "cooperative", Stream: stream,
		Size: func(int) int64 { return fleetBytes }, Needed: func(c [][]int32) [][]int32 { return c },
		Use: m, Read: func(int64) {},
		Admit: func(int64) error { return nil }, Log: slog.New(slog.DiscardHandler),
		Took: func(epoch int) (float64, bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			seconds, ok := m.took[epoch]
			return seconds, ok
		},
		Staged: func() int { return 1 }, Ahead: 1, Fail: func(err error) { m.fleet.t.Error(err) },
	}
}

// newFleet returns nodes whose source is fast and whose disk is slow, so that they hardly use it.
func newFleet(t *testing.T, nodes int, change ...func(*Options)) *fleet {
	f := &fleet{
		t: t, rounds: make(map[string]*gathering), cut: make(map[string]int),
		gone: make(map[int]bool), other: make(map[int]bool),
	}
	for n := range nodes {
		f.members = append(f.members, &member{fleet: f, me: n})
	}
	f.measure(1000, 20, 3000)
	var all sync.WaitGroup
	for _, m := range f.members {
		all.Go(func() {
			o := m.options()
			for _, c := range change {
				c(&o)
			}
			var err error
			if m.planner, err = New(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return f
}

// measure sets what nodes know: the rates of links, disks and source, in MB/s.
func (f *fleet) measure(network, class, source float64) {
	for n, m := range f.members {
		m.mu.Lock()
		m.known = tiers(n, model.Measured, network, class, source)
		m.mu.Unlock()
	}
}

// takes sets how long the epochs [from, to) take on the last node; the others wait for it.
func (f *fleet) takes(from, to int, seconds float64) {
	m := f.members[len(f.members)-1]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.took == nil {
		m.took = make(map[int]float64)
	}
	for epoch := from; epoch < to; epoch++ {
		m.took[epoch] = seconds
	}
}

// begin has all nodes begin an epoch, and waits until they do nothing more.
func (f *fleet) begin(epoch int, nodes ...*member) {
	if nodes == nil {
		nodes = f.members
	}
	for _, m := range nodes {
		m.planner.Reached(epoch)
	}
	synctest.Wait()
}

func (f *fleet) close() {
	for _, m := range f.members {
		m.planner.Close()
	}
}
