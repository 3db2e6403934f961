package compare

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// Property is one of the five of thesis 2.3 (table 2.1), as it was measured of a policy.
type Property struct {
	Holds bool   `json:"holds"`
	Known bool   `json:"known"` // false: there was nothing to measure it by
	Value string `json:"value"` // what was measured, briefly
}

// Properties are a policy's row of table 2.1 of the thesis.
type Properties struct {
	Dataset       Property `json:"dataset_scalability"`
	Nodes         Property `json:"node_scalability"`
	Configuration Property `json:"configuration_independence"`
	Accuracy      Property `json:"model_accuracy"`
	Ease          Property `json:"ease_of_use"`
}

// list returns the properties in the table's order.
func (p *Properties) list() []Property {
	return []Property{p.Dataset, p.Nodes, p.Configuration, p.Accuracy, p.Ease}
}

// propertyNames are the headings of the table.
var propertyNames = []string{"dataset", "nodes", "storage", "accuracy", "ease of use"}

// How each property is measured, in the order of the headings.
var propertyWords = []string{
	"dataset (dataset scalability): the policy plans for this data with caches that hold 1 % of it " +
		"on all nodes together, and its order still shows every sample in each epoch. The value is " +
		"the share that it shows.",
	"nodes (node scalability): how many times as fast the last epoch is on 4 times the nodes, and " +
		"the share of it that then still leaves the source. Both are simulated on the machine that " +
		"was measured, with a source that gives all nodes together what it gives now. It holds from " +
		"2 times on, if the share is at most half of that on these nodes, or below 5 %.",
	"storage (configuration independence): on how many of 4 configurations the policy plans (no " +
		"cache; memory for 25 %; a disk for 50 %; both), and how many of the two classes it uses " +
		"where there are both. It holds if it is 4 of 4 and 2 of 2.",
	"accuracy (model accuracy): measured of the order that was delivered. It holds if each epoch " +
		"showed every sample, and the distance from a full shuffle is below %s, or (b) the global " +
		"batches are those of one, and only the ranks that read them differ, which matters to batch " +
		"normalization on each. The values are that distance and the share seen.",
	"ease of use: all policies run in the same script, by the key policy. The value is the time " +
		"from the process's request until the job is open, measured. It holds if the policy loads " +
		"nothing before training.",
}

const (
	larger      = 100 // times all caches, of the dataset for the first property
	moreNodes   = 4
	leastGain   = 2
	tried       = 2000 // samples of the simulations of properties
	triedEpochs = 3
	fewest      = 16 // steps of an epoch on more nodes
	littleLeft  = 0.05
)

// distanceLimit returns from which distance on an order is no full shuffle: 0.02, and 3 standard
// deviations of a share that is counted over the pairs of epochs of so many samples.
func distanceLimit(samples, epochs int) float64 {
	pairs := float64(samples) * float64(max(min(epochs, 4)-1, 1))
	return 0.02 + 3*0.5/math.Sqrt(max(pairs, 1))
}

// accurate reports whether a run showed all samples in the batches of a full shuffle.
func accurate(r *Run, samples, epochs int) bool {
	return r.Seen > 0.9995 && (r.SameBatches || r.Distance < distanceLimit(samples, epochs))
}

// measured sets what follows from a run.
func (p *Properties) measured(r *Run, samples, epochs int) {
	if r == nil {
		return
	}
	p.Accuracy = Property{
		Known: epochs > 1, Holds: epochs > 1 && accurate(r, samples, epochs),
		Value: fmt.Sprintf("%.2f, %s", r.Distance, human.Percent(r.Seen)),
	}
	if p.Accuracy.Holds && r.Distance >= distanceLimit(samples, epochs) {
		p.Accuracy.Value += " b"
	}
	p.Ease = Property{
		Known: true, Holds: r.Before == 0, Value: human.Seconds(r.Opening) + " s",
	}
}

// properties returns those that need no run of the policy.
// sizes are those of the part of the dataset that was read, which is that share of it.
func (w *Work) properties(ctx context.Context, policy plan.Policy, sizes []float64,
	share float64,
) (*Properties, error) {
	few := sizes[:min(len(sizes), tried)]
	p := new(Properties)
	var err error
	if p.Dataset, err = w.scalesWithData(ctx, policy, few); err != nil {
		return nil, err
	}
	if p.Nodes, err = w.scalesWithNodes(ctx, policy, few, share*sum(few)/sum(sizes)); err != nil {
		return nil, err
	}
	if p.Configuration, err = w.independent(policy, few); err != nil {
		return nil, err
	}
	return p, nil
}

// planned returns the policy's plan for the input, in the order in which it reads.
func planned(p plan.Policy, in plan.Input) (*plan.Plan, error) {
	in, err := plan.Ordered(p, in)
	if err != nil {
		return nil, err
	}
	return p.Plan(in)
}

// reason returns why a policy cannot plan for the input; "": it can.
func reason(p plan.Policy, in plan.Input) (string, error) {
	_, err := planned(p, in)
	if no := (*plan.Unsupported)(nil); errors.As(err, &no) {
		return no.Reason, nil
	}
	return "", err
}

func sum(sizes []float64) (all float64) {
	for _, s := range sizes {
		all += s
	}
	return all
}

// with returns the work with classes of these capacities, as shares of the dataset over all nodes;
// 0 leaves the class out.
func (w *Work) with(memory, disk float64, sizes []float64) *Work {
	total := sum(sizes)
	out := *w
	out.Node.Classes = nil
	out.Capacity, out.Disks = nil, nil
	add := func(share float64, onDisk bool) {
		if share <= 0 {
			return
		}
		class := model.NodeClass{
			Name: Memory, Stores: 1, Read: model.GuessedMemory,
			Write: model.GuessedMemory,
		}
		if onDisk {
			class = model.NodeClass{
				Name: Disk, Path: "/", Stores: 1, Read: model.GuessedClass,
				Write: model.GuessedClass,
			}
		}
		for j, c := range w.Node.Classes {
			if j < len(w.Disks) && w.Disks[j] == onDisk {
				class = c
			}
		}
		out.Node.Classes = append(out.Node.Classes, class)
		out.Capacity = append(out.Capacity, share*total/float64(w.Nodes))
		out.Disks = append(out.Disks, onDisk)
	}
	add(memory, false)
	add(disk, true)
	return &out
}

func (w *Work) scalesWithData(ctx context.Context, policy plan.Policy, sizes []float64) (
	Property, error,
) {
	small := w.with(1.0/larger, 0, sizes)
	small.Epochs, small.Batch = 2, small.fitting(len(sizes), w.Nodes)
	r, err := simulate.Run(ctx, small.Job(sizes, 1), policy)
	switch {
	case err != nil:
		return Property{}, err
	case !r.Supported:
		return Property{Known: true, Value: "cannot"}, nil
	}
	return Property{
		Known: true, Holds: r.SeenPerEpoch > 0.9995, Value: human.Percent(r.SeenPerEpoch),
	}, nil
}

// fitting returns a batch of a rank with which an epoch of so many samples has some steps.
func (w *Work) fitting(samples, nodes int) int {
	return max(1, min(w.Batch, samples/(nodes*fewest)))
}

func (w *Work) scalesWithNodes(ctx context.Context, policy plan.Policy, few []float64,
	share float64,
) (Property, error) {
	var last, left [2]float64
	for i, nodes := range []int{w.Nodes, moreNodes * w.Nodes} {
		now := *w
		now.Epochs, now.Batch = triedEpochs, w.fitting(len(few), moreNodes*w.Nodes)
		now.StepTime *= float64(now.Batch) / float64(w.Batch)
		job := now.Job(few, share) // the environment is that of the nodes that were measured
		job.Nodes, job.GlobalBatch = nodes, now.Batch*nodes
		r, err := simulate.Run(ctx, job, policy)
		switch {
		case err != nil:
			return Property{}, err
		case !r.Supported && i == 0:
			return Property{Value: "cannot"}, nil
		case !r.Supported:
			return Property{Known: true, Value: "cannot"}, nil
		}
		last[i] = r.Epochs[triedEpochs-1]
		left[i] = r.EpochsSource[triedEpochs-1] / sum(few)
	}
	return gains(last, left), nil
}

// gains returns the property of scaling with nodes: what the last epoch takes, and the share of it
// that leaves the source, on the nodes and on moreNodes times as many.
func gains(last, left [2]float64) Property {
	if last[1] <= 0 {
		return Property{Value: "no time"}
	}
	gain := last[0] / last[1]
	times := fmt.Sprintf("%.1fx", gain)
	if gain > 99 {
		times = ">99x"
	}
	return Property{
		Known: true, Holds: gain >= leastGain && (left[1] <= left[0]/2 || left[1] < littleLeft),
		Value: fmt.Sprintf("%s, %.0f %%", times, 100*left[1]),
	}
}

func (w *Work) independent(policy plan.Policy, sizes []float64) (Property, error) {
	able, used := 0, 0
	for _, c := range [][2]float64{{0, 0}, {0.25, 0}, {0, 0.5}, {0.25, 0.5}} {
		now := w.with(c[0], c[1], sizes)
		now.Epochs, now.Batch = 2, now.fitting(len(sizes), w.Nodes)
		in, err := simulate.Input(now.Job(sizes, 1))
		if err != nil {
			return Property{}, err
		}
		p, err := planned(policy, in)
		if no := (*plan.Unsupported)(nil); errors.As(err, &no) {
			continue
		} else if err != nil {
			return Property{}, err
		}
		able++
		if c[0] > 0 && c[1] > 0 {
			used = classesUsed(p)
		}
	}
	return Property{
		Known: true, Holds: able == 4 && used == 2, Value: fmt.Sprintf("%d/4, %d/2", able, used),
	}, nil
}

// classesUsed returns how many classes hold a sample on some node.
func classesUsed(p *plan.Plan) int {
	used := map[int]bool{}
	for _, n := range p.Nodes {
		for j, ids := range n.Classes {
			if len(ids) > 0 {
				used[j] = true
			}
		}
	}
	return len(used)
}
