package policies

import (
	"strconv"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
)

// PyTorch is Staging with the window of torch's DataLoader (thesis 2.3, double buffering): each
// worker reads a batch, one sample after the other, and PrefetchFactor batches of each are read or
// wait to be taken.
type PyTorch struct {
	Workers        int // default 4 (0)
	PrefetchFactor int // default 2 (0)
}

var pyTorchOptions = []option.Option{
	{
		Key: "workers", Kind: option.Int, Default: "4", Min: 1, Max: 1024,
		Help: "worker processes of each rank, of which each reads one sample at a time",
	},
	{
		Key: "prefetch_factor", Kind: option.Int, Default: "2", Min: 1, Max: 1024,
		Help: "batches of each worker that are read, or wait to be taken",
	},
}

// Options implements plan.Optional.
func (PyTorch) Options() []option.Option { return pyTorchOptions }

// With implements plan.Optional.
func (PyTorch) With(values option.Values) plan.Policy {
	return PyTorch{
		Workers:        option.Get[int](values, "workers"),
		PrefetchFactor: option.Get[int](values, "prefetch_factor"),
	}
}

// window returns the policy's window.
func (p PyTorch) window() plan.Window {
	w := plan.Window{Workers: 4, Prefetch: 2}
	if p.Workers > 0 {
		w.Workers = p.Workers
	}
	if p.PrefetchFactor > 0 {
		w.Prefetch = p.PrefetchFactor
	}
	return w
}

// Name returns "pytorch", with its options.
func (p PyTorch) Name() string {
	w := p.window()
	return plan.Named("pytorch", pyTorchOptions, strconv.Itoa(w.Workers), strconv.Itoa(w.Prefetch))
}

// About describes the policy.
func (PyTorch) About() plan.About {
	return plan.About{
		Does:   "keeps nothing, and reads ahead as far as torch's DataLoader",
		Engine: true,
		Stages: true,
		Line:   plan.Line{Colour: 0xe69f00, Dashed: true},
	}
}

// Plan returns a plan without copies.
func (p PyTorch) Plan(in plan.Input) (*plan.Plan, error) {
	planned, err := builder.Nothing(p.Name(), true, in)
	if err == nil {
		w := p.window()
		planned.Window = &w
	}
	return planned, err
}
