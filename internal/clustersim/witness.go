package clustersim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hdmlp/hdmlp/internal/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/clustersim/process"
)

// broken adds what is wrong with a node.
func (l *launch) broken(rank int, format string, args ...any) {
	l.add(judge.Event{
		Kind: judge.Broken, Rank: rank / l.Ranks, Text: fmt.Sprintf(format, args...),
	})
}

// examine compares what a job holds with what it may hold. Where nothing goes wrong, it also asks
// one rank about all nodes.
func (t *trainer) examine(ctx context.Context) {
	s := t.State()
	t.within(s)
	calm := len(t.script.Events)+len(t.script.Missing) == 0
	if calm && t.Nodes > 1 && !t.script.Apart && t.rank == 0 {
		if wrong := t.Cluster(ctx, t.Nodes, t.Ranks); wrong != "" && ctx.Err() == nil {
			t.broken(t.rank, "the report over all nodes: %s", wrong)
		}
	}
}

// within checks the limits of what a node keeps.
func (t *trainer) within(s process.Statement) {
	memory, disk := t.script.Caches(t.rank / t.Ranks)
	for _, c := range s.Classes {
		most := memory
		if c.Name != "memory" {
			most = disk
		}
		if c.Name == "memory" && t.script.CachesNothing() {
			most = 0
			c.Capacity = 0
		}
		if c.Used > c.Capacity || c.Capacity > int64(most) {
			t.broken(t.rank, "class %s holds %d bytes of %d; it may hold %d", c.Name, c.Used,
				c.Capacity, most)
		}
	}
	var used int64
	dir := t.cacheDir(t.rank / t.Ranks)
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "data" {
			if info, err := d.Info(); err == nil {
				used += info.Size()
			}
		}
		return nil
	})
	// Samples of other sizes may leave holes in the file.
	if most := 2*disk + t.script.Largest; disk > 0 && used > int64(most) {
		t.broken(t.rank, "the cache directory has %d bytes; it may have %d", used, most)
	}
}

// testify notes what the job says of itself when the rank has come to the end.
func (t *trainer) testify(ctx context.Context) {
	s := t.State()
	t.within(s)
	if len(t.script.Events) > 0 { // ranks that were cut off from others count as they can
		return
	}
	for _, e := range s.Epochs {
		if e.Read != e.Samples {
			t.broken(t.rank, "%d of the %d samples of epoch %d have an origin", e.Read, e.Samples,
				e.Epoch)
		}
		t.add(judge.Event{
			Kind: judge.Stated, Rank: t.rank, Epoch: e.Epoch, Batches: e.Batches, Samples: e.Samples,
		})
	}
	last := t.script.Epochs - 1
	from := max(t.start-last*t.Steps(), 0) // the audit is of the ranks' latest pass
	if t.number == 0 && t.script.Differs != "" || len(t.script.Missing) > 0 {
		return // it would wait for ranks that were refused, or have failed
	}
	if samples, why := t.Audit(ctx, last); ctx.Err() == nil {
		t.add(judge.Event{
			Kind: judge.Audited, Rank: t.rank, Epoch: last, Batches: t.Steps() - from, Samples: samples,
			Text: why,
		})
	}
}
