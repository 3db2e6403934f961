package remedy

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
)

// drawRun returns a job on a machine whose numbers, and what is known of them, can be anything.
func drawRun(t *rapid.T) *Run {
	log := func(name string, low, high float64) float64 {
		return math.Exp(rapid.Float64Range(math.Log(low), math.Log(high)).Draw(t, name))
	}
	origin := rapid.SampledFrom([]model.Origin{
		model.Given, model.Measured, model.Probed, model.Guessed, "",
	})
	known := func(name string) model.Known {
		c := model.Coefficients{
			Latency: log(name+" latency", 1e-7, 0.1), PerMB: log(name+" per MB", 1e-4, 1),
		}
		c.Queued = c.PerMB * rapid.Float64Range(0, 2).Draw(t, name+" queued")
		return model.Known{Coefficients: c, Origin: origin.Draw(t, name+" origin")}
	}
	value := func(name string) model.Value {
		if rapid.IntRange(0, 4).Draw(t, name+" unknown") == 0 {
			return model.Value{}
		}
		return model.Value{Number: log(name, 1, 1e4), Origin: origin.Draw(t, name+" origin")}
	}
	data := rapid.Int64Range(1e6, 1e12).Draw(t, "data")
	r := &Run{
		Known: model.Node{
			Compute: value("compute"), Preprocess: value("preprocess"), Network: known("network"),
			Source: known("source"), Streams: rapid.IntRange(1, 64).Draw(t, "streams"),
		},
		Nodes: rapid.IntRange(1, 8).Draw(t, "nodes"), Data: data,
		Sample:       log("sample", 1e3, 1e6),
		Whole:        rapid.Bool().Draw(t, "whole"),
		Transformers: rapid.IntRange(0, 32).Draw(t, "threads"),
		Processors:   rapid.SampledFrom([]int{0, 1, 8, 64}).Draw(t, "processors"),
		Caches:       rapid.IntRange(0, 4).Draw(t, "caches") > 0,
		Once:         rapid.IntRange(0, 9).Draw(t, "once") == 0,
	}
	r.Epoch = max(data/int64(r.Nodes), 1)
	if r.Whole {
		r.Epoch = data
	}
	for _, c := range []model.NodeClass{{Name: "memory"}, {Name: "file", Path: "/d"}} {
		if rapid.Bool().Draw(t, c.Name) {
			c.Read, c.Write = known(c.Name), known(c.Name)
			r.Known.Classes = append(r.Known.Classes, c)
			r.Capacity = append(r.Capacity,
				int64(float64(data)*rapid.Float64Range(0, 1.2).Draw(t, c.Name+" share")))
		}
	}
	for _, resource := range []string{Compute, Preprocessing, Source, Network, "memory", "file"} {
		if rapid.Bool().Draw(t, resource+" did") {
			r.Did = append(r.Did, Did{
				resource, log(resource+" rate", 0.1, 1e4), rapid.Bool().Draw(t, resource+" saturated"),
			})
		}
	}
	return r
}

// TestRemediesHelp: of any job on any machine, a remedy makes epochs shorter by at least 1 %, as
// much as Ask predicts for the same change, and a smaller amount of it saves less.
func TestRemediesHelp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		now, remedies := Diagnose(r)
		if now.Resource == Compute && len(remedies) > 0 {
			t.Fatalf("computation limits, and there are remedies: %+v", remedies)
		}
		last := -1
		for _, m := range remedies {
			a := Ask(r, []Change{m.Change})
			if a.Then.Epoch != m.After || a.Now.Epoch != m.Before || a.Then.Resource != m.Resource {
				t.Fatalf("%+v, but asked %+v", m, a.Then)
			}
			if !(m.After <= m.Before*(1-worth)) {
				t.Fatalf("%s: %v s after %v s", m.Text, m.After, m.Before)
			}
			if m.Key != Nodes {
				c := m.Change
				if c.Speed > 0 {
					c.Speed--
				} else {
					c.Amount--
				}
				if less := Ask(r, []Change{c}); c.Amount > 0 && c.Speed >= 0 &&
					!(less.Then.Epoch > m.After) && (m.Change.Speed == 0 || c.Speed > 0) {
					t.Fatalf("%s: as fast with %+v: %v s, %v s", m.Text, c, less.Then.Epoch, m.After)
				}
			}
			for at, k := range keys {
				if k == m.Key {
					if at <= last {
						t.Fatalf("%s is listed too late", k)
					}
					last = at
				}
			}
		}
	})
}

// TestMoreIsNotSlower: with more of anything, except nodes, an epoch is predicted to take at most
// as long.
func TestMoreIsNotSlower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		m := newModel(r)
		key := rapid.SampledFrom(keys).Draw(t, "key")
		if key == Nodes {
			return
		}
		now, _ := m.now(key)
		least, factor := 1.0, rapid.Float64Range(1, 20).Draw(t, "factor")
		if key == Memory || key == Cache {
			least = float64(r.Data) / 10
		}
		more := Change{Key: key, Amount: math.Ceil(max(now, least) * factor)}
		if a := Ask(r, []Change{more}); a.Then.Epoch > a.Now.Epoch*(1+1e-9) {
			t.Fatalf("%s of %v instead of %v: %v s instead of %v s", key, more.Amount, now,
				a.Then.Epoch, a.Now.Epoch)
		}
	})
}

// today returns the changes that change nothing: the present amount of everything.
func today(r *Run) (changes []Change) {
	m := newModel(r)
	for _, k := range keys {
		amount, _ := m.now(k)
		changes = append(changes, Change{Key: k, Amount: amount})
	}
	return changes
}

// TestTodaysAmountsChangeNothing: what-if with the present amount of everything, or of one thing,
// predicts what is predicted now.
func TestTodaysAmountsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		same := today(r)
		for i := range same {
			for _, changes := range [][]Change{same, same[i : i+1]} {
				a := Ask(r, changes)
				if d := a.Then.Epoch/a.Now.Epoch - 1; math.Abs(d) > 1e-9 ||
					math.Abs(float64(a.Then.Source-a.Now.Source)) > 1e-9*float64(r.Data)+2 ||
					math.Abs(a.Then.Stall-a.Now.Stall) > 1e-9*a.Now.Epoch {
					t.Fatalf("%+v:\n%+v\n%+v", changes, a.Now, a.Then)
				}
			}
		}
	})
}

// TestBytesAddUp: every byte of an epoch comes from one tier, and no resource is busy for longer
// than the epoch.
func TestBytesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		m := newModel(r)
		f := m.env.Epoch(&m.later)
		sum := f.Source.MB // what classes give other nodes, these give back
		for _, c := range f.Classes {
			sum += c.MB
			if c.Seconds > f.Seconds*(1+1e-9) {
				t.Fatalf("a class is busy for %v of %v s", c.Seconds, f.Seconds)
			}
		}
		if math.Abs(sum-m.later.Node) > 1e-9*m.later.Node {
			t.Fatalf("%v MB of %v", sum, m.later.Node)
		}
		for _, l := range []model.Load{f.Compute, f.Preprocess, f.Source, f.Network} {
			if l.Seconds > f.Seconds*(1+1e-9) || l.Seconds < 0 {
				t.Fatalf("%+v of %v s", l, f.Seconds)
			}
		}
	})
}

// TestMergeOfNodes: reports of nodes travel as JSON; a node that reports nonsense, or nothing, is
// not merged.
func TestMergeOfNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back Run
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		all, ok := Merge([]*Run{r, &back, r})
		if !ok || all.Validate() != nil {
			t.Fatalf("%v: %+v", all.Validate(), all)
		}
		a, b := Ask(r, nil).Now, Ask(&all, nil).Now
		if math.Abs(a.Epoch/b.Epoch-1) > 1e-6 || a.Resource != b.Resource {
			t.Fatal(cmp.Diff(a, b))
		}
		for _, broken := range []func(*Run){
			func(r *Run) { r.Nodes = 0 },
			func(r *Run) { r.Data = -1 },
			func(r *Run) { r.Did = []Did{{Source, -1, true}} },
			func(r *Run) { r.Sample = math.Inf(1) },
			func(r *Run) { r.Transformers = 1 << 30 },
			func(r *Run) { r.Capacity = []int64{1, 2, 3} },
			func(r *Run) { r.Known.Source.PerMB = math.NaN() },
		} {
			bad := *r
			broken(&bad)
			if _, ok := Merge([]*Run{r, &bad}); ok {
				t.Fatalf("merged %+v", bad)
			}
		}
		if _, ok := Merge([]*Run{r, nil}); ok {
			t.Fatal("merged nothing")
		}
	})
}
