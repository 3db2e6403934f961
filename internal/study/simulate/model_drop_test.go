package simulate

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// dropped runs a job under frequency with cleanup_read, and returns the simulation as it is at the
// end.
func dropped(t *testing.T, job *Job, policy string) *simulation {
	t.Helper()
	p, err := policies.ForSimulator(policy)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := streamOf(job, 0)
	if err != nil {
		t.Fatal(err)
	}
	in := input(job, stream)
	made, err := p.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	how, err := simulated.RunOf(p, in, made)
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(job, stream, made, how)
	if err := m.addJobs(p, stream); err != nil {
		t.Fatal(err)
	}
	m.drops = newDrops(t.Context(), m, m.further)
	if err := m.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.finish(&in)
	return m
}

// TestDroppedCopiesMakeRoom: what classes hold at the end and their room are their capacity, which
// is exceeded nowhere; no read is left; and a copy whose node reads it no more is gone.
func TestDroppedCopiesMakeRoom(t *testing.T) {
	refilled := 0
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		m := dropped(t, job, "frequency:cleanup_read=true")
		held := make([][]float64, job.Nodes)
		for i := range held {
			held[i] = make([]float64, m.classes)
		}
		for k := range m.sizes {
			for c := m.copies.first[k]; c < m.copies.first[k+1]; c++ {
				cp := &m.copies.list[c]
				if m.drops.left[c] != 0 {
					t.Fatalf("seed %d: node %d has %d reads of sample %d left", seed, cp.node,
						m.drops.left[c], k)
				}
				if cp.state == gone {
					continue
				}
				held[cp.node][cp.class] += m.sizes[k]
			}
		}
		for i := range m.drops.nodes {
			n := &m.drops.nodes[i]
			if len(n.next) < len(m.further[i]) {
				refilled++
			}
			for j := 1; j < m.classes; j++ {
				if math.Abs(held[i][j]+n.room[j]-job.Env.Classes[j].Capacity) > 1e-6 || n.room[j] < -1e-6 {
					t.Errorf("seed %d: class %d of node %d holds %v MB and has room for %v of %v", seed, j,
						i, held[i][j], n.room[j], job.Env.Classes[j].Capacity)
				}
			}
		}
	}
	if refilled < scenarios/4 {
		t.Errorf("space was filled again on %d nodes of %d jobs: too few to say anything", refilled,
			scenarios)
	}
}

// TestOneNodeFillsAhead: on one node every sample is dropped in the last epoch, and what is read
// into the space is read there as well. Jobs may so be faster, as with a larger staging buffer, and
// hardly any is slower.
func TestOneNodeFillsAhead(t *testing.T) {
	faster := 0
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		job.Nodes = 1
		without := runModel(t, job, "frequency")
		with := runModel(t, job, "frequency:cleanup_read=true")
		if with.SourceTotal > without.SourceTotal*1.08 {
			t.Errorf("seed %d: %v MB leave the source, %v without cleanup_read", seed,
				with.SourceTotal, without.SourceTotal)
		}
		if with.Runtime > without.Runtime*1.05 {
			t.Errorf("seed %d: %v s, %v s without cleanup_read", seed, with.Runtime, without.Runtime)
		}
		if with.Runtime < without.Runtime*(1-1e-6) {
			faster++
		}
	}
	if faster < scenarios/8 {
		t.Errorf("%d of %d jobs are faster with cleanup_read", faster, scenarios)
	}
}

// TestDropsWaitForReads: with a staging buffer that holds all that a job reads, all reads are taken
// at the start, and a copy is nevertheless kept until the last of them is consumed.
func TestDropsWaitForReads(t *testing.T) {
	job := thesisJob(1000, 0.027, 10)
	without := runModel(t, job, "frequency")
	with := runModel(t, job, "frequency:cleanup_read=true")
	if with.SourceTotal > without.SourceTotal*1.05 || with.Runtime > without.Runtime*1.02 {
		t.Errorf("%v s and %v MB from the source, %v s and %v MB without cleanup_read", with.Runtime,
			with.SourceTotal, without.Runtime, without.SourceTotal)
	}
}

// TestDropsAreForOneJob: several jobs on the nodes read what the first would drop.
func TestDropsAreForOneJob(t *testing.T) {
	job := randomJob(1)
	job.Jobs = 2
	r := runModel(t, job, "frequency:cleanup_read=true")
	if r.Supported || !strings.Contains(r.Reason, "several jobs") {
		t.Errorf("%v, %q", r.Supported, r.Reason)
	}
	job.Share = true
	if r := runModel(t, job, "frequency:cleanup_read=true"); !r.Supported {
		t.Errorf("a group: %q", r.Reason)
	}
}

// TestOptionsOfFrequencyMatter: each of them changes many results, in both profiles.
func TestOptionsOfFrequencyMatter(t *testing.T) {
	for _, policy := range frequencyOptions {
		model, thesis := 0, 0
		for seed := range uint64(scenarios) {
			job := randomJob(seed)
			if runModel(t, job, "frequency").Runtime != runModel(t, job, policy).Runtime {
				model++
			}
			job = drawnJob(rand.New(rand.NewPCG(seed, 1)))
			if runRow(t, job, "frequency").Runtime != runRow(t, job, policy).Runtime {
				thesis++
			}
		}
		if model < scenarios/8 || thesis < scenarios/20 {
			t.Errorf("%s differs in %d and %d of %d jobs", policy, model, thesis, scenarios)
		}
	}
}
