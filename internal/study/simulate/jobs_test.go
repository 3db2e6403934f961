package simulate

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// jobsOf returns the job with so many of it on its nodes.
func jobsOf(job *Job, jobs int, share bool) *Job {
	j := *job
	j.Jobs, j.Share = jobs, share
	return &j
}

// TestJobs: jobs that are no group consume what each of them needs, every sample from one place,
// and preprocess each sample once per job; together they never take less time than the first one's
// lower bound.
func TestJobs(t *testing.T) {
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		jobs := 2 + int(seed%3)
		several := jobsOf(job, jobs, false)
		bound, err := TimeBound(t.Context(), several)
		if err != nil {
			t.Fatal(err)
		}
		var want Amount
		for k := range jobs {
			each := *job
			each.Seed += uint64(k)
			a := delivered(t, &each)
			want.Samples += a.Samples
			want.MB += a.MB
		}
		for _, p := range policies.Names(policies.All()) {
			r := runModel(t, several, p)
			if !r.Supported {
				continue
			}
			got := consumed(r)
			if got.Samples != want.Samples {
				t.Errorf("seed %d, %s, %d jobs: %d samples by tier, %d consumed", seed, p, jobs,
					got.Samples, want.Samples)
			}
			if p != "perfect" && r.Transformed.Samples != want.Samples {
				t.Errorf("seed %d, %s, %d jobs: %d samples transformed, %d consumed", seed, p, jobs,
					r.Transformed.Samples, want.Samples)
			}
			sum := r.BeforeTraining
			for _, e := range r.Epochs {
				sum += e
			}
			if len(r.Epochs) != job.Epochs || math.Abs(sum-r.Runtime) > 1e-9*r.Runtime {
				t.Errorf("seed %d, %s, %d jobs: %d epochs that take %v; runtime %v", seed, p, jobs,
					len(r.Epochs), sum, r.Runtime)
			}
			read := 0.0
			for _, mb := range r.EpochsSource {
				read += mb
			}
			if read > r.SourceTotal*(1+1e-9) {
				t.Errorf("seed %d, %s, %d jobs: %v MB left the source, and %v in the epochs", seed,
					p, jobs, r.SourceTotal, read)
			}
			if !keepsOrder(t, job, p) || p == "perfect" {
				continue
			}
			if r.Runtime < bound*(1-1e-9) {
				t.Errorf("seed %d, %s, %d jobs: %v s, the bound is %v s", seed, p, jobs, r.Runtime,
					bound)
			}
		}
	}
}

// TestJobsTakeTheirTime: several jobs on one node never end sooner than one alone. The page cache
// is an exception: what one job has just read is there for the others, and with memory for most of
// the dataset that spares more than another job costs. (On several nodes it holds in 99 of 100
// runs: a job may find on another node what it would wait for if it were the first to read it.)
func TestJobsTakeTheirTime(t *testing.T) {
	worst, ran := inf, 0
	for seed := range uint64(2 * scenarios) {
		job := randomJob(seed)
		job.Nodes = 1
		jobs := 2 + int(seed%3)
		for _, p := range policies.Names(policies.All()) {
			one, r := runModel(t, job, p), runModel(t, jobsOf(job, jobs, false), p)
			if strings.HasPrefix(p, "pagecache") || !r.Supported || !keepsOrder(t, job, p) {
				continue
			}
			ran++
			worst = min(worst, r.Runtime/one.Runtime)
			if r.Runtime < one.Runtime*(1-1e-9) {
				t.Errorf("seed %d, %s: %d jobs take %v s, one takes %v s: %s", seed, p, jobs,
					r.Runtime, one.Runtime, describe(job))
			}
		}
	}
	t.Logf("seeds 0 to %d, %d runs: several jobs take at least %.4f times as long as one",
		2*scenarios-1, ran, worst)
}

// TestGroups: a group is as fast as one job, reads as much from everywhere, and transforms each
// sample once.
func TestGroups(t *testing.T) {
	for seed := range uint64(scenarios) {
		job := randomJob(seed)
		for _, p := range policies.Names(policies.All()) {
			one, group := runModel(t, job, p), runModel(t, jobsOf(job, 5, true), p)
			if !reflect.DeepEqual(one, group) {
				t.Errorf("seed %d, %s: a group of 5 jobs\n%+v\none job\n%+v", seed, p, group, one)
			}
		}
	}
}

// boundJob is a job on one node that is limited by what makes its samples ready: 400 of 1 MB in
// memory, and p threads.
func boundJob(threads int) *Job {
	job := tinyJob()
	job.PerBatch = false
	job.Order = nil
	job.GlobalBatch = 4
	job.Env.Compute, job.Env.SourceThroughput = 1e6, model.Constant(1e5)
	job.Env.SourceBandwidth = 1e5
	job.Env.Classes[0].Threads = threads
	job.Env.Classes[1].Capacity, job.Env.Classes[1].Read = 1000, model.Constant(1e5)
	job.Sizes = nil
	for range 4000 {
		job.Sizes = append(job.Sizes, 1)
	}
	return job
}

// TestCores: preprocessing is as fast as there are threads, up to the physical cores; twice the
// threads on hyperthreads are 1.3 times as fast (CoorDL B.1), and more threads change nothing.
func TestCores(t *testing.T) {
	for _, c := range []struct{ threads, cores, hyperthreads, work int }{
		{1, 0, 0, 10},
		{24, 0, 0, 240},
		{1, 8, 16, 10},
		{2, 8, 16, 20},
		{4, 8, 16, 40},
		{8, 8, 16, 80},
		{12, 8, 16, 92},
		{16, 8, 16, 104},
		{17, 8, 16, 104},
		{64, 8, 16, 104},
		{16, 8, 0, 80},
		{16, 8, 8, 80},
		{32, 32, 64, 320},
		{64, 32, 64, 416},
	} {
		job := boundJob(c.threads)
		job.Env.Processors = model.Processors{Cores: c.cores, Hyperthreads: c.hyperthreads}
		r := runModel(t, job, "minio")
		want := 8000 / float64(c.work) // at 10 MB/s per core
		if math.Abs(r.Runtime/want-1) > 0.01 {
			t.Errorf("%d threads on %d cores, %d hyperthreads: %v s, want %v", c.threads, c.cores,
				c.hyperthreads, r.Runtime, want)
		}
	}
}

// TestCoresOfJobs: the threads of a node are divided among its jobs, also if there are more jobs
// than threads. A group has all of them.
func TestCoresOfJobs(t *testing.T) {
	one := runModel(t, boundJob(24), "minio").Runtime
	for _, jobs := range []int{1, 2, 3, 8, 24, 48} {
		r := runModel(t, jobsOf(boundJob(24), jobs, false), "minio").Runtime
		if want := float64(jobs) * one; math.Abs(r/want-1) > 0.02 {
			t.Errorf("%d jobs take %v s, want %v", jobs, r, want)
		}
		if jobs == 1 {
			continue
		}
		group := runModel(t, jobsOf(boundJob(24), jobs, true), "minio").Runtime
		if group != one {
			t.Errorf("a group of %d jobs takes %v s, one job %v", jobs, group, one)
		}
	}
}

// TestJobsShareTheSource: jobs that are limited by the source of their node take as many times as
// long; those of nodes that have a source each, which is what t(gamma) = gamma t(1) means, too.
func TestJobsShareTheSource(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		job := boundJob(24)
		job.Nodes = nodes
		job.Env.SourceThroughput = model.NewCurve(map[int]float64{1: 10, 2: 20})
		one := runModel(t, job, "staging").Runtime
		for _, jobs := range []int{2, 4} {
			r := runModel(t, jobsOf(job, jobs, false), "staging")
			if want := float64(jobs) * one; math.Abs(r.Runtime/want-1) > 0.02 {
				t.Errorf("%d nodes: %d jobs take %v s, want %v", nodes, jobs, r.Runtime, want)
			}
		}
	}
}

// TestJobsRefused: what cannot be simulated is refused.
func TestJobsRefused(t *testing.T) {
	if _, err := RunModel(t.Context(), jobsOf(tinyJob(), 1<<16, false), "naive"); err == nil {
		t.Error("65536 jobs are accepted")
	}
	if _, err := RunModel(t.Context(), jobsOf(tinyJob(), -1, false), "naive"); err == nil {
		t.Error("-1 jobs are accepted")
	}
	if _, err := RunThesis(t.Context(), jobsOf(tinyJob(), 2, false), "naive"); err == nil {
		t.Error("the profile thesis accepts two jobs, which it cannot simulate")
	}
	job := tinyJob()
	job.Env.Processors.Cores = 4
	if _, err := RunThesis(t.Context(), job, "naive"); err == nil {
		t.Error("the profile thesis accepts cores, which it cannot simulate")
	}
}
