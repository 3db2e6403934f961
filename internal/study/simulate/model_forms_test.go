package simulate

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// TestFormsOfOtherNodes: two nodes hold a sample each, and need the other one in epoch 1. Reads
// take 0.1 s of the class, and 0.1 s of the link, in which a form takes 1.12 times that; writing to
// the staging buffer takes 0.1 s, of a form a half. The buffer has capacity for a sample, and
// training takes 1 ms.
func TestFormsOfOtherNodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		forms  model.Forms
		room   float64
		epochs []float64
	}{
		{"no forms", model.Forms{}, 9, []float64{0.201, 0.2}},
		{"sent", model.Forms{Time: 0.5, Size: 1.12, Sent: true}, 9, []float64{0.151, 0.162}},
		{"files sent", model.Forms{Time: 0.5, Size: 1.12}, 9, []float64{0.151, 0.2}},
		{
			"a half of them",
			model.Forms{Time: 0.5, Size: 1.12, Sent: true},
			1.06,
			[]float64{0.176, 0.181},
		},
		{"pixels", model.Forms{Time: 0.5, Size: 4}, 9, []float64{0.151, 0.2}},
		{"a third of the pixels", model.Forms{Time: 0.5, Size: 4}, 2, []float64{0.201 - 0.05/3, 0.2}},
		{"no room", model.Forms{Time: 0.5, Size: 1.12, Sent: true}, 1, []float64{0.201, 0.2}},
	} {
		job := tinyJob()
		job.Nodes, job.Forms = 2, c.forms
		job.Sizes = []float64{1, 1}
		job.Order = [][]int32{{0, 1}, {1, 0}}
		job.Env.Compute = 1000
		job.Env.Classes[0].Capacity, job.Env.Classes[1].Capacity = 0.5, c.room
		r := runModel(t, job, "lbann_preloading")
		for e, want := range c.epochs {
			if math.Abs(r.Epochs[e]-want) > 1e-6 {
				t.Errorf("%s: epoch %d takes %v s, want %v", c.name, e, r.Epochs[e], want)
			}
		}
		if r.Reads.Remote != (Amount{2, 2}) {
			t.Errorf("%s: %+v come from other nodes, want 2 MB of 2 samples", c.name, r.Reads.Remote)
		}
	}
}

// TestFormOf: what a node gets of a copy.
func TestFormOf(t *testing.T) {
	for _, c := range []struct {
		name  string
		copy  sampleCopy
		sent  bool
		keeps bool
		want  float64
	}{
		{"its own", sampleCopy{node: 0, class: 1}, false, false, 0.25},
		{"its own, of another class", sampleCopy{node: 0, class: 2}, true, false, 0},
		{"another node's", sampleCopy{node: 1, class: 1}, true, false, 0.75},
		{"another node's, that sends files", sampleCopy{node: 1, class: 1}, false, false, 0},
		{"what it is to keep", sampleCopy{node: 1, class: 1}, true, true, 0},
	} {
		m := &simulation{
			job:    &Job{Forms: model.Forms{Time: 0.5, Size: 1.2, Sent: c.sent}},
			formed: []float64{0.25, 0.75},
		}
		if got := m.formOf(&c.copy, 0, c.keeps); got != c.want {
			t.Errorf("%s: %v of it is a form, want %v", c.name, got, c.want)
		}
	}
}

// formsOf draws forms: of JPEGs, which are sent, or of others.
func formsOf(seed uint64) model.Forms {
	r := rand.New(rand.NewPCG(seed, 2))
	f := model.Forms{Time: 0.1 + 0.9*r.Float64(), Size: 1 + r.Float64()/2, Sent: true}
	if r.IntN(2) == 0 {
		f.Size, f.Sent = 1+5*r.Float64(), false
	}
	return f
}

// TestFormsThatAreSamples: forms that take the size and the time of samples change nothing.
func TestFormsThatAreSamples(t *testing.T) {
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		for _, p := range policies.Names(policies.All()) {
			job.Forms = model.Forms{}
			want := runModel(t, job, p)
			job.Forms = model.Forms{Time: 1, Size: 1, Sent: seed%2 == 0}
			if got := runModel(t, job, p); !reflect.DeepEqual(got, want) {
				t.Errorf("seed %d, %s: %+v, without forms %+v", seed, p, got, want)
			}
		}
	}
}

// nearly is by how much more a run may take with forms: a read that begins earlier may come before
// one that is needed sooner, and nodes wait for each other in each batch.
const nearly = 1.02

// fittingJob is a random job whose nodes hold all samples together in memory, and no more.
func fittingJob(seed uint64) *Job {
	job := randomJob(seed)
	total := 0.0
	for _, s := range job.Sizes {
		total += s
	}
	if len(job.Env.Classes) == 1 {
		job.Env.Classes = append(job.Env.Classes, job.Env.Classes[0])
	}
	job.Env.Classes = job.Env.Classes[:2]
	job.Env.Classes[1].Capacity = total/float64(job.Nodes) + 2
	job.DropLast, job.Forms = false, formsOf(seed)
	job.Env.Preprocess /= 4
	return job
}

// TestFormsAreNotSlower: training is not slower with forms than without, and the more memory there
// is for forms, the faster it is. All samples are in memory before, so that what forms change is
// not also which samples are there in time. A link alone takes longer for forms.
func TestFormsAreNotSlower(t *testing.T) {
	faster, limited := 0, 0
	for seed := range uint64(scenarios) {
		job := fittingJob(seed)
		held := job.Env.Classes[1].Capacity
		for _, link := range []float64{job.Env.PeerBandwidth, 1e6} {
			job.Env.PeerBandwidth = link
			trains := func(forms model.Forms, times float64) float64 {
				job.Forms, job.Env.Classes[1].Capacity = forms, held*times
				r := runModel(t, job, "lbann_preloading")
				return r.Runtime - r.BeforeTraining
			}
			forms := job.Forms
			without := trains(model.Forms{}, 1)
			most, before := without, inf
			longer := forms.Sent && job.Nodes > 1 && link < 1e6
			if longer {
				most *= forms.Size
			}
			for _, times := range []float64{1, 1.1, 1.5, 3, 6} {
				with := trains(forms, times)
				if with > most*nearly || !longer && with > before*nearly {
					t.Errorf("seed %d, %v times the memory: %v s with forms, %v with less memory, %v "+
						"without: %s", seed, times, with, before, without, describe(job))
				}
				before = with
			}
			if before < 0.99*without {
				faster++
			} else if before > 1.01*without {
				limited++
			}
			job.Forms = forms
		}
	}
	t.Logf("%d of %d jobs are faster with forms, and %d slower by their links", faster, 2*scenarios,
		limited)
	if faster < scenarios/2 {
		t.Errorf("only %d of %d jobs are faster with forms", faster, 2*scenarios)
	}
}

// TestFormsInLaterEpochs: on one node, epochs after the first are as fast as without forms or
// faster, under policies that fill memory while training.
func TestFormsInLaterEpochs(t *testing.T) {
	later := func(job *Job, policy string) (s float64) {
		for _, e := range runModel(t, job, policy).Epochs[2:] {
			s += e
		}
		return s
	}
	faster := 0
	for seed := range uint64(scenarios) {
		job := fittingJob(seed)
		job.Env.Classes[1].Capacity *= 1.5 * float64(job.Nodes)
		job.Nodes, job.Epochs = 1, 5
		for _, p := range []string{"cooperative", "minio", "frequency"} {
			forms := job.Forms
			with := later(job, p)
			job.Forms = model.Forms{}
			without := later(job, p)
			job.Forms = forms
			if with > without*nearly {
				t.Errorf("seed %d, %s: %v s with forms, %v without: %s", seed, p, with, without,
					describe(job))
			}
			if with < 0.99*without {
				faster++
			}
		}
	}
	if faster < scenarios/2 {
		t.Errorf("only %d of %d jobs are faster with forms", faster, 3*scenarios)
	}
}

func TestImpossibleForms(t *testing.T) {
	for _, f := range []model.Forms{
		{Time: 1.1, Size: 1},
		{Time: -1, Size: 1},
		{Time: 0.5},
		{Time: 0.5, Size: 0.9},
		{Size: 2},
		{Time: 0.5, Size: inf},
		{Time: math.NaN(), Size: 1},
		{Sent: true},
	} {
		job := tinyJob()
		job.Forms = f
		_, err := RunModel(context.Background(), job, "staging")
		_, bound := TimeBound(context.Background(), job)
		for _, err := range []error{err, bound} {
			if err == nil || !strings.Contains(err.Error(), "forms take") {
				t.Errorf("%+v: error %v", f, err)
			}
		}
	}
}
