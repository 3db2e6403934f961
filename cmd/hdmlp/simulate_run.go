package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
	"github.com/hdmlp/hdmlp/internal/study/simulate/render"
	"github.com/hdmlp/hdmlp/internal/study/simulate/scaling"
	"github.com/hdmlp/hdmlp/internal/study/sizes"
)

// simulateOne runs one policy.
func simulateOne(ctx context.Context, job *simulate.Job, profile simulate.Profile,
	policy plan.Policy,
) (*simulate.Result, error) {
	if profile == simulate.Thesis {
		return simulate.RunOriginal(ctx, job, policy)
	}
	return simulate.Run(ctx, job, policy)
}

// fitMemory decides how many simulations run at the same time, and returns an error if the memory
// is too small for one.
func (p *simulationPlan) fitMemory() error {
	shared, simulations := int64(0), 0
	datasets := map[string]bool{}
	for _, point := range p.points {
		s := point.scenario
		if dataset := fmt.Sprint(s.Seed, s.Dataset); !datasets[dataset] {
			datasets[dataset], shared = true, shared+s.SharedBytes()
		}
		p.largest = max(p.largest, s.RunBytes(p.perBatch()))
		simulations += len(s.Policies)
	}
	available, err := p.opts.memory()
	if err != nil {
		return fmt.Errorf("measure the available memory: %w", err)
	}
	if need := shared + p.largest; need > available {
		return fmt.Errorf("%s: the simulation needs about %s of memory, but only %s are "+
			"available; use fewer samples, epochs or nodes",
			p.opts.file, human.Format(need), human.Format(available))
	}
	p.workers = int(min(int64(runtime.GOMAXPROCS(0)), int64(simulations),
		max(1, (available-shared)/max(1, p.largest))))
	return nil
}

// perBatch reports whether the times of batches will be plotted or printed.
func (p *simulationPlan) perBatch() bool {
	return p.opts.batches || p.opts.dir != "" && len(p.sweeps) == 0
}

// simulation is one policy at one point, or the lower bound of the runtimes there.
type simulation struct {
	point, policy int // policy: timeBound for the lower bound
	name          string
}

const timeBound = -1

// finished is a simulation with its result.
type finished struct {
	simulation
	result *simulate.Result
	bound  float64 // seconds
	err    error
}

// interruptTimeout is how long an interrupted simulation may take to end by itself.
const interruptTimeout = 500 * time.Millisecond

// run simulates everything, on all cores, and puts the results into r. It reports whether ctx ended
// before everything was finished.
func (p *simulationPlan) run(ctx context.Context, progress io.Writer,
	r *render.Report,
) (stopped bool, err error) {
	var todo []simulation
	for i, point := range p.points {
		if point.scenario.Profile == simulate.Model { // the other one departs from the equations
			todo = append(todo, simulation{i, timeBound, render.TimeBoundName})
		}
		for k, name := range point.scenario.Policies {
			todo = append(todo, simulation{i, k, name})
		}
	}
	bar := newSimulationBar(progress, len(todo))
	defer bar.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The channel never blocks, so that workers end even after run has returned.
	results := make(chan finished, len(todo))
	p.start(ctx, todo, results)

	found := make([][]*simulate.Result, len(p.points))
	for i, point := range p.points {
		found[i] = make([]*simulate.Result, len(point.scenario.Policies))
	}
	keep := func(f finished) {
		if f.policy == timeBound {
			r.Points[f.point].TimeBound = f.bound
		} else {
			found[f.point][f.policy] = f.result
		}
	}
	var late <-chan time.Time
	left := len(todo)
	for left > 0 && !stopped {
		select {
		case f := <-results:
			left--
			switch {
			case f.err == nil:
				keep(f)
				bar.done(f.name)
			case ctx.Err() == nil:
				err = f.err
				cancel()
			}
		case <-ctx.Done():
			if late == nil {
				late = time.After(interruptTimeout)
			}
			select {
			case f := <-results:
				if left--; f.err == nil {
					keep(f)
				}
			case <-late:
				stopped = true
			}
		}
	}
	if err != nil {
		return false, err
	}
	stopped = ctx.Err() != nil
	for i, point := range p.points {
		for k, name := range point.scenario.Policies {
			if result := found[i][k]; result != nil {
				if bound := r.Points[i].TimeBound; bound > 0 {
					result.ShareOfTimeBound = result.Runtime / bound
				}
				r.Points[i].Policies = append(r.Points[i].Policies,
					render.Policy{Name: name, Result: result})
			} else {
				stopped = true
			}
		}
	}
	return stopped, nil
}

// start starts the workers. Each ends when nothing is left, or soon after ctx ends; every
// simulation sends a result.
func (p *simulationPlan) start(ctx context.Context, todo []simulation, results chan<- finished) {
	var next atomic.Int64
	jobs := make([]func() (*simulate.Job, error), len(p.points))
	for i, point := range p.points {
		jobs[i] = sync.OnceValues(func() (*simulate.Job, error) {
			job, err := point.scenario.Job()
			if err == nil {
				job.PerBatch = p.perBatch()
			}
			return job, err
		})
	}
	for range p.workers {
		go func() {
			for {
				at := int(next.Add(1)) - 1
				if at >= len(todo) {
					return
				}
				f := finished{simulation: todo[at], err: ctx.Err()}
				if f.err == nil {
					f.err = p.one(ctx, &f, jobs[f.point])
				}
				results <- f
			}
		}()
	}
}

// one runs one simulation and puts the result into f.
func (p *simulationPlan) one(ctx context.Context, f *finished,
	job func() (*simulate.Job, error),
) error {
	sc := p.points[f.point].scenario
	if f.policy != timeBound {
		if why := sc.Needs(f.name); why != "" {
			f.result = &simulate.Result{Reason: why}
			return nil
		}
	}
	j, err := job()
	if err != nil {
		return err
	}
	if f.policy == timeBound {
		f.bound, err = simulate.TimeBound(ctx, j)
		return err
	}
	f.result, err = simulateOne(ctx, j, sc.Profile, sc.Policy(f.name))
	return err
}

// report returns the report of the plan, without results.
func (p *simulationPlan) report() *render.Report {
	first := p.points[0].scenario
	r := &render.Report{
		Title: first.Title, Scenario: p.opts.file, Profile: string(first.Profile), Seed: first.Seed,
		Classes: first.ClassNames, Scaling: p.opts.scaling != "", Facts: p.facts(first),
		Lines: map[string]plan.Line{},
	}
	if r.Title == "" {
		r.Title = p.file.Name()
	}
	for _, s := range p.sweeps {
		r.Sweep = append(r.Sweep, s.Key)
	}
	for _, point := range p.points {
		for _, name := range point.scenario.Policies {
			r.Lines[name] = point.scenario.Policy(name).About().Line
		}
	}
	for _, point := range p.points {
		at := render.Point{Values: point.values, Batches: p.opts.batches}
		if job, err := point.scenario.Job(); err == nil { // the run itself reports an error
			at.Bound = boundMB(point.scenario, job)
			if r.Scaling {
				at.Model = analyticalModel(point.scenario, job)
			}
		}
		r.Points = append(r.Points, at)
	}
	if r.Scaling {
		r.Limit = scaling.LimitOf(&first.Env)
	}
	return r
}

// boundMB returns the least that can be read from the source, in MB.
func boundMB(s *scenario.Scenario, job *simulate.Job) float64 {
	dataset := 0.0
	for _, v := range job.Sizes {
		dataset += v
	}
	cached := min(dataset, float64(s.Nodes)*s.Env.LocalCapacity())
	return float64(plan.Bound(int64(dataset*1e6+0.5), int64(cached*1e6+0.5), s.Epochs)) / 1e6
}

// facts describes in words what is simulated.
func (p *simulationPlan) facts(s *scenario.Scenario) []render.Fact {
	e := &s.Env
	rate := func(v float64) string { return human.Rounded(v) + "/s" }
	nodes := number(s.Nodes, "node")
	machine := fmt.Sprintf("%s, computing %s and preparing %s per thread on each; network "+
		"%s; source %s",
		nodes, rate(e.Compute), rate(e.Preprocess), rate(e.PeerBandwidth),
		rate(e.SourceThroughput.At(1)))
	if s.Nodes > 1 {
		machine += fmt.Sprintf(" for one node, %s for %d",
			rate(e.SourceThroughput.At(float64(s.Nodes))), s.Nodes)
	}
	if p := e.Processors; p.Cores > 0 {
		machine += fmt.Sprintf("; %s, %s", number(p.Cores, "core"),
			number(max(p.Cores, p.Hyperthreads), "hyperthread"))
	}
	var classes []string
	for j, c := range e.Classes {
		classes = append(classes,
			fmt.Sprintf("%s %s (%s, %s)", human.Name(s.ClassNames[j]), human.Rounded(c.Capacity),
				number(c.Threads, "thread"), rate(c.Read.At(float64(c.Threads)))))
	}
	samples := fmt.Sprintf("%s samples, %s", human.Number(float64(s.Dataset.Samples)),
		human.Rounded(s.Bytes()))
	if d := s.Dataset; d.File == "" {
		samples += ": " + sizesInWords(&d.Sizes)
	} else {
		samples += ", as in " + human.Name(d.File)
	}
	last := "the last one may be shorter"
	if s.DropLast {
		last = "a shorter last one is dropped"
	}
	facts := []render.Fact{
		{Name: "Scenario", Value: human.Name(p.opts.file)},
		{Name: "Machine", Value: machine},
		{Name: "Per node", Value: strings.Join(classes, ", ")},
		{Name: "Dataset", Value: samples},
		{Name: "Job", Value: fmt.Sprintf("%s of %s with %s samples over all nodes (%s); scheme %s%s",
			number(s.Epochs, "epoch"), number(s.Steps(), "batch"),
			human.Number(float64(s.GlobalBatch)), last, s.Scheme, together(s))},
		{Name: "Profile", Value: fmt.Sprintf("%s, seed %d", s.Profile, s.Seed)},
	}
	if len(p.opts.policyFiles) > 0 {
		facts = append(facts, render.Fact{
			Name: "Tables", Value: human.Name(strings.Join(p.opts.policyFiles, ", ")),
		})
	}
	if len(p.opts.set) > 0 {
		facts = append(facts,
			render.Fact{Name: "Changed", Value: human.Name(strings.Join(p.opts.set, ", "))})
	}
	for _, sweep := range p.sweeps {
		facts = append(facts, render.Fact{
			Name: "Varied",
			Value: human.Name(sweep.Key+" = "+strings.Join(sweep.Values, ", ")) +
				"; the facts above are for the first value",
		})
	}
	return facts
}

// sizesInWords describes what sizes are drawn from.
func sizesInWords(d *sizes.Distribution) string {
	text := human.Rounded(d.Mean()) + " each"
	if d.Kind != sizes.Constant && (d.Sigma > 0 || d.Kind == sizes.Uniform ||
		d.Kind == sizes.Histogram) {
		text += " on average"
	}
	if d.Sigma > 0 {
		text += ", standard deviation " + human.Rounded(d.Sigma)
	}
	if d.Kind != sizes.Normal && d.Kind != sizes.Constant {
		text += ", " + string(d.Kind)
	}
	if d.Max > 0 {
		text += fmt.Sprintf(", from %s to %s", human.Rounded(d.Min), human.Rounded(d.Max))
	}
	return text
}

// together describes in words the jobs that train at the same time.
func together(s *scenario.Scenario) string {
	switch {
	case s.Jobs == 1:
		return ""
	case s.Share:
		return fmt.Sprintf("; a group of %s that share what they prepare", number(s.Jobs, "job"))
	}
	return fmt.Sprintf("; %s at the same time, each for itself", number(s.Jobs, "such job"))
}

// number formats a number of things, with the plural where it is needed.
func number(n int, what string) string {
	text := human.Number(float64(n)) + " " + what
	switch {
	case n == 1:
	case what == "batch":
		text += "es"
	default:
		text += "s"
	}
	return text
}

// simulationBar shows the progress of simulations on a terminal. The zero value shows nothing.
type simulationBar struct {
	line     *liveLine
	finished int
	last     string // finished last
}

func newSimulationBar(out io.Writer, total int) *simulationBar {
	b := &simulationBar{}
	if out == nil {
		return b
	}
	begun := time.Now()
	b.line = showLine(out, func(columns int) string {
		before := "simulating  "
		after := fmt.Sprintf("  %d of %d %s", b.finished, total, clock(time.Since(begun)))
		if b.last != "" {
			after += "  " + b.last + " is done"
		}
		return before + rule(int64(b.finished), int64(total), 40, columns, before, after) + after
	})
	return b
}

// done counts one more finished simulation.
func (b *simulationBar) done(name string) {
	if b.line != nil {
		b.line.update(func() {
			b.finished++
			b.last = name
		})
	}
}

// close removes the bar.
func (b *simulationBar) close() {
	if b.line != nil {
		b.line.close(false)
	}
}

// combinations returns all combinations of the sweeps' values, in which the last key's change
// fastest. Without sweeps there is a single, empty one.
func combinations(sweeps []scenario.Sweep) [][]string {
	all := [][]string{nil}
	for _, s := range sweeps {
		var longer [][]string
		for _, before := range all {
			for _, v := range s.Values {
				longer = append(longer, append(slices.Clone(before), v))
			}
		}
		all = longer
	}
	return all
}
