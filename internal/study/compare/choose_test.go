package compare_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/study/compare"
)

// TestChooseTakesTheMostSamplesWithinTheTime: nine tenths of it are planned.
func TestChooseTakesTheMostSamplesWithinTheTime(t *testing.T) {
	linear := func(start, each float64) func(int) (float64, error) {
		return func(n int) (float64, error) { return start + each*float64(n), nil }
	}
	for name, c := range map[string]struct {
		limit          float64
		least, of      int
		seconds        func(int) (float64, error)
		fewest, most   int
		longer, failed bool
	}{
		"all fit":             {100, 10, 1000, linear(0, 0.09), 1000, 1000, false, false},
		"a tenth more":        {100, 10, 1000, linear(0, 0.091), 890, 990, false, false},
		"a part":              {100, 10, 1000, linear(0, 0.9), 90, 100, false, false},
		"a constant and more": {100, 10, 1000, linear(45, 0.45), 70, 100, false, false},
		"not even the least":  {10, 50, 1000, linear(20, 1), 50, 50, true, false},
		"the least is all":    {10, 50, 50, linear(0, 1), 50, 50, true, false},
		"more than there are": {10, 51, 50, linear(0, 1), 0, 0, false, true},
		"no time":             {0, 1, 50, linear(0, 1), 0, 0, false, true},
	} {
		got, err := compare.Choose(c.limit, c.least, c.of, c.seconds)
		if (err != nil) != c.failed {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Samples < c.fewest || got.Samples > c.most {
			t.Errorf("%s: %d samples; want %d to %d", name, got.Samples, c.fewest, c.most)
		}
		if want, _ := c.seconds(got.Samples); !c.failed && got.Seconds != want {
			t.Errorf("%s: %v s; want %v", name, got.Seconds, want)
		}
		if longer := got.Seconds > 0.9*c.limit; !c.failed && longer != c.longer {
			t.Errorf("%s: %v s of %v", name, got.Seconds, c.limit)
		}
	}
	broken := errors.New("broken")
	breaks := func(int) (float64, error) { return 0, broken }
	if _, err := compare.Choose(1, 1, 9, breaks); !errors.Is(err, broken) {
		t.Errorf("an error of the estimate becomes %v", err)
	}
}

func TestSampleIsAPartOfTheDataset(t *testing.T) {
	if ids := compare.Sample(100, 100, 1); ids != nil {
		t.Errorf("all samples are %v", ids)
	}
	counts := make([]int, 50)
	for seed := range uint64(400) {
		ids := compare.Sample(10, 50, seed)
		if len(ids) != 10 || !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != 10 {
			t.Fatalf("seed %d: %v", seed, ids)
		}
		if !slices.Equal(ids, compare.Sample(10, 50, seed)) {
			t.Errorf("seed %d: another part the second time", seed)
		}
		for _, id := range ids {
			counts[id]++
		}
	}
	for id, n := range counts { // 80 expected, with a deviation of 8
		if n < 45 || n > 115 {
			t.Errorf("sample %d is in %d of 400 parts", id, n)
		}
	}
}

// work is a job on two nodes, whose source gives 100 MB/s in all.
func work() compare.Work {
	w := compare.Work{
		Nodes: 2, Epochs: 3, Batch: 4, Seed: 3, Threads: 2, StepTime: 0.01,
		Capacity: []float64{45}, Disks: []bool{false},
	}
	w.Node.Source = model.GivenRate(50, 0.001)
	w.Node.Sources = model.Curve{{Clients: 1, MBps: 100}, {Clients: 2, MBps: 100}}
	w.Node.SourcesOrigin = model.Given
	w.Node.Classes = []model.NodeClass{{
		Name: "ram", Stores: 2, Read: model.GuessedMemory, Write: model.GuessedMemory,
	}}
	return w
}

func sizes(n int) func(int) int64 {
	return func(id int) int64 { return int64(100_000 + 1000*(id%n%7)) }
}

// TestEstimateGrowsWithSamplesAndPolicies, and is that of the simulator for a whole dataset.
func TestEstimateGrowsWithSamplesAndPolicies(t *testing.T) {
	e := compare.Estimator{
		Work: work(), Policies: []string{"naive"}, Sizes: sizes(800), Of: 800,
	}
	at := func(samples int) float64 {
		t.Helper()
		s, err := e.Seconds(t.Context(), samples)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	few, all := at(100), at(800)
	if few <= 1 || all <= few {
		t.Errorf("100 samples take %v s, 800 %v", few, all)
	}
	mb, share := compare.Part(nil, e.Sizes, e.Of)
	if share != 1 || len(mb) != 800 {
		t.Fatalf("%d samples are a share of %v", len(mb), share)
	}
	job := e.Work.Job(mb, share)
	if job.GlobalBatch != 8 || len(job.Env.Classes) != 2 || job.Env.Classes[1].Capacity != 45 {
		t.Errorf("the job is %+v", job)
	}
	if half := e.Work.Job(mb, 0.5); half.Env.Classes[1].Capacity != 22.5 {
		t.Errorf("of half the dataset a cache holds %v MB", half.Env.Classes[1].Capacity)
	}
	e.Work.Epochs = 1_000_000 // it does not take as long to say so
	if long, each := at(800), (all-1)/3; long < 0.9e6*each || long > 1.1e6*each {
		t.Errorf("a million epochs take %v s; one takes %v", long, each)
	}
	e.Work.Epochs = 3
	e.Policies = append(e.Policies, "cooperative")
	if both := at(800); both <= all {
		t.Errorf("one policy takes %v s, two %v", all, both)
	}
}
