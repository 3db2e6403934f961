package node

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/node/budget"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/planner"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/transform"
	"github.com/hdmlp/hdmlp/internal/transform/runner"
)

// compile compiles the job's transforms. start starts the threads that apply them; nil: there are
// no transforms.
func (a *Assembly) compile(c *job.Config) (start func(), err error) {
	index := a.spec.Dataset.Index()
	if !a.spec.Request.Transformed() {
		for _, name := range index.Fields() {
			c.Outputs = append(c.Outputs, job.Output{Field: name})
		}
		if len(c.Outputs) == 0 {
			c.Outputs = []job.Output{{}}
		}
		return nil, nil
	}
	made, err := request.Compile(a.spec.Request.Transforms)
	if err != nil {
		return nil, err
	}
	outputs, err := fieldsOf(index, made)
	if err != nil {
		return nil, err
	}
	var parts []runner.Part
	for i, m := range made {
		c.Outputs = append(c.Outputs, resultsOf(outputs[i].name, m)...)
		if m.Program != nil {
			name := ""
			if len(made) > 1 && m.Inputs == nil {
				name = outputs[i].name
			}
			parts = append(parts, runner.Part{Name: name, Program: m.Program})
		}
	}
	c.Samples = sizesOf(made)
	c.TakesForms, a.recipe = a.takesForms(made, outputs)
	a.forms = c.TakesForms && a.Config.KeepsForms()
	return func() {
		if len(parts) > 0 {
			a.preprocessor = runner.New(parts, a.threads(c))
		}
		next := 0
		for i, m := range made {
			out := stage.Output{Field: outputs[i].number, Inputs: outputs[i].inputs}
			if m.Program != nil {
				out.Preprocessor = a.preprocessor.Fields()[next]
				next++
				for input := range max(len(out.Inputs), 1) {
					out.Forms = append(out.Forms, m.Program.TakesForm(input))
				}
			}
			for out.View = range m.Results() {
				if out.Inputs != nil {
					out.Field = out.Inputs[out.View]
				}
				a.parts.Outputs = append(a.parts.Outputs, out)
			}
		}
	}, nil
}

// takesForms reports whether the job takes samples in other forms than as read, such as an earlier
// job may have left: it decodes at least one of the fields that may have forms, needs the others as
// read only if these lie in their forms, and compares nothing with the source. recipe is what its
// transforms begin with; nil: nothing that forms may hold.
func (a *Assembly) takesForms(made []request.Output, outputs []outputField) (
	takes bool, recipe cache.Recipe,
) {
	index := a.spec.Dataset.Index()
	formed := catalog.Formed(index)
	if formed == nil || a.spec.Request.Verify {
		return false, nil
	}
	prefixes := make([]*transform.Prefix, len(formed))
	used := make([]bool, len(formed))
	for i, m := range made {
		of := outputs[i].inputs
		if of == nil {
			of = []int{outputs[i].number}
		}
		for input, f := range of {
			switch of := formed[f]; {
			case of == catalog.NoForms:
			case m.Program != nil && m.Program.TakesForm(input):
				if m.Program.Encodes(catalog.FieldSize(index, f)) {
					return false, nil
				}
				if prefixes[f] = m.Program.Prefix(); used[f] {
					prefixes[f] = nil // one of several programs of the field
				}
				takes, used[f] = true, true
			case of == catalog.WithFiles:
			// Masks and boxes are not JPEGs, whose forms are not with the file, but for rare ones.
			case of == catalog.OfUnnamed && m.Program != nil && m.Program.BesideImage(input):
			default:
				return false, nil
			}
		}
	}
	return takes, catalog.RecipeOf(prefixes)
}

// formEpochs is from how many epochs on forms are made for a job: to make one takes two to three
// decodings, and each epoch after that half a decoding less (decision 95).
const formEpochs = 6

// makesForms reports whether a job that takes forms reads samples often enough that making forms of
// them pays.
func (a *Assembly) makesForms() bool {
	epochs := a.spec.Request.Stream.Epochs
	return a.forms && (epochs == 0 || epochs >= formEpochs)
}

// formRoom returns how many bytes a memory class may take for samples in other forms; 0: the job
// makes none.
func (a *Assembly) formRoom() int64 {
	if !a.makesForms() {
		return 0
	}
	room, beside := catalog.WithForms(a.spec.Dataset.Index(), a.recipe)
	return budget.Add(room, min(beside, besideForms(a.Config, room)))
}

// besideForms returns how many bytes a memory class may take for pixels beside so many for other
// forms: half of what is left of memory whose size was not given, so that a later job's samples
// have room.
func besideForms(cfg *config.Config, room int64) (most int64) {
	for i, given := range request.Nominal(cfg) {
		c := cfg.StorageClasses[i]
		switch {
		case !c.Memory:
		case given != plan.Unlimited:
			return given
		default:
			most = max(most, (c.Capacity()-room)/2)
		}
	}
	return most
}

// resultsOf returns what processes are to know of an output of this field: one, or each view.
func resultsOf(field string, m request.Output) []job.Output {
	if m.Program == nil {
		return []job.Output{{Field: field}}
	}
	var list []job.Output
	for view, o := range m.Program.Outputs() {
		if m.Inputs != nil {
			field = m.Inputs[o.Input]
		}
		if o.Boxes {
			list = append(list, job.Output{Field: field})
			continue
		}
		out := job.Output{
			Field: field, Shape: o.Shape, Type: o.Type.String(), ChannelsLast: o.ChannelsLast,
			Sized: o.Sized,
		}
		if m.Program.Views() {
			out.View = new(int)
			*out.View = view
		}
		list = append(list, out)
	}
	return list
}

// outputField is a field of the dataset's samples.
type outputField struct {
	name   string
	number int
	inputs []int // the numbers of all, where there are several
}

// fieldsOf returns the fields that outputs are of.
func fieldsOf(index *source.Index, made []request.Output) (list []outputField, err error) {
	fields := index.Fields()
	for _, m := range made {
		inputs, err := inputsOf(fields, m.Inputs)
		if err != nil {
			return nil, err
		}
		switch i := slices.Index(fields, m.Field); {
		case m.Field == "" && len(fields) == 0:
			list = append(list, outputField{inputs: inputs})
		case m.Field == "" && len(fields) == 1:
			list = append(list, outputField{fields[0], 0, inputs})
		case i >= 0:
			list = append(list, outputField{m.Field, i, inputs})
		case m.Field == "":
			return nil, failure.Input("transforms: the samples have several fields (%s): give a list "+
				"of transforms for each", human.And(fields))
		default:
			return nil, failure.Input("transforms: the samples have no field %s; they have %s",
				human.Name(m.Field), human.And(fields))
		}
	}
	return list, nil
}

// inputsOf returns the numbers of fields that transforms are applied to jointly.
func inputsOf(fields, names []string) (numbers []int, err error) {
	for _, name := range names {
		i := slices.Index(fields, name)
		if i < 0 {
			return nil, failure.Input("transforms: the samples have no field %s; they have %s",
				human.Name(name), human.And(fields))
		}
		numbers = append(numbers, i)
	}
	return numbers, nil
}

// threads returns the options of what transforms samples.
func (a *Assembly) threads(c *job.Config) runner.Options {
	threads, most := a.Config.TransformThreads, a.node.Processors
	if threads > most {
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("transform_threads = %d: limited to %d, the number of processors "+
				"available to the daemon",
				threads, most))
		threads = most
	}
	return runner.Options{
		Seed:    c.Seed,
		Threads: threads,
		Most:    most,
		Memory:  a.Config.DecodeMemory,
		// What is left cannot be in a group's window.
		Refuse: a.spec.Produces || a.Config.Share != "",
	}
}

// sizesOf are the sizes of what is delivered of samples.
type sizesOf []request.Output

// Expected implements job.Sizes. A field is taken to be as large as the sample.
func (s sizesOf) Expected(bytes float64) (sum float64) {
	for _, o := range s {
		if o.Program == nil {
			sum += bytes
		} else {
			sum += o.Program.Expected(bytes)
		}
	}
	return sum
}

// Ragged implements job.Sizes.
func (s sizesOf) Ragged() bool {
	return slices.ContainsFunc(s, func(o request.Output) bool {
		return o.Program == nil || o.Program.Varies()
	})
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
	most := a.spec.Dataset.Index().Bytes()
	if room := a.formRoom(); room > 0 {
		most = room
	}
	for _, c := range a.Config.StorageClasses {
		if c.Memory {
			sum = budget.Add(sum, min(c.Capacity(), most))
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
