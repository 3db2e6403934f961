package catalog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/node/config"
)

// besideFile is what is stored beside the fake source's index.
type besideFile struct {
	data []byte
	err  error // of reading it
}

func (s fake) ReadBeside(suffix string, _ int64, usable func([]byte) error) (
	data []byte, path string, err error,
) {
	b := &s.shelf.beside
	if b.data == nil && b.err == nil || suffix != envfile.Suffix {
		return nil, "", nil
	}
	if b.err == nil {
		b.err = usable(b.data)
	}
	return b.data, "/data/beside", b.err
}

func (s fake) WriteBeside(_ string, data []byte) (string, error) {
	s.shelf.beside.data = data
	return "/data/beside", nil
}

// join opens the dataset and joins its cache, until the test calls leave.
func (c *shelf) join(t *testing.T, cfg *config.Config) (
	live *Live, joined *cache.Cache, leave func(),
) {
	t.Helper()
	d := c.open(t, cfg)
	j := by(cfg)
	j.Nodes = 2
	joined, _, err := d.JoinCache(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return d.Live(2, joined), joined, func() { d.LeaveCache(); d.Close() }
}

type training struct{}

func (training) Consumes() float64   { return 50 }
func (training) Transforms() float64 { return 7 }

// TestJobBeginsWithWhatIsKnown: guesses at first, then what a job has measured, and always what the
// configuration gives. A file that cannot be used is as good as none.
func TestJobBeginsWithWhatIsKnown(t *testing.T) {
	c := newShelf(t)
	cfg := &config.Config{
		SourceThreads: 1,
		StorageClasses: []config.StorageClass{
			fileClass(t.TempDir(), 1<<20, 2),
		},
	}
	live, joined, leave := c.join(t, cfg)
	if n := live.Known(); n.Source != model.GuessedSource ||
		n.Classes[0].Read != model.GuessedClass || n.Certain(1) {
		t.Errorf("at first: %+v", n)
	}
	if err := live.Store(1000, 2); err != nil || c.beside.data != nil {
		t.Errorf("stored guesses: %s, %v", c.beside.data, err)
	}
	measureSource(t, joined, samples)
	live.SetTraining(training{})
	if err := live.Store(1000, 2); err != nil {
		t.Fatal(err)
	}
	leave()

	live, _, leave = c.join(t, cfg)
	n := live.Known()
	if n.Source.Origin != model.Probed || n.Classes[0].Path != cfg.StorageClasses[0].Path() {
		t.Errorf("the next job begins with %+v", n)
	}
	leave()

	given := *cfg
	given.Environment = config.Environment{
		Compute: 640, Network: 100, Source: map[int]float64{1: 50, 2: 80}, SourceLatency: 0.01,
	}
	given.StorageClasses[0].Read = map[int]float64{1: 30}
	live, _, leave = c.join(t, &given)
	n = live.Known()
	if want := model.GivenRate(40, 0.01); n.Source != want {
		t.Errorf("a source that gives 80 MB/s to 2 nodes: %+v, want %+v", n.Source, want)
	}
	if want := model.GivenRate(30, 0); n.Classes[0].Read != want {
		t.Errorf("a class of 30 MB/s: %+v, want %+v", n.Classes[0].Read, want)
	}
	if n.Compute.Origin != model.Given || n.Network.Origin != model.Given {
		t.Errorf("given: %+v", n)
	}
	leave()

	for _, b := range []besideFile{
		{data: []byte("[environment]\ncompute = 0\n")},
		{err: errors.New("it is not trusted")},
	} {
		c.beside = b
		live, _, leave = c.join(t, &config.Config{SourceThreads: 1})
		if n := live.Known(); n.Source != model.GuessedSource {
			t.Errorf("an unusable file: %+v", n)
		}
		leave()
	}
}

// TestFewReadsAreNotStored: what an earlier job or a probe stored stays.
func TestFewReadsAreNotStored(t *testing.T) {
	c := newShelf(t)
	cfg := inMemory(total)
	known := model.GivenRate(33, 0)
	known.Origin = model.Probed
	probed := envfile.Encode(envfile.File{
		Node: model.Node{Source: known, Network: model.GuessedPeer},
		Size: model.Size{Sample: 0.1, Nodes: 1},
	})
	c.beside.data = probed
	live, joined, leave := c.join(t, cfg)
	defer leave()
	measureSource(t, joined, 8)
	if err := live.Store(1000, 2); err != nil || !bytes.Equal(c.beside.data, probed) {
		t.Errorf("after 8 reads: %v, stored %s", err, c.beside.data)
	}
}

// TestScriptsNumbersAreNotTheMachines: a job neither stores what it measured of its script nor
// begins with what is stored of another one, and leaves in the file what a probe measured.
func TestScriptsNumbersAreNotTheMachines(t *testing.T) {
	c := newShelf(t)
	for _, probed := range []float64{0, 300} {
		cfg := &config.Config{
			SourceThreads: 1,
			StorageClasses: []config.StorageClass{
				fileClass(t.TempDir(), 1<<20, 2),
			},
		}
		known := model.Node{Source: model.GuessedSource, Network: model.GuessedPeer}
		known.Preprocess = model.Value{Number: probed, Origin: model.Probed}
		known.Compute = model.Value{Number: probed, Origin: model.Probed}
		c.beside.data = envfile.Encode(envfile.File{
			Node: known, Size: model.Size{Sample: 0.1, Nodes: 1}, Threads: 3,
			Work: probed / 1e6,
		})
		live, joined, leave := c.join(t, cfg)
		if n := live.Start(); n.Compute.Number != 0 || n.Preprocess.Number != 0 {
			t.Errorf("a job begins with another script's numbers: %+v", n)
		}
		live.SetTraining(training{})
		if n := live.Known(); n.Compute.Number != 50 || n.Preprocess.Number != 7 {
			t.Errorf("the job does not measure its own: %+v", n)
		}
		measureSource(t, joined, samples)
		if err := live.Store(1000, 2); err != nil {
			t.Fatal(err)
		}
		f, err := envfile.Decode(c.beside.data)
		if err != nil || f.Node.Source.Origin != model.Probed ||
			f.Node.Compute.Number != probed || f.Node.Preprocess.Number != probed ||
			f.Work != probed/1e6 {
			t.Errorf("stored %s, %v; the script's numbers must still be %v", c.beside.data, err,
				probed)
		}
		if want := map[float64]int{0: 2, 300: 3}[probed]; f.Threads != want {
			t.Errorf("%d threads, want %d", f.Threads, want)
		}
		leave()
	}
}

// measureSource has the cache read n samples into its one class, which measures the source.
func measureSource(t *testing.T, joined *cache.Cache, n int) {
	t.Helper()
	u := joined.Use(nil)
	defer u.Close()
	plan := [][]int32{nil}
	for id := range int32(n) {
		plan[0] = append(plan[0], id)
	}
	done := make(chan int64, len(plan[0]))
	u.Keep(plan)
	u.Fill(plan, func(bytes int64) { done <- bytes })
	for range plan[0] {
		<-done
	}
	read, _ := joined.Meters()
	if known := read["source"].Known(); known.Origin != model.Measured {
		t.Fatalf("the source after %d reads: %+v", len(plan[0]), known)
	}
}

// TestGivenNumbersAreNotStored: they hold as long as the user gives them.
func TestGivenNumbersAreNotStored(t *testing.T) {
	given := model.Value{Number: 5, Origin: model.Given}
	k := model.GivenRate(5, 0)
	text := string(envfile.Encode(envfile.File{
		Node: ungiven(model.Node{
			SourceNetwork: given, Network: k, Source: k,
			Sources: model.Constant(5), SourcesOrigin: model.Given,
			Classes: []model.NodeClass{{Name: "x", Read: k, Write: k}},
		}),
		Size: model.Size{Sample: 0.1, Nodes: 1},
	}))
	f, err := envfile.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n := &f.Node
	if n.Compute.Number+n.Preprocess.Number+n.SourceNetwork.Number > 0 || len(n.Sources) > 0 ||
		n.Network.IsKnown() || n.Source.IsKnown() || n.Classes[0].Read.IsKnown() ||
		n.Classes[0].Write.IsKnown() {
		t.Error(text)
	}
}

// TestClassesThatWereNotMeasuredKeepTheirRates: what a job did not measure of a class is stored as
// the job found it.
func TestClassesThatWereNotMeasuredKeepTheirRates(t *testing.T) {
	c := newShelf(t)
	read, write := model.GivenRate(500, 0), model.GivenRate(250, 0)
	read.Origin, write.Origin = model.Probed, model.Probed
	c.beside.data = envfile.Encode(envfile.File{
		Node: model.Node{
			Source: model.GuessedSource, Network: model.GuessedPeer,
			Classes: []model.NodeClass{{Name: "memory", Read: read, Write: write}},
		},
		Size: model.Size{Sample: 0.1, Nodes: 1, Capacity: []float64{1}},
	})
	live, joined, leave := c.join(t, inMemory(total))
	defer leave()
	measureSource(t, joined, samples)
	if err := live.Store(1000, 2); err != nil {
		t.Fatal(err)
	}
	f, err := envfile.Decode(c.beside.data)
	if err != nil || len(f.Node.Classes) != 1 {
		t.Fatalf("stored %s, %v", c.beside.data, err)
	}
	began := live.Start().Classes[0]
	if got := f.Node.Classes[0]; began.Write.Origin != model.Probed || got.Read != began.Read ||
		got.Write != began.Write {
		t.Errorf("began with %+v, stored %+v", began, got)
	}
}
