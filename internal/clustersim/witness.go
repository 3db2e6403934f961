package clustersim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/clustersim/script"
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
	t.explain()
	if t.script.Calm() && t.Nodes > 1 && !t.script.Apart && t.rank == 0 {
		if wrong := t.Cluster(ctx, t.Nodes, t.Ranks); wrong != "" && ctx.Err() == nil {
			t.broken(t.rank, "the report over all nodes: %s", wrong)
		}
	}
}

// explain asks what the batch before is that another rank got, and makes requests that must be
// refused.
func (t *trainer) explain() {
	last, rank := t.position-1, (t.rank+1)%t.WorldSize()
	at := position{last / t.Steps(), last % t.Steps()}
	ids, labels, err := t.Explain(at.epoch, at.step, rank)
	if err != nil {
		t.broken(t.rank, "a batch is not explained: %v", err)
	}
	for i, id := range ids {
		if labels[i] != t.script.Label(id) {
			t.broken(t.rank, "sample %d is explained with the label %d", id, labels[i])
		}
	}
	t.add(judge.Event{
		Kind: judge.Explained, Rank: rank, Epoch: at.epoch, Step: at.step, IDs: ids,
	})
	for _, what := range t.Granted(t.script.Samples, t.WorldSize()) {
		t.broken(t.rank, "a request is granted that is wrong: %s", what)
	}
}

// within checks the limits of what a node keeps.
func (t *trainer) within(s process.Statement) {
	n := t.rank / t.Ranks
	memory, disk := t.script.Caches(n)
	if s.Taken > s.Staging {
		t.broken(t.rank, "%d of %d bytes of the staging buffer are taken", s.Taken, s.Staging)
	}
	t.keep(n, s.Classes)
	for _, c := range s.Classes {
		most := memory
		if c.Name != "memory" {
			most = disk
		}
		// A rank that comes first with another policy opens the job.
		if t.script.CachesNothing() && t.script.Differs != script.ThePolicy {
			most, c.Capacity = 0, 0
		}
		holds := c.Capacity
		if p := t.script.Plans; c.Name == "memory" && (p == script.Sparing || p == script.Alike) {
			holds *= 2 // one segment more while samples are moved, which may be as large as the class
		}
		if c.Used > holds || c.Capacity > int64(most) {
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
	if err := t.Return(); err != nil {
		t.broken(t.rank, "a batch at the end: %v", err)
	}
	s := t.State()
	t.within(s)
	hangs := t.script.Has(script.SourceHang, script.DiskHang) // a read into it may not have returned
	if s.Taken+s.Extra > 0 && !t.script.Notes() && !hangs {
		t.broken(t.rank, "%d bytes of the staging buffer are taken at the end, and %d besides",
			s.Taken, s.Extra)
	}
	if t.script.Loses() {
		t.add(judge.Event{Kind: judge.Accounted, Rank: t.rank, Account: t.Account()})
	}
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
	if t.audited() && t.script.Calm() {
		t.account(ctx)
	}
}

// audited reports whether the audits of epochs are known to be complete: otherwise they may wait
// for ranks that were refused, or have failed.
func (t *trainer) audited() bool {
	s := t.script
	return len(s.Events)+len(s.Stale) == 0 && (len(s.Missing) == 0 || s.OnError != "raise") &&
		(t.number > 0 || s.Differs == "") && s.Plans != script.Failing
}

// early asks for the audits of all epochs before anything was read, and of the first one twice, of
// which it gives up the first. It returns what waits for them, if the process has come to the end.
func (t *trainer) early(ctx context.Context) (end func()) {
	if t.number > 0 || t.rank != int(t.script.Seed)%t.WorldSize() || !t.audited() ||
		len(t.script.Breaks) > 0 || t.script.Shuffle == "given" { // whose news would wait for it
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		gives, up := context.WithTimeout(ctx, time.Millisecond)
		_, _ = t.Audit(gives, 0)
		up()
		for epoch := range t.script.Epochs {
			done.Go(func() {
				if samples, why := t.Audit(ctx, epoch); ctx.Err() == nil {
					t.add(judge.Event{
						Kind: judge.Audited, Rank: t.rank, Epoch: epoch, Batches: t.Steps(),
						Samples: samples, Text: why,
					})
				}
			})
		}
	})
	return func() {
		if !t.complete {
			cancel()
		}
		done.Wait()
		cancel()
	}
}

// audit notes the audit of an epoch that the rank has come to the end of. It is of the rank's
// latest pass through the epoch.
func (t *trainer) audit(ctx context.Context, epoch int) {
	from := max(t.start-epoch*t.Steps(), 0)
	if samples, why := t.Audit(ctx, epoch); ctx.Err() == nil {
		t.add(judge.Event{
			Kind: judge.Audited, Rank: t.rank, Epoch: epoch, Batches: t.Steps() - from,
			Samples: samples, Text: why,
		})
	}
}

// account notes what the rank's node says of the job when all ranks have come to the end.
func (t *trainer) account(ctx context.Context) {
	n := t.rank / t.Ranks
	if t.rank%t.Ranks != 0 || t.script.Differs != "" {
		return
	}
	a := t.Account()
	a.Seen = t.seen(n)
	if t.rank == 0 {
		var err error
		if a.Sum, err = t.Sum(ctx); err != nil {
			t.broken(t.rank, "the job's report: %v", err)
			return
		}
		for n := range t.Nodes {
			seen := t.seen(n)
			a.Sum.Seen.Samples += seen.Samples
			a.Sum.Seen.Bytes += seen.Bytes
		}
	}
	t.add(judge.Event{Kind: judge.Accounted, Rank: t.rank, Account: a})
}

// seen returns what a node has read from the source since the launch.
func (l *launch) seen(node int) (a judge.Amount) {
	a.Samples, a.Bytes = l.origin.Read(node)
	a.Samples -= l.before[node].Samples
	a.Bytes -= l.before[node].Bytes
	return a
}
