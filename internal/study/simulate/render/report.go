package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
	"github.com/hdmlp/hdmlp/internal/study/simulate/scaling"
)

// Report holds the results of one simulation command.
type Report struct {
	Title    string   // of the scenario
	Scenario string   // its file
	Profile  string   //
	Seed     uint64   //
	Facts    []Fact   // descriptions of the machine, the dataset and the job
	Classes  []string // names of the storage classes, the staging buffer first
	Sweep    []string // the keys that were varied: none, one or two
	Scaling  bool     // the only key is the number of nodes: how runtimes scale is shown as well
	// Limit is where regular loading stops scaling by the analytical model, if Points have a
	// Model.
	Limit scaling.Limit
	// one for each combination of values, the last key's changing fastest; one in all without Sweep
	Points      []Point
	Interrupted bool // some simulations were not run
	// Lines has the lines in plots of the policies by name; what it lacks is drawn as the policy of
	// that name says.
	Lines map[string]plan.Line
}

// Fact is one line of the description of what was simulated.
type Fact struct{ Name, Value string }

// Point holds the results of the policies for one machine, dataset and job.
type Point struct {
	Values []string // of the keys of Sweep
	Bound  float64  // lower bound of the MB read from the source
	// lower bound of the runtime of policies that keep the order, seconds; 0: not computed
	TimeBound float64
	// in the order in which they were requested, without those that were not simulated
	Policies []Policy
	Batches  bool // the JSON has the times of batches
	// Model is what the analytical model predicts; nil: Scaling is not set, or the model does not
	// cover the job.
	Model *scaling.Prediction
}

// Policy is the result of one policy.
type Policy struct {
	Name string
	*simulate.Result
}

// Find returns the policy of that name, or nil if it was not simulated.
func (p *Point) Find(name string) *Policy {
	for i := range p.Policies {
		if p.Policies[i].Name == name {
			return &p.Policies[i]
		}
	}
	return nil
}

// Names returns the names of the policies of all points, in the order of their first appearance.
func (r *Report) Names() []string {
	var names []string
	seen := map[string]bool{}
	for i := range r.Points {
		for _, p := range r.Points[i].Policies {
			if !seen[p.Name] {
				names, seen[p.Name] = append(names, p.Name), true
			}
		}
	}
	return names
}

// Tier is a tier that samples are read from.
type Tier struct {
	Key  string // "source", "remote", or the number of a local class
	Name string
}

// Tiers returns the tiers of a report: the source, other nodes, the local classes from 1, and the
// staging buffer, class 0, if a policy reads from it.
func (r *Report) Tiers() []Tier {
	all := []Tier{{"source", "source"}, {"remote", "other nodes"}}
	for j := 1; j < len(r.Classes); j++ {
		all = append(all, Tier{strconv.Itoa(j), "own " + human.Name(r.Classes[j])})
	}
	for i := range r.Points {
		for _, p := range r.Points[i].Policies {
			if p.Reads.Local["0"].Samples > 0 {
				return append(all, Tier{"0", "staging buffer"})
			}
		}
	}
	return all
}

// ReadTiers returns the tiers that some policy reads from at the point, without the staging
// buffer.
func (r *Report) ReadTiers(p *Point) []Tier {
	return slices.DeleteFunc(r.Tiers(), func(where Tier) bool {
		return where.Key == "0" ||
			!slices.ContainsFunc(p.Policies, func(policy Policy) bool {
				return policy.From(where.Key).Samples > 0
			})
	})
}

// From returns what the policy read from the tier with that key.
func (p *Policy) From(where string) simulate.Amount {
	switch where {
	case "source":
		return p.Reads.Source
	case "remote":
		return p.Reads.Remote
	}
	return p.Reads.Local[where]
}

// ShortKey returns a key as headings show it: without its table, and with blanks between words.
func ShortKey(key string) string {
	key = strings.TrimPrefix(key, "environment.")
	key = strings.TrimPrefix(key, "storage_class.")
	return strings.NewReplacer("_", " ", ".",
		" ").Replace(strings.TrimPrefix(strings.TrimPrefix(key, "job."), "dataset."))
}

// JSON writes the report as one object. Without a sweep it has the policies by name, in the order
// in which they were requested; with a sweep it has points, each with its values and its policies.
func (r *Report) JSON(w io.Writer) error {
	var b bytes.Buffer
	object(&b, func(field func(string, any)) {
		field("profile", r.Profile)
		field("seed", r.Seed)
		if r.Interrupted {
			field("interrupted", true)
		}
		if len(r.Sweep) == 0 {
			if len(r.Points) > 0 {
				field("lower_bound_source_mb", r.Points[0].Bound)
				if bound := r.Points[0].TimeBound; bound > 0 {
					field("time_bound_s", bound)
				}
				field("policies", &r.Points[0])
			}
			return
		}
		field("sweep", r.Sweep)
		if r.modelled() {
			if r.Limit.Bounded {
				field("regular_loading_scales_to_nodes", r.Limit.Nodes)
			} else {
				field("regular_loading_scales_to_nodes", nil)
			}
		}
		speedups := r.speedups()
		points := make([]json.RawMessage, len(r.Points))
		for i := range r.Points {
			p := &r.Points[i]
			var one bytes.Buffer
			object(&one, func(field func(string, any)) {
				var set bytes.Buffer
				object(&set, func(field func(string, any)) {
					for k, key := range r.Sweep {
						field(key, p.Values[k])
					}
				})
				field("set", json.RawMessage(set.Bytes()))
				field("lower_bound_source_mb", p.Bound)
				if p.TimeBound > 0 {
					field("time_bound_s", p.TimeBound)
				}
				field("policies", pointJSON{p, speedups[i]})
				if p.Model != nil {
					field("analytical_model", modelJSON(p.Model, speedups[i]))
				}
			})
			points[i] = one.Bytes()
		}
		field("points", points)
	})
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, b.Bytes(), "", "  "); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	pretty.WriteByte('\n')
	_, err := io.WriteString(w, human.JSON(pretty.String()))
	return err
}

// MarshalJSON returns the point's policies by name, in their order, without the times of batches
// unless they are asked for.
func (p *Point) MarshalJSON() ([]byte, error) { return pointJSON{p, nil}.MarshalJSON() }

// pointJSON is a point with the speed-ups there, by name; nil: they are not shown.
type pointJSON struct {
	*Point
	speedups map[string]Speedup
}

func (p pointJSON) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	object(&b, func(field func(string, any)) {
		for _, policy := range p.Policies {
			result := *policy.Result
			if !p.Batches {
				result.Batches, result.BatchesSource = nil, nil
			}
			if result.Reads.Local == nil {
				result.Reads.Local = map[string]simulate.Amount{}
			}
			if result.Epochs == nil {
				result.Epochs = []float64{}
			}
			if s, ok := p.speedups[policy.Name]; ok {
				field(policy.Name, struct {
					*simulate.Result
					Speedup
				}{&result, s})
				continue
			}
			field(policy.Name, &result)
		}
	})
	return b.Bytes(), nil
}

// object writes a JSON object whose fields keep their order.
func object(b *bytes.Buffer, fields func(field func(name string, value any))) {
	b.WriteByte('{')
	first := true
	fields(func(name string, value any) {
		if !first {
			b.WriteByte(',')
		}
		first = false
		key, _ := json.Marshal(name) // never fails for a string
		b.Write(key)
		b.WriteByte(':')
		text, err := json.Marshal(value)
		if err != nil { // NaN or infinite: show that the result is wrong
			text, _ = json.Marshal(err.Error())
		}
		b.Write(text)
	})
	b.WriteByte('}')
}
