package clustersim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/faultdisk"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/origin"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/lab/networktest"
)

// fault is an event in progress.
type fault struct {
	script.Event
	nodes int           // of the launch
	over  chan struct{} // closed when it ends
}

// node and to return the nodes that the fault concerns.
func (f *fault) node() int { return f.Node % f.nodes }
func (f *fault) to() int   { return (f.Node + 1 + f.To%max(f.nodes-1, 1)) % f.nodes }

// inject has the events of a launch happen until ctx ends; then all faults end. die is called for
// nodes that die, and killed when the launch is ended for it.
func (w *world) inject(ctx context.Context, launch int, die func(node int), killed func(),
	s script.Launch,
) *sync.WaitGroup {
	var all sync.WaitGroup
	for _, e := range w.script.Events {
		if e.Launch != launch {
			continue
		}
		all.Go(func() {
			if !sleep(ctx, e.At.D()) {
				return
			}
			f := &fault{Event: e, nodes: s.Nodes, over: make(chan struct{})}
			w.begin(f, die)
			sleep(ctx, e.For.D())
			w.finish(f)
			if e.Kind == script.Die && ctx.Err() == nil {
				killed()
			}
		})
	}
	return &all
}

func (w *world) begin(f *fault, die func(node int)) {
	switch f.Kind {
	case script.Reset:
		w.network.Reset(ip(f.node()), ip(f.to()))
	case script.Rot:
		_ = w.box(f.node()).disk.Rot(f.Amount)
	case script.Change:
		w.origin.Change(f.To % w.script.Samples)
	case script.Die:
		die(f.Node)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active = append(w.active, f)
	w.apply(f)
}

func (w *world) finish(f *fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(f.over)
	w.active = slices.DeleteFunc(w.active, func(g *fault) bool { return g == f })
	w.apply(f)
}

// apply sets the state of what a fault that has begun or ended concerns, by the faults that are
// active; mu is held.
func (w *world) apply(f *fault) {
	switch f.Kind {
	case script.SourceSlow, script.SourceFail, script.SourceHang:
		n := f.node()
		w.origin.Fault(n, func(o *origin.Faults) {
			*o = origin.Faults{}
			for _, a := range w.active {
				switch {
				case a.node() != n:
				case a.Kind == script.SourceSlow:
					o.Slow += time.Duration(a.Amount) * time.Millisecond
				case a.Kind == script.SourceFail:
					o.Fail = max(o.Fail, float64(a.Amount)/100)
				case a.Kind == script.SourceHang:
					o.Hang = a.over
				}
			}
		})
	case script.SampleFail, script.Vanish:
		set := w.origin.Break
		if f.Kind == script.Vanish {
			set = w.origin.Vanish
		}
		id := f.To % w.script.Samples
		set(id, slices.ContainsFunc(w.active, func(a *fault) bool {
			return a.Kind == f.Kind && a.To%w.script.Samples == id
		}))
	case script.DiskFail, script.DiskFull, script.DiskHang:
		n := f.node()
		w.nodes[n].disk.Fault(func(d *faultdisk.Faults) {
			*d = faultdisk.Faults{}
			for _, a := range w.active {
				switch {
				case a.node() != n:
				case a.Kind == script.DiskFail:
					d.Fail = max(d.Fail, float64(a.Amount)/100)
				case a.Kind == script.DiskFull:
					d.Full = true
				case a.Kind == script.DiskHang:
					if a.Amount != script.WritesHang {
						d.Hang = a.over
					}
					if a.Amount != script.ReadsHang {
						d.HangWrites = a.over
					}
				}
			}
		})
	case script.Pressure:
		n := f.node()
		if m := w.nodes[n].Machine; m != nil {
			m.Press(slices.ContainsFunc(w.active, func(a *fault) bool {
				return a.Kind == script.Pressure && a.node() == n
			}))
		}
	default:
		w.connect(f.nodes)
	}
}

// connect sets the links between all nodes; mu is held.
func (w *world) connect(nodes int) {
	for from := range nodes {
		for to := range nodes {
			if from == to {
				continue
			}
			var l networktest.Link
			for _, f := range w.active {
				between := from == f.node() && to == f.to() || from == f.to() && to == f.node()
				switch f.Kind {
				case script.Cut:
					l.Cut = l.Cut || from == f.node() || to == f.node()
				case script.CutWay:
					l.Cut = l.Cut || from == f.node() && to == f.to()
				case script.Partition:
					l.Cut = l.Cut || (from < f.node()) != (to < f.node())
				case script.Delay:
					if between {
						l.Delay += time.Duration(f.Amount) * time.Millisecond
					}
				case script.Rate:
					if between {
						l.Rate = int64(f.Amount) * 1000
					}
				case script.Flip:
					if from == f.node() && to == f.to() {
						l.Flips = max(l.Flips, f.Flips())
					}
				case script.Loss:
					if between {
						l.Loss = max(l.Loss, float64(f.Amount)/100)
					}
				}
			}
			w.network.Set(ip(from), ip(to), l)
		}
	}
}

// paused returns the fault by which a process does not run; nil: it runs.
func (w *world) paused(rank, ranks int) *fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.active {
		if f.Kind == script.Pause && f.Node%ranks == rank {
			return f
		}
	}
	return nil
}
