package node

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/node/budget"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/planner"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/transform/runner"
)

// compile compiles the job's transforms. start starts the threads that apply them; nil: there are
// no transforms.
func (a *Assembly) compile(c *job.Config) (start func(), err error) {
	if !a.spec.Request.Transformed() {
		return nil, nil
	}
	program, err := request.Compile(a.spec.Request.Transforms)
	if err != nil {
		return nil, err
	}
	out := program.Output()
	c.Output, c.Samples = &job.Output{Shape: out.Shape, Type: out.Type.String()}, program
	return func() {
		threads, most := a.Config.TransformThreads, a.node.Processors
		if threads > most {
			c.Warnings = append(c.Warnings,
				fmt.Sprintf("transform_threads = %d: limited to %d, the number of processors "+
					"available to the daemon",
					threads, most))
			threads = most
		}
		a.preprocessor = runner.New(program,
			runner.Options{
				Seed:    c.Seed,
				Threads: threads,
				Most:    most,
				Memory:  a.Config.DecodeMemory,
				// What is left cannot be in a group's window.
				Refuse: a.spec.Produces || a.Config.Share != "",
			})
		a.parts.Preprocessor = a.preprocessor
	}, nil
}

// transformThreads returns how many samples can be transformed at the same time.
func (a *Assembly) transformThreads() int {
	if n := a.Config.TransformThreads; n > 0 {
		return min(n, a.node.Processors)
	}
	return a.node.Processors
}

// admit has the node's budget admit the job with all memory that it may ever take on this node.
// Derived sizes may become smaller.
func (a *Assembly) admit(c *job.Config) (err error) {
	d := budget.Demand{
		Job: a.spec.Request.Job, Ranks: len(c.Ranks), Decodes: c.Samples != nil,
		Orders: a.Order.Memory(c.Samples != nil),
		Class:  a.classMemory(), Plan: a.planMemory(),
	}
	for _, rank := range c.Ranks {
		bytes, _ := job.BufferSize(a.Order, rank, a.Config.StagingBuffer, c.Samples)
		d.Buffer = max(d.Buffer, bytes)
	}
	a.claim, a.Config, err = a.node.Budget.Admit(d, a.Config)
	return err
}

// classMemory returns how much memory the memory classes may take for the job's dataset; 0 if their
// stores are open already.
func (a *Assembly) classMemory() (sum int64) {
	if a.spec.Dataset.Cached() {
		return 0
	}
	for _, c := range a.Config.StorageClasses {
		if c.Memory {
			sum = budget.Add(sum, min(c.Capacity(), a.spec.Dataset.Index().Bytes()))
		}
	}
	return sum
}

// planMemory returns how much memory it takes to make the plan, if one is made, and for the sample
// tables.
func (a *Assembly) planMemory() int64 {
	books := catalog.BookMemory(a.spec.Dataset.Index().Len(), len(a.Config.StorageClasses))
	return budget.Add(planner.Memory(a.Order.Stream(), a.Order.First(), a.nodes()), books)
}

// nodes returns the number of nodes of the job.
func (a *Assembly) nodes() int {
	if a.Coordinator != nil {
		return len(a.Coordinator.Ranks())
	}
	return 1
}

// staging returns the capacity of the staging buffers of this node's ranks, in bytes.
func (a *Assembly) staging() (sum int64) {
	for _, rank := range a.ranks() {
		bytes, _ := job.BufferSize(a.Order, rank, a.Config.StagingBuffer, nil)
		sum = budget.Add(sum, bytes)
	}
	return sum
}
