package clustersim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
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
	if t.script.Calm() && t.Nodes > 1 && !t.script.Apart && t.rank == 0 &&
		t.script.Differs != script.TheEnd {
		asked := time.Now()
		if wrong := t.Cluster(ctx, t.Nodes, t.Ranks); wrong != "" && ctx.Err() == nil {
			t.broken(t.rank, "the report over all nodes: %s", wrong)
		}
		if took := time.Since(asked); took > time.Second { // it waits only for ranks that are behind
			t.broken(t.rank, "the report over all nodes took %v", took)
		}
	}
}

// remember asks about all nodes, some of which die, on one rank of each.
func (t *trainer) remember(ctx context.Context) {
	if t.script.Loses() && t.Nodes > 1 && t.rank%t.Ranks == 0 {
		if wrong := t.Forgotten(ctx, t.heard); wrong != "" && ctx.Err() == nil {
			t.broken(t.rank, "the report over all nodes: %s", wrong)
		}
	}
}

// explain asks what the batch before is that another rank got, and makes requests that must be
// refused.
func (t *trainer) explain() {
	last, rank := t.position-1, (t.rank+1)%t.WorldSize()
	at := process.Position{Epoch: last / t.Steps(), Step: last % t.Steps()}
	ids, labels, err := t.Explain(at.Epoch, at.Step, rank)
	if err != nil {
		t.broken(t.rank, "a batch is not explained: %v", err)
	}
	for i, id := range ids {
		if labels[i] != t.script.Label(id) {
			t.broken(t.rank, "sample %d is explained with the label %d", id, labels[i])
		}
	}
	t.add(judge.Event{
		Kind: judge.Explained, Rank: rank, Epoch: at.Epoch, Step: at.Step, IDs: ids,
	})
	for _, what := range t.Granted(t.script.Samples, t.WorldSize()) {
		t.broken(t.rank, "a request is granted that is wrong: %s", what)
	}
}

// waited judges what was reported to the rank of a node until all had opened the job: which node
// was the last to come, if that was long after the others.
func (l *launch) waited(rank int, told []string) {
	if l.Nodes == 1 || l.Ranks > 1 || len(l.Late) == 0 || !l.script.Calm() || l.script.Differs != "" {
		return
	}
	last := slices.Index(l.Late, slices.Max(l.Late))
	for r, late := range l.Late {
		if r != last && l.Late[last]-late < script.Duration(time.Second) {
			return
		}
	}
	due := fmt.Sprintf("waiting for node %d of %d", last, l.Nodes)
	if last == 0 {
		due = fmt.Sprintf("node %d is waiting for node 0 at %s:", rank, ip(0))
	}
	named := func(what string) bool { return strings.HasPrefix(what, due) }
	if rank != last && !slices.ContainsFunc(told, named) {
		l.broken(rank, "it was told %q, and not: %s", told, due)
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

// testify notes what the job reports of itself when the rank has come to the end.
func (t *trainer) testify(ctx context.Context) {
	if err := t.Return(); err != nil {
		t.broken(t.rank, "a batch at the end: %v", err)
	}
	s := t.LastState()
	t.within(s)
	hangs := t.script.Has(script.SourceHang, script.DiskHang) // a read into it may not have returned
	if s.Taken+s.Extra+s.Noted > 0 && !hangs {
		t.broken(t.rank, "%d bytes of the staging buffer are taken at the end, %d besides, and %d "+
			"notes in the return ring are not", s.Taken, s.Extra, s.Noted)
	}
	if t.script.Loses() {
		t.add(judge.Event{Kind: judge.Accounted, Rank: t.rank, Account: t.Account()})
	}
	if !t.script.Sound() { // ranks that were cut off from others count as they can
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
	return s.Sound() && len(s.Stale) == 0 && (len(s.Missing) == 0 || s.OnError != "raise") &&
		(t.number > 0 || s.Differs == "" || s.Differs == script.TheEnd) && s.Plans != script.Failing
}

// early asks for the audits of all epochs before anything was read, and of the first one twice, of
// which it gives up the first. It returns what waits for them, if the process has come to the end.
func (t *trainer) early(ctx context.Context) (end func()) {
	if t.number > 0 || t.rank != int(t.script.Seed)%t.WorldSize() || !t.audited() ||
		len(t.script.Breaks) > 0 || t.script.Shuffle == "given" || // whose news would wait for it
		t.script.Differs != "" && (t.odd(t.rank) || t.script.Apart) { // some of which are not asked for
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		gives, up := context.WithTimeout(ctx, time.Millisecond)
		done.Go(func() {
			defer up()
			_, _ = t.Audit(gives, 0)
		})
		if t.script.Seed%2 == 0 { // others ask while it waits, or afterwards
			<-gives.Done()
		}
		// Of earlier ones it may be too late when they are asked for.
		for epoch := max(t.script.Epochs-audits, 0); epoch < t.script.Epochs; epoch++ {
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

// reread asks, on one rank, when all have gone back and taken a batch again, for the audit of its
// epoch, which is that of the batches from there on.
func (t *trainer) reread(ctx context.Context) {
	t.isBack = false
	epoch := (t.position - 1) / t.Steps()
	from := max(t.start-epoch*t.Steps(), 0)
	// Passes from the same batch on are alike, and audited as one, and so are all those from an
	// epoch's beginning.
	if from == 0 || t.start == t.before || t.rank != int(t.script.Seed)%t.WorldSize() ||
		!t.audited() ||
		len(t.script.Breaks) > 1 || len(t.script.Undecodable) > 0 { // which begin it once more
		return
	}
	ctx, cancel := context.WithTimeout(ctx, errorTimeout)
	t.asked.Go(func() {
		defer cancel()
		if samples, why := t.Audit(ctx, epoch); ctx.Err() == nil {
			t.add(judge.Event{
				Kind: judge.Audited, Rank: t.rank, Epoch: epoch, Batches: t.Steps() - from,
				Samples: samples, Text: why,
			})
		}
	})
}

// audit notes the audit of an epoch that the rank has come to the end of. It is of the rank's
// latest pass through the epoch.
func (t *trainer) audit(ctx context.Context, epoch int) {
	t.oldest(ctx, epoch)
	from := max(t.start-epoch*t.Steps(), 0)
	if samples, why := t.Audit(ctx, epoch); ctx.Err() == nil {
		t.add(judge.Event{
			Kind: judge.Audited, Rank: t.rank, Epoch: epoch, Batches: t.Steps() - from,
			Samples: samples, Text: why,
		})
	}
}

// review asks after an error, on one rank, when all others have left, for the audit of the epoch in
// which it was, which the rank does not come to the end of either: it begins the next one.
func (t *trainer) review(ctx context.Context) {
	if t.script.Differs == script.ThePause { // the late rank is to get the others' error
		sleep(ctx, script.Pauses)
	}
	next := t.position/t.Steps() + 1
	if t.rank != int(t.script.Seed/2)%t.WorldSize() || t.script.Shuffle == "given" ||
		t.script.Plans == script.Failing || next >= t.script.Epochs {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, errorTimeout)
	defer cancel()
	if t.crew.Alone(ctx) != nil {
		return
	}
	err := t.Begin(next * t.Steps())
	if err != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e := judge.Event{Kind: judge.Reviewed, Rank: t.rank, Epoch: next - 1}
	if e.IDs, e.Why, err = t.Missing(within, e.Epoch); err != nil {
		e.Text = err.Error()
	}
	if ctx.Err() == nil {
		t.add(e)
	}
}

// audits is how many epochs can be audited, counted back from the last.
const audits = 16

// oldest asks for audits of the first epoch that can be audited, and the last that cannot.
func (t *trainer) oldest(ctx context.Context, last int) {
	if last < audits || t.script.Apart || t.number > 0 || len(t.script.Breaks) > 0 ||
		t.Steps() == 1 { // others may have ended the next one
		return // epochs that are broken off are not complete
	}
	if _, why := t.Audit(ctx, last-audits+1); why != "" && ctx.Err() == nil {
		t.broken(t.rank, "one of the last %d epochs cannot be audited: %s", audits, why)
	}
	if _, why := t.Audit(ctx, last-audits); why == "" && ctx.Err() == nil {
		t.broken(t.rank, "an epoch before the last %d is audited", audits)
	}
}

// lingers is when after its end a rank of another node than the first asks for the last audit.
const lingers = 50 * time.Millisecond

// last asks for the audit of the last epoch: some ranks of some jobs when others have left.
func (t *trainer) last(ctx context.Context) {
	if !t.audited() || t.lateAudit() && !sleep(ctx, lingers) {
		return
	}
	t.audit(ctx, t.script.Epochs-1)
}

// lateAudit reports whether the rank is one of these. If it begins again after the last batch, it
// has none to be audited then, and others could not wait for it.
func (t *trainer) lateAudit() bool {
	last := t.script.Epochs*t.Steps() - 1
	return t.script.Seed%3 == 0 && t.rank >= t.Ranks &&
		!slices.ContainsFunc(t.script.Breaks, func(b script.Break) bool { return b.After == last })
}

// account notes what the rank's node reports of the job when all ranks have come to the end.
func (t *trainer) account(ctx context.Context) {
	n := t.rank / t.Ranks
	if t.rank%t.Ranks != 0 || t.script.Differs != "" ||
		t.script.Apart && t.lateAudit() { // others of the node may not have come to it
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
