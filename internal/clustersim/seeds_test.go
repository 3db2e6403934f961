package clustersim

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/clustersim/script"
)

var (
	seeds = flag.Int("seeds", 60, "how many seeds TestSeeds runs")
	first = flag.Uint64("first", 1, "the first seed")
	only  = flag.String("only", "", "the seeds to run, with commas")
	given = flag.String("script", "", "a script, as a failure prints it, that TestSeeds runs "+
		"instead of seeds")
	times      = flag.Int("times", 1, "how often each script is run")
	repeatable = flag.Bool("repeatable", false, "run scripts so that they repeat themselves, as far "+
		"as possible; builds Go's runtime anew")
	interleaved = flag.Bool("interleave", false, "have goroutines yield between any two statements, "+
		"as seeds have it; builds the program anew")
	shrink = flag.Duration("shrink", 2*time.Minute, "how long a failing script is made simpler")
	enough = flag.Int64("failures", 10, "after so many failing scripts no more are run")
)

// TestSeeds runs the scripts of seeds, makes those simpler that fail, and prints them.
func TestSeeds(t *testing.T) {
	var next atomic.Int64
	var all sync.WaitGroup
	var failures atomic.Int64
	scripts := chosen(t)
	began, runs := time.Now(), len(scripts)**times
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if *repeatable || *interleaved {
		binary = overlaidWorker(t)
	}
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			r := &runner{t: t, binary: binary}
			defer r.stop()
			for {
				i := int(next.Add(1)) - 1
				if i >= runs || failures.Load() >= *enough {
					return
				}
				s := scripts[i / *times]()
				if v := r.run(&s); len(v.Errors) > 0 {
					failures.Add(1)
					r.report(s, v)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d scripts in %v", min(runs, int(next.Load())), time.Since(began).Round(time.Second/10))
}

// chosen returns what draws the scripts to run.
func chosen(t *testing.T) (scripts []func() script.Script) {
	if *given != "" {
		s, err := script.Parse(*given)
		if err != nil {
			t.Fatal(err)
		}
		return []func() script.Script{func() script.Script { return s }}
	}
	list := []uint64{}
	for i := range uint64(*seeds) {
		list = append(list, *first+i)
	}
	if *only != "" {
		list = nil
		for number := range strings.SplitSeq(*only, ",") {
			seed, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, seed)
		}
	}
	for _, seed := range list {
		scripts = append(scripts, func() script.Script { return script.Generate(seed) })
	}
	return scripts
}

// runner runs scripts in a worker, which it replaces after failures.
type runner struct {
	t      *testing.T
	binary string
	worker *worker
}

func (r *runner) run(s *script.Script) verdict {
	if r.worker == nil {
		r.worker = startWorker(r.t, r.binary)
	}
	v, alive := r.worker.run(s)
	if !alive || *repeatable { // what ran before in a process has an effect on what follows
		r.stop()
	}
	return v
}

func (r *runner) stop() {
	if r.worker != nil {
		r.worker.stop()
		r.worker = nil
	}
}

// report makes a failing script as simple as it can, and reports it.
func (r *runner) report(s script.Script, v verdict) {
	seed, end := s.Seed, time.Now().Add(*shrink)
	for simpler := true; simpler; {
		simpler = false
		for _, c := range s.Simpler() {
			if time.Now().After(end) {
				break
			}
			if w := r.run(&c); len(w.Errors) > 0 {
				s, v, simpler = c, w, true
				break
			}
		}
	}
	last := v.Events[max(0, len(v.Events)-40):]
	r.t.Errorf("seed %d fails; the script was made as simple as possible:\n\n"+
		"go test ./internal/clustersim -run TestSeeds -script '%s'\n\n%s\n\n%s", seed, s,
		strings.Join(last, "\n"), strings.Join(v.Errors, "\n"))
}
