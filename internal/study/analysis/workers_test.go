package analysis

import (
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// TestThreadsPrepareAsMuchAsMeasured: not in proportion to the first one.
func TestThreadsPrepareAsMuchAsMeasured(t *testing.T) {
	m := job()
	m.Loader.CacheMB = 1000
	m.Loader.Workers = 1
	m.Cores = 2
	m.Preparation = points(map[int]float64{1: 125, 2: 138})
	r := analyze(t, m, Options{})
	if r.Needed.CoresToTrain != 15 { // 1000 / 69
		t.Errorf("%+v", r.Needed)
	}
	changes, err := remedy.Parse("threads=4")
	if err != nil {
		t.Fatal(err)
	}
	if o := analyze(t, m, Options{Changes: changes}).WhatIf; !near(o.Epoch, 10_000/276.0, 0.01) {
		t.Errorf("%+v", o)
	}
}

// TestWorkersBeyondTheCores: 4 workers on 2 cores prepare as much as 2, which is what cores are
// counted and changed by.
func TestWorkersBeyondTheCores(t *testing.T) {
	m := job()
	m.Loader = Loader{Name: Torch, Workers: 4, CacheMB: 1000}
	m.Preparation = points(map[int]float64{1: 200, 2: 390, 4: 400})
	r := analyze(t, m, Options{})
	if n := r.Needed; n.CoresToTrain != 5 {
		t.Errorf("%+v", n)
	}
	at := slices.IndexFunc(r.Remedies, func(o Option) bool {
		return len(o.Changes) == 1 && o.Changes[0].Key == remedy.Threads && !o.Switch
	})
	if at < 0 {
		t.Fatalf("%+v", r.Remedies)
	}
	if o := r.Remedies[at]; o.Text != "5 workers and as many cores instead of 4 on 2 cores" ||
		o.Limit != remedy.Compute || !near(o.Epoch, 10, 1e-6) {
		t.Errorf("%+v", o)
	}
	m.Loader.Name, m.Loader.Workers = HDMLP, 2
	changes, err := remedy.Parse("threads=4")
	if err != nil {
		t.Fatal(err)
	}
	if o := analyze(t, m, Options{Changes: changes}).WhatIf; !near(o.Epoch, 10_000/800.0, 0.01) {
		t.Errorf("%+v", o)
	}
}

// TestMoreWorkersReadMore: each worker of torch's loader reads a sample at a time.
func TestMoreWorkersReadMore(t *testing.T) {
	m := job() // 1 stream reads 20 samples/s, and 4 read 80
	m.Loader, m.Cores = Loader{Name: Torch, Streams: 1}, 4
	m.Preparation = points(map[int]float64{1: 200, 4: 800})
	r := analyze(t, m, Options{})
	if o := r.Remedies[0]; o.Text != "4 workers instead of none" || o.Limit != remedy.Source ||
		!near(o.Epoch, 10_000/80.0, 1e-6) {
		t.Errorf("%+v", o)
	}
}

// TestRanksWithoutWorkers: each prepares its samples itself, so that a node prepares as many at a
// time as it has ranks.
func TestRanksWithoutWorkers(t *testing.T) {
	m := job()
	m.Loader = Loader{Name: Torch, Streams: 4}
	m.Ranks = 4
	m.Cores = 4
	m.Preparation = points(map[int]float64{4: 800})
	r := analyze(t, m, Options{})
	if want := 1 / (1/80.0 + 1/800.0 + 1/1000.0); !near(r.Now.Prepare, 800, 1e-6) ||
		!near(r.Now.Samples, want, 1e-6) || m.TooFew() {
		t.Errorf("%+v, want %v samples/s", r.Now, want)
	}
}
