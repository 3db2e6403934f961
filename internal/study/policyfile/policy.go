package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// Options are how nodes follow the table. The zero value is how nodes fill their classes under the
// thesis's policy: each reads what its classes hold from the source, in the given order, while it
// trains.
type Options struct {
	// ReadOnce means that only a sample's owner reads it from the source, as under cooperative: other
	// nodes ask it. The owner is the node that has the sample in its fastest class, the one with the
	// lowest number if there are several.
	ReadOnce bool
	Preload  bool // classes are filled before training starts
}

// Policy is a table as a policy.
type Policy struct {
	table   *Table
	name    string
	classes []string // names, the staging buffer's first
	line    plan.Line
	options Options
}

// New returns the table as a policy with that name, for storage classes with these names, the
// staging buffer's first.
func (t *Table) New(name string, classes []string, line plan.Line, options Options) *Policy {
	return &Policy{t, name, classes, line, options}
}

// Name returns the policy's name.
func (p *Policy) Name() string { return p.name }

// Copies returns the number of copies that the table has.
func (p *Policy) Copies() int { return len(p.table.rows) }

// About describes the policy.
func (p *Policy) About() plan.About {
	return plan.About{
		Does: "places samples as a table says", Stages: true, Copies: plan.OnEveryNode, Line: p.line,
	}
}

// Check returns what is wrong with the table for a machine and a dataset, of the sizes in bytes: of
// type Faults, or nil. capacity has the bytes of each class from 1, the same on every node.
func (p *Policy) Check(nodes, samples int, size func(k int) int64, capacity []int64) error {
	_, err := p.place(nodes, samples, size, func(int) []int64 { return capacity })
	return err
}

// Plan returns the table as a plan. What the table has and the input lacks is Unsupported.
func (p *Policy) Plan(in plan.Input) (*plan.Plan, error) {
	if _, _, err := in.Check(); err != nil {
		return nil, err
	}
	nodes, err := p.place(len(in.Nodes), in.Stream.Spec().Samples, in.Size,
		func(n int) []int64 { return in.Nodes[n].Capacity })
	if wrong := (Faults)(nil); errors.As(err, &wrong) {
		reason := wrong[0].Error()
		if len(wrong) > 1 {
			reason += fmt.Sprintf(" (and %d more)", len(wrong)-1)
		}
		return nil, &plan.Unsupported{Policy: p.name, Reason: reason}
	}
	return &plan.Plan{
		Policy: p.name, Prefetch: true, Remote: true, ReadOnce: p.options.ReadOnce,
		Preload: p.options.Preload, Nodes: nodes,
		Owner: owners(nodes, in.Stream.Spec().Samples),
	}, in.Ended()
}

// owners returns, for each sample, the node that has it in its fastest class.
func owners(nodes []plan.NodePlan, samples int) []int32 {
	owner, class := make([]int32, samples), make([]int, samples)
	for k := range owner {
		owner[k] = -1
	}
	for n := range nodes {
		for j, ids := range nodes[n].Classes {
			for _, k := range ids {
				if owner[k] < 0 || j < class[k] {
					owner[k], class[k] = int32(n), j
				}
			}
		}
	}
	return owner
}

// place returns what each node holds in each class, in the order of filling; rows with the same
// order keep that of the file. Its error is of type Faults.
func (p *Policy) place(nodes, samples int, size func(k int) int64, capacity func(n int) []int64,
) ([]plan.NodePlan, error) {
	plans := make([]plan.NodePlan, nodes)
	for n := range plans {
		plans[n].Classes = make([][]int32, len(capacity(n)))
	}
	class, faults := p.classOf()
	if faults != nil {
		return nil, faults
	}
	rows := slices.Clone(p.table.rows)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.order, b.order) })
	for _, r := range rows {
		if at := p.outside(r, nodes, samples); at != nil {
			if faults = append(faults, at...); len(faults) >= mostFaults {
				break
			}
			continue
		}
		ids := &plans[r.node].Classes[class[r.class]-1]
		*ids = append(*ids, r.sample)
	}
	if faults == nil {
		faults = p.twice(rows, nodes, samples)
	}
	if faults == nil {
		faults = p.over(plans, size, capacity)
	}
	if faults != nil {
		slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
		return nil, faults
	}
	return plans, nil
}

// outside returns what of a row is not on the machine or in the dataset.
func (p *Policy) outside(r row, nodes, samples int) (faults []Fault) {
	if int(r.sample) >= samples {
		faults = append(faults, Fault{
			Line: int(r.line), Column: "sample", Value: strconv.Itoa(int(r.sample)),
			Wrong:   "there is no such sample in the dataset",
			Allowed: numbersTo(samples - 1),
		})
	}
	if int(r.node) >= nodes {
		faults = append(faults, Fault{
			Line: int(r.line), Column: "node", Value: strconv.Itoa(int(r.node)),
			Wrong:   "there is no such node",
			Allowed: numbersTo(nodes - 1),
		})
	}
	return faults
}

// numbersTo returns which numbers there are.
func numbersTo(last int) string {
	if last == 0 {
		return "0"
	}
	return fmt.Sprintf("0 to %d", last)
}

// classOf returns the number of each of the table's classes, which it has by number or name.
func (p *Policy) classOf() (number []int, faults Faults) {
	allowed := make([]string, 0, len(p.classes))
	for j := 1; j < len(p.classes); j++ {
		if name := p.classes[j]; name != fmt.Sprintf("class %d", j) {
			allowed = append(allowed, fmt.Sprintf("%d (%s)", j, human.Name(name)))
		} else {
			allowed = append(allowed, strconv.Itoa(j))
		}
	}
	for i, text := range p.table.classes {
		j, err := strconv.Atoi(text)
		if err != nil {
			j = slices.Index(p.classes, text)
		}
		if number = append(number, j); j >= 1 && j < len(p.classes) {
			continue
		}
		wrong := "there is no such storage class"
		if j == 0 {
			wrong = "the staging buffer is not filled by a plan"
		}
		first := slices.IndexFunc(p.table.rows, func(r row) bool { return int(r.class) == i })
		faults = append(faults, Fault{
			Line: int(p.table.rows[first].line), Column: "class", Value: text, Wrong: wrong,
			Allowed: human.List(allowed),
		})
	}
	return number, faults
}

// twice returns the rows that give a node a sample that another row, an earlier one of the file,
// has given it.
func (p *Policy) twice(rows []row, nodes, samples int) (faults Faults) {
	byNode := make([][]row, nodes)
	for _, r := range rows {
		byNode[r.node] = append(byNode[r.node], r)
	}
	line := make([]int32, samples)
	for n, rows := range byNode {
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.line, b.line) })
		for _, r := range rows {
			if first := line[r.sample]; first > 0 && len(faults) < mostFaults {
				faults = append(faults, Fault{
					Line: int(r.line), Column: "sample", Value: strconv.Itoa(int(r.sample)),
					Wrong:   fmt.Sprintf("node %d has it already, by line %d", n, first),
					Allowed: "each sample once for each node",
				})
			}
			line[r.sample] = r.line
		}
		for _, r := range rows {
			line[r.sample] = 0
		}
	}
	return faults
}

// over returns the classes that get more than they hold.
func (p *Policy) over(plans []plan.NodePlan, size func(k int) int64, capacity func(n int) []int64,
) (faults Faults) {
	for n := range plans {
		for j, ids := range plans[n].Classes {
			bytes := int64(0)
			for _, k := range ids {
				bytes += size(int(k))
			}
			if room := capacity(n)[j]; bytes > room && len(faults) < mostFaults {
				faults = append(faults, Fault{
					Line: p.firstLine(n, ids[0]),
					Wrong: fmt.Sprintf("class %d of node %d gets %d samples of %d bytes (%s), and holds "+
						"%d bytes (%s)", j+1, n, len(ids), bytes, human.Bytes(float64(bytes)/1e6), room,
						human.Bytes(float64(room)/1e6)),
					Allowed: "as much as the class holds",
				})
			}
		}
	}
	return faults
}

// firstLine returns the line that gives the node the sample.
func (p *Policy) firstLine(node int, sample int32) int {
	at := slices.IndexFunc(p.table.rows, func(r row) bool {
		return int(r.node) == node && r.sample == sample
	})
	return int(p.table.rows[at].line)
}
