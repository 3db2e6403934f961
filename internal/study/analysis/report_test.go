package analysis

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

func rate(v float64) *Rate { return &Rate{Median: v, Low: v * 0.98, High: v * 1.02} }

func points(rates map[int]float64) (all []Point) {
	for n, v := range rates {
		all = append(all, Point{N: n, Rate: *rate(v)})
	}
	slices.SortFunc(all, func(a, b Point) int { return a.N - b.N })
	return all
}

// job is a job with samples of 0.1 MB that trains 1000 of them per second, prepares 400 with 2
// threads, and reads 200 from the source.
func job() *Measured {
	return &Measured{
		Version: Version, Dataset: Dataset{Samples: 10_000, MB: 1000},
		Loader: Loader{Name: HDMLP, Workers: 2, CacheMB: 250},
		Batch:  50, Ranks: 1, Nodes: 1, Cores: 2, Room: 800_000_000,
		Training:    rate(1000),
		Preparation: points(map[int]float64{1: 200, 2: 400}),
		Source:      points(map[int]float64{1: 20, 4: 80, 16: 200}),
		Memory:      rate(100_000),
	}
}

func analyze(t *testing.T, m *Measured, o Options) *Report {
	t.Helper()
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	r, err := Analyze(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAJobThatItsSourceLimits: with a quarter in memory, three quarters come from the source, at
// 200 samples/s.
func TestAJobThatItsSourceLimits(t *testing.T) {
	r := analyze(t, job(), Options{})
	speed := 1 / (0.75/200 + 0.25/100_000)
	if r.Now.Limit != remedy.Source || !near(r.Now.Samples, speed, 1e-6) ||
		!near(r.Now.Epoch, 10_000/speed, 1e-6) || !near(r.Now.Cached, 0.25, 1e-6) {
		t.Errorf("%+v", r.Now)
	}
	if !r.Now.Certain || !near(r.Now.Low, 0.98*speed, 1e-6) || !near(r.Now.High, 1.02*speed, 1e-6) {
		t.Errorf("from %v to %v, certain: %v", r.Now.Low, r.Now.High, r.Now.Certain)
	}
	if s := r.Stall; !near(s.Training, 10, 1e-6) || !near(s.Preparation, 15, 1e-6) ||
		!near(s.Epoch(), r.Now.Epoch, 1e-6) || r.Iterations != 200 {
		t.Errorf("%+v of %v iterations", s, r.Iterations)
	}
	// F = 400 at a half: 1/(0.5/200 + 0.5/100000) = 399.2
	if n := r.Needed; !near(n.Cache, 0.501, 0.001) || !near(n.CacheMB, 501, 0.001) || !n.Enough ||
		n.Cores != 2 || n.CoresToTrain != 5 {
		t.Errorf("%+v", n)
	}
	if got, want := r.Caches[10].Limit, remedy.Source; r.Caches[10].Share != 0.5 || got != want {
		t.Errorf("with a half %s limits, want %s", got, want)
	}
	if got := r.Caches[11].Limit; got != remedy.Preprocessing || len(r.Caches) != 21 {
		t.Errorf("with 0.55 %s limits", got)
	}
	// The simulator has the source idle while batches are prepared only at the beginning.
	if !near(r.Now.Later, r.Now.Epoch, 0.04) || !near(r.Now.First, 50, 0.04) {
		t.Errorf("simulated %v and %v, by the equations %v", r.Now.First, r.Now.Later, r.Now.Epoch)
	}
	memory := r.Remedies[0]
	if len(memory.Changes) != 1 || memory.Changes[0].Key != remedy.Memory ||
		!near(memory.Changes[0].Amount, 5e8, 0.01) || !near(memory.Epoch, 25, 0.01) {
		t.Errorf("%+v", memory)
	}
	if j := r.Together[1]; j.Jobs != 4 || !near(j.Apart, speed/4, 1e-6) ||
		j.Shared < 3.9*j.Apart {
		t.Errorf("%+v", r.Together)
	}
}

// TestReadsThatTakeProcessors: the job's source is fast, but each read of it takes 2 ms of one of
// two processors that take 5 ms to prepare a sample: with a quarter cached, 2/(5 + 0.75*2 ms). The
// equations and the simulator say so, and that with processors to spare reads cost nothing.
func TestReadsThatTakeProcessors(t *testing.T) {
	m := job()
	m.Source, m.SourceWork = points(map[int]float64{1: 500, 4: 2000}), 0.002
	r := analyze(t, m, Options{})
	speed := 2 / (0.005 + 0.75*0.002)
	if r.Now.Limit != remedy.Preprocessing || !near(r.Now.Samples, speed, 1e-6) ||
		!near(r.Now.Later, 10_000/speed, 0.01) || !near(r.Now.Prepare, 400, 1e-9) {
		t.Errorf("%+v, want %v samples/s", r.Now, speed)
	}
	if s := r.Stall; !near(s.Preparation, 15, 1e-6) || !near(s.Fetch, 10_000*0.75*0.001, 1e-6) {
		t.Errorf("%+v", s)
	}
	if all := r.Caches[20]; !near(all.Speed, 400, 1e-6) {
		t.Errorf("with all in memory %v samples/s, want 400", all.Speed)
	}
	// 1000 samples/s need 1000*(5 + 1.5 ms) of a processor per second.
	if n := r.Needed; n.CoresToTrain != 7 || n.Cache != 0 {
		t.Errorf("%+v", n)
	}
	// Of four processors, those that prepare leave half.
	m.Cores = 4
	if r := analyze(t, m, Options{}); !near(r.Now.Samples, 400, 1e-6) {
		t.Errorf("with processors to spare %v samples/s, want 400", r.Now.Samples)
	}
	// Threads of which there are more than processors.
	m.Cores = 1
	m.Loader.Workers = 2
	m.Preparation = points(map[int]float64{1: 200, 2: 200})
	if r := analyze(t, m, Options{}); !near(r.Now.Samples, speed/2, 1e-6) {
		t.Errorf("on one processor %v samples/s, want %v", r.Now.Samples, speed/2)
	}
}

// TestTheLeastCacheBytesSeveralNodes: caches of other nodes, and directories, count as well.
func TestTheLeastCacheBytesSeveralNodes(t *testing.T) {
	m := job() // prepares 400 samples/s, and reads 200
	m.Nodes = 2
	m.Ranks = 2
	m.Peers = rate(50_000)
	// Each node reads 100 samples/s, so that 3/4 must come from caches, 3/8 from each.
	if got := analyze(t, m, Options{}).Needed; !got.Enough || !near(got.Cache, 0.375, 0.01) {
		t.Errorf("%+v", got)
	}
	m.Directory, m.Loader.DirectoryMB = rate(40_000), 200
	if got := analyze(t, m, Options{}).Needed; !got.Enough || !near(got.Cache, 0.175, 0.03) {
		t.Errorf("with a directory: %+v", got)
	}
	m.Memory = rate(300)
	m.Directory = rate(300)
	m.Peers = rate(300)
	if got := analyze(t, m, Options{}).Needed; got.Enough {
		t.Errorf("no cache is fast enough: %+v", got)
	}
}

// TestTheRatesThatLimit: whichever is the least, with the intervals that make it certain.
func TestTheRatesThatLimit(t *testing.T) {
	for limit, change := range map[string]func(*Measured){
		remedy.Compute:       func(m *Measured) { m.Training = rate(150) },
		remedy.Preprocessing: func(m *Measured) { m.Loader.CacheMB = 1000 },
		remedy.Source:        func(*Measured) {},
		remedy.Network: func(m *Measured) {
			m.Nodes = 2
			m.Ranks = 2
			m.Peers = rate(50)
			m.Loader.CacheMB = 500
		},
		"memory": func(m *Measured) { m.Memory, m.Loader.CacheMB = rate(90), 1000 },
		"cache":  func(m *Measured) { m.Directory, m.Loader.DirectoryMB = rate(90), 750 },
	} {
		m := job()
		change(m)
		r := analyze(t, m, Options{})
		if r.Now.Limit != limit || !r.Now.Certain {
			t.Errorf("%s limits (certain: %v), want %s", r.Now.Limit, r.Now.Certain, limit)
		}
	}
	m := job()
	m.Loader.CacheMB = 1000
	m.Training = &Rate{Median: 410, Low: 380, High: 440}
	if r := analyze(t, m, Options{}); r.Now.Limit != remedy.Preprocessing || r.Now.Certain {
		t.Errorf("intervals overlap: %+v", r.Now)
	}
}

// TestTorchsLoader: its page cache serves less than it holds, it is as fast as was measured, and
// hdmlp's threads and cache in its place come first.
func TestTorchsLoader(t *testing.T) {
	m := job()
	m.Loader = Loader{Name: Torch, Workers: 2, CacheMB: 650}
	m.Switched = points(map[int]float64{1: 450, 2: 900})
	m.AsIs = rate(250)
	r := analyze(t, m, Options{})
	if !near(r.Now.Cached, PageCacheHits(650, 1000), 1e-6) || r.Now.Later != 0 {
		t.Errorf("%+v", r.Now)
	}
	if o := r.Observed; o == nil || !near(o.Epoch(), 40, 1e-9) || !near(o.Fetch, 15, 1e-6) {
		t.Errorf("%+v", o)
	}
	// 800 of 1000 MB in memory: F = 1/(0.2/200 + 0.8/100000) = 992, P = 900, G = 1000
	first := r.Remedies[0]
	if !first.Switch || first.Limit != remedy.Preprocessing || !near(first.Epoch, 11.11, 0.01) ||
		!near(first.Times, 3.6, 0.05) || first.Guessed != nil {
		t.Errorf("%+v", first)
	}
	m.Switched = nil // then what rests on a guess comes after what was measured
	all := analyze(t, m, Options{}).Remedies
	at := slices.IndexFunc(all, func(o Option) bool { return o.Switch })
	if o := all[at]; at == 0 || len(o.Guessed) != 1 || !near(o.Epoch, 25, 0.01) {
		t.Errorf("number %d is %+v", at, o)
	}
	changes, err := remedy.Parse("compute=2x")
	if err != nil {
		t.Fatal(err)
	}
	if o := analyze(t, m, Options{Changes: changes}).WhatIf; len(o.Guessed) != 1 {
		t.Errorf("%+v", o)
	}
	m.Loader.Workers = 0
	r = analyze(t, m, Options{})
	if s := r.Now.Samples; !near(1/s, 1/1000.0+1/200.0+(1-r.Now.Cached)/200, 0.01) {
		t.Errorf("without workers nothing overlaps: %v samples/s", s)
	}
	// With workers it does: P(2) = 400 was measured, and F, which is less, limits.
	first = r.Remedies[0]
	if first.Text != "2 workers instead of none" || first.Limit != remedy.Source ||
		!near(first.Epoch, 10_000/r.Now.Fetch, 0.01) {
		t.Errorf("%+v, F = %v", first, r.Now.Fetch)
	}
}

// TestWhatWasMeasuredRarelyIsNotCertain, and neither is what the job's own speed contradicts.
func TestWhatWasMeasuredRarelyIsNotCertain(t *testing.T) {
	for name, change := range map[string]func(m *Measured){
		"one block":    func(m *Measured) { m.Preparation[1].Few = true },
		"it is faster": func(m *Measured) { m.AsIs = rate(900) },
		"it is slower": func(m *Measured) { m.AsIs = rate(100) },
		"of training":  func(m *Measured) { m.Training.Few = true },
	} {
		m := job()
		m.Loader.CacheMB = 1000
		if r := analyze(t, m, Options{}); !r.Now.Certain {
			t.Fatalf("%+v", r.Now)
		}
		change(m)
		if r := analyze(t, m, Options{}); r.Now.Certain {
			t.Errorf("%s: %+v", name, r.Now)
		}
	}
}

// TestWhatIf: changes together, also as multiples.
func TestWhatIf(t *testing.T) {
	for text, want := range map[string]float64{
		"memory=1GB":                        10_000 / 400.0,
		"memory=1GB,threads=4":              10_000 / 800.0,
		"memory=1GB,threads=64,compute=2x":  10_000 / 2000.0,
		"source=10x":                        10_000 / 400.0,
		"nodes=2,memory=1GB,network=1000":   5_000 / 400.0,
		"source=2x,memory=0B":               10_000 / 400.0,
		"nodes=4,memory=0B":                 10_000 / 200.0,
		"compute=50MB/s,memory=1GB,nodes=1": 10_000 / 400.0,
	} {
		changes, err := remedy.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := analyze(t, job(), Options{Changes: changes}).WhatIf
		if got == nil || !near(got.Epoch, want, 0.02) || !near(got.Simulated, want, 0.05) {
			t.Errorf("%s: %+v, want %.2f s", text, got, want)
		}
	}
}

// TestMissing: without training, the source or preparation, if there is one, nothing is concluded.
func TestMissing(t *testing.T) {
	m := job()
	m.Training, m.Source = nil, nil
	r := analyze(t, m, Options{})
	if !slices.Equal(r.Missing, []string{"training", "source"}) || r.Now.Limit != "" {
		t.Errorf("%+v", r)
	}
	for _, about := range []string{"preparation", "preparation_by_hdmlp"} {
		m := job()
		m.Preparation, m.Notes = nil, []Note{{about, "it failed"}}
		if r := analyze(t, m, Options{}); !slices.Equal(r.Missing, []string{"preparation"}) {
			t.Errorf("%s: %+v", about, r)
		}
	}
	m = job() // hdmlp's preparation is not that of the loader in use
	m.Loader.Name, m.Notes = Torch, []Note{{"preparation_by_hdmlp", "it failed"}}
	if r := analyze(t, m, Options{}); r.Missing != nil {
		t.Errorf("%+v", r)
	}
	m = job()
	m.Preparation = nil // nothing is prepared
	if r := analyze(t, m, Options{}); r.Missing != nil || r.Now.Prepare != 0 {
		t.Errorf("%+v", r)
	}
}

// TestTheJSONOfAReportIsReadAgain: also by those that have nothing but that.
func TestTheJSONOfAReportIsReadAgain(t *testing.T) {
	m := job()
	m.Notes = []Note{{"peers", "there is one node"}}
	text, err := json.Marshal(analyze(t, m, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(analyze(t, back, Options{}))
	if string(again) != string(text) {
		t.Errorf("%s\nbecame\n%s", text, again)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	valid, _ := json.Marshal(job())
	for change, want := range map[string]string{
		``:                             `it lacks "measured"`,
		`"measured":{"colour":1}`:      `unknown field "colour"`,
		`"measured":{"version":7}`:     `version is 7; this program reads 1`,
		`"measured":{"batch_samples":`: `not the JSON of an analysis`,
	} {
		if _, err := Decode([]byte("{" + change + "}")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
	for wrong, want := range map[string]string{
		`"samples":0`:                  `dataset.samples is 0`,
		`"name":"dali"`:                `loader.name is "dali"; it must be "hdmlp" or "torch"`,
		`"cores":0`:                    `cores is 0; it must be from 1`,
		`"n":1,"samples_per_s":-5`:     `preparation.0 is -5 samples/s`,
		`"n":0`:                        `preparation.0.n is 0`,
		`"nodes":2`:                    `nodes is 2; it must be from 1 to 1`,
		`"waited_s_per_iteration":-1`:  `waited_s_per_iteration is -1`,
		`"n":16,"samples_per_s":1e300`: `source.2 is 1e+300 samples/s`,
	} {
		key, _, _ := strings.Cut(wrong, ":")
		text := string(valid)
		if start, rest, ok := strings.Cut(wrong, ",\"samples_per_s\":"); ok {
			i := strings.Index(text, start)
			key, wrong = `"samples_per_s"`, `"samples_per_s":`+rest
			text = text[:i] + replaced(text[i:], key, wrong)
		} else {
			text = replaced(text, key, wrong)
		}
		if _, err := Decode([]byte(`{"measured":` + text + `}`)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", wrong, err, want)
		}
	}
	if _, err := Read("/nowhere/a.json"); err == nil ||
		!strings.HasPrefix(err.Error(), "/nowhere/a.json: cannot read the analysis") {
		t.Error(err)
	}
}

// replaced replaces the first value of a key.
func replaced(text, key, by string) string {
	i := strings.Index(text, key+":")
	end := i + strings.IndexAny(text[i:], ",}")
	return text[:i] + by + text[end:]
}

// TestTheEnvironmentIsThatOfTheRates: what hdmlp simulate reads has the same numbers.
func TestTheEnvironmentIsThatOfTheRates(t *testing.T) {
	f, err := envfile.Decode(job().Environment())
	if err != nil {
		t.Fatal(err)
	}
	env := f.Node.Environment(f.Size)
	for name, rates := range map[string][2]float64{
		"compute":    {env.Compute, 100},
		"preprocess": {env.Preprocess, 20},
		"source":     {env.SourceThroughput.At(1), 20},
		"memory":     {env.Classes[1].Read.At(1), 10_000},
		"capacity":   {env.Classes[1].Capacity, 250},
		"sample":     {f.Size.Sample, 0.1},
		"threads":    {float64(f.Threads), 2},
	} {
		if !near(rates[0], rates[1], 1e-5) {
			t.Errorf("%s is %v, want %v", name, rates[0], rates[1])
		}
	}
}

func TestPageCacheHits(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 0.65: 0.47, 1: 1, 2: 1} {
		if got := PageCacheHits(x*645_000, 645_000); math.Abs(got-want) > 0.02 {
			t.Errorf("memory for %v serves %.3f, want %v", x, got, want)
		}
	}
}
