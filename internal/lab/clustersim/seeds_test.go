package clustersim

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// TestSeeds runs the scripts of seeds, makes those simpler that fail, and prints them.
func TestSeeds(t *testing.T) {
	count, draw, err := asked.scripts()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if *asked.repeatable || *asked.interleaved {
		binary = overlaidWorker(t)
	}
	var next, failures, ran atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			r := &runner{t: t, binary: binary}
			defer r.stop()
			for {
				i := int(next.Add(1)) - 1
				if i / *asked.times >= count || failures.Load() >= *asked.enough {
					return
				}
				ran.Add(1)
				s := draw(i / *asked.times)
				if v := r.run(&s); len(v.Errors) > 0 {
					failures.Add(1)
					r.report(s, v)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d scripts in %v", ran.Load(), time.Since(began).Round(time.Second/10))
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
	if !alive || *asked.repeatable { // what ran before in a process has an effect on what follows
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
