// Package machine assembles a node of a simulated cluster: the node of a daemon with its storage
// classes, over a given network, source and disk, on a machine whose memory the simulation sets.
package machine

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/budget"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
	"github.com/hdmlp/hdmlp/internal/store/memory"
	"github.com/hdmlp/hdmlp/internal/store/pressure"
)

// limit is the memory of a machine: so much that the memory class's segments, which count whole as
// soon as they are there, do not look like a process that grows fast.
const limit = 4 << 30

// Options are a machine's surroundings.
type Options struct {
	node.Shared // its network; New sets the budget
	Source      source.Kind
	Disk        disk.Disk // under the file class
	Groups      node.Groups
	Log         *slog.Logger
}

// Machine is a node and what the simulation changes and measures of it. Close closes it.
type Machine struct {
	*node.Node
	ram    *memory.Class
	budget *budget.Budget
	short  atomic.Bool
}

// New returns a machine with plenty of memory.
func New(o Options) *Machine {
	m := &Machine{}
	memoryBudget := new(budget.Budget)
	m.budget = memoryBudget
	m.ram = memory.New(memory.Options{Limit: func() (int64, error) {
		return m.free() - memoryBudget.Outstanding(), nil
	}})
	memoryBudget.Yield = m.ram.Yield
	files := file.Kind("")
	files.New = func(c store.Options) (store.Class, error) {
		own := file.OptionsOf(c)
		own.Reserve, own.Disk = 1, o.Disk
		class, err := file.New(own)
		if err != nil {
			return nil, err // not a nil *Class
		}
		return class, nil
	}
	o.Budget, o.Version = memoryBudget, "simulated"
	options := node.Options{
		Shared: o.Shared, Groups: o.Groups,
		Kinds: catalog.Kinds{
			Sources: []source.Kind{o.Source},
			Classes: []store.Kind{memory.Kind(m.ram), files},
		},
		Watch: func() (stop func()) {
			return pressure.Start(pressure.Options{
				Cache: m.ram, Log: o.Log,
				Measure: func() (pressure.Reading, error) {
					return pressure.Reading{
						At: time.Now(), Limit: limit, Free: m.free() - memoryBudget.Outstanding(),
						What: "the machine", Stalled: -1,
					}, nil
				},
			}).Close
		},
	}
	options.Machine.Processors = 2
	options.Machine.AvailableMemory = func() (int64, error) { return m.free() + m.ram.Idle(), nil }
	m.Node = node.New(options, o.Log)
	return m
}

// free returns what processes may still allocate.
func (m *Machine) free() int64 {
	if m.short.Load() {
		return 0
	}
	return limit/2 - m.ram.Taken()
}

// Press sets whether other processes have taken all memory.
func (m *Machine) Press(short bool) { m.short.Store(short) }

// Left returns what memory a node that was closed has not given back; "": none.
func (m *Machine) Left() string {
	if cached, claimed := m.ram.Taken(), m.budget.Outstanding(); cached+claimed > 0 {
		return fmt.Sprintf("%d bytes of caches in memory and %d of jobs are left", cached, claimed)
	}
	return ""
}

// End closes the node, which must be without jobs.
func (m *Machine) End() error {
	if err := m.Close(); err != nil {
		return fmt.Errorf("close the node: %w", err)
	}
	return nil
}
