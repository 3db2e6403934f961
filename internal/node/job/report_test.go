package job

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
	"github.com/hdmlp/hdmlp/internal/report"
)

// TestReportHasWhatCachesLackedWhenEpochsBegan checks that memory that is short when an epoch
// begins counts for that epoch, and not what becomes of it later.
func TestReportHasWhatCachesLackedWhenEpochsBegan(t *testing.T) {
	d := &lacking{}
	w := start(t, func(c *Config, p *Parts) { c.Ranks, p.Dataset = []int{0}, d })
	r := w.join(t, 0)
	defer r.Close()
	for n, lacks := range []int64{0, 40, 15} {
		d.lacks.Store(lacks)
		epoch(t, r, n)
		d.lacks.Store(77)
	}
	var got []int64
	for _, e := range r.Report().Epochs {
		got = append(got, e.Lacked)
	}
	if want := []int64{0, 40, 15}; !slices.Equal(got[:3], want) {
		t.Errorf("the epochs lacked %v, want %v", got, want)
	}
}

// lacking is a dataset with a class whose memory is short.
type lacking struct{ lacks atomic.Int64 }

func (d *lacking) Reports() []report.Class {
	lacks := d.lacks.Load()
	return []report.Class{{
		Name: "memory", Capacity: 100, Used: 100 - lacks,
		Returned: &report.Returned{Paused: lacks > 0},
	}}
}

// TestNoRankReadsBeforeTheStateIsNoted: while the rank that begins an epoch first notes what the
// node has read before, the other one must not read, or its reads would count for no epoch.
func TestNoRankReadsBeforeTheStateIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := make(waited)
		w := start(t, func(_ *Config, p *Parts) { p.Dataset = d })
		ended := make(chan error, 2)
		for rank := range 2 {
			r := w.join(t, rank)
			defer r.Close()
			go func() { ended <- r.Run(t.Context(), 3, 0, take(r, samples)) }()
		}
		synctest.Wait()
		if n, _ := w.p.Cache.SourceReads(); n > 0 {
			t.Errorf("%d samples are read before the state is noted", n)
		}
		close(d)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		read := int64(0)
		for _, e := range w.Report().Epochs {
			for _, tier := range e.Tiers {
				read += tier.Samples
			}
		}
		if n, _ := w.p.Cache.SourceReads(); n == 0 || read != n {
			t.Errorf("%d of %d samples that were read count for an epoch", read, n)
		}
	})
}

// waited is a dataset without storage classes, whose Reports returns once it is closed.
type waited chan struct{}

func (d waited) Reports() []report.Class {
	<-d
	return nil
}

// TestReportsAreMadeWhileARankEntersItsGroup is for the race detector.
func TestReportsAreMadeWhileARankEntersItsGroup(t *testing.T) {
	w := start(t, nil)
	r := w.join(t, 0)
	defer r.Close()
	reported := make(chan *report.Report)
	go func() { reported <- r.Report() }()
	r.SetGroup(named("search"))
	<-reported
	if group := r.Report().Ranks[0].Group; group == nil || group.Name != "search" {
		t.Errorf("the rank's group is %+v", group)
	}
}

// named is a Member that only reports its group's name.
type named string

func (n named) Report() report.Group { return report.Group{Name: string(n)} }

func (named) Run(context.Context, int, int, stage.Own) error { return nil }
func (named) Wait() bool                                     { return true }
func (named) Yielded(int, int, stage.Stall)                  {}
func (named) Return(uint32) (uint32, error)                  { return 0, nil }
func (named) Keep()                                          {}
func (named) Close()                                         {}

// TestReportWaitsForRanksInTheSameEpoch: at the end of an epoch a report over all nodes waits for
// the ranks that have not finished it, and for no others.
func TestReportWaitsForRanksInTheSameEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		mine, other report.Position
		gone, ended bool
		want        bool
	}{
		"the other is in the last step":    {mine: at(2, 0), other: at(1, 9), want: true},
		"both have finished":               {mine: at(2, 0), other: at(2, 0)},
		"the other is ahead":               {mine: at(2, 0), other: at(2, 3)},
		"within an epoch":                  {mine: at(2, 1), other: at(1, 9)},
		"before the first batch":           {mine: at(0, 0), other: at(0, 0)},
		"the other is an epoch behind":     {mine: at(2, 0), other: at(0, 9)},
		"the other's node does not answer": {mine: at(2, 0), other: at(1, 9), gone: true},
		"the other has left":               {mine: at(2, 0), other: at(1, 9), ended: true},
	} {
		report := &report.ClusterReport{Nodes: []report.NodeReport{
			{
				Responding: !c.gone,
				Ranks:      []report.RankTally{{Rank: 0, Open: !c.ended, Position: c.other}},
			},
			{Responding: true, Ranks: []report.RankTally{{Rank: 1, Open: true, Position: c.mine}}},
		}}
		if got := behind(report, 1); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func at(epoch, step int) report.Position { return report.Position{Epoch: epoch, Step: step} }

// TestAuditsAreAPartOfThePauseAfterTheEpoch: other nodes' ranks need 3 s more for it, for which the
// rank that asks is blocked. What it waits for a rank of its own node is within the epoch.
func TestAuditsAreAPartOfThePauseAfterTheEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(_ *Config, p *Parts) { p.Nodes = slow{new(nodes)} })
		ranks := []*Rank{w.join(t, 0), w.join(t, 1)}
		defer ranks[0].Close()
		defer ranks[1].Close()
		audited := make(chan error)
		epoch(t, ranks[0], 0)
		go func() {
			_, err := ranks[0].Audit(t.Context(), 0)
			audited <- err
		}()
		time.Sleep(20 * time.Second)
		epoch(t, ranks[1], 0)
		if err := <-audited; err != nil {
			t.Error(err)
		}
		epoch(t, ranks[0], 1)
		r := w.Report()
		if first, next := r.Epochs[0], r.Epochs[1]; first.Audit != 3 || first.StallSeconds != 0 ||
			next.Audit != 0 || next.Pause != 3 {
			t.Errorf("epochs %+v, %+v", first, next)
		}
	})
}

// slow are nodes whose ranks end an epoch 3 s after those of this node.
type slow struct{ *nodes }

func (s slow) Audit(ctx context.Context, epoch int,
	mine []audit.Part,
) ([]audit.Part, string, error) {
	time.Sleep(3 * time.Second)
	return s.nodes.Audit(ctx, epoch, mine)
}

// twice is a preprocessor that delivers each sample twice.
type twice struct {
	did   atomic.Int64
	spent float64
}

func (*twice) Size(int) int               { return 2 * sampleSize }
func (*twice) Expected(bytes int64) int64 { return 2 * bytes }
func (*twice) Steps() []string            { return []string{"twice"} }
func (*twice) Takes(int) float64          { return 0 }
func (*twice) Left(error) (bool, bool)    { return false, false }

func (*twice) ThreadChanges() iter.Seq2[time.Time, int] {
	return maps.All(map[time.Time]int{{}: 3})
}

func (p *twice) Apply(alloc func(int, int) ([]byte, error), src [][]byte, _ uint8,
	_, _, _ int, _ bool, _ []time.Duration,
) error {
	data := src[0]
	dst, err := alloc(0, 2*len(data))
	if err == nil {
		copy(dst[copy(dst, data):], data)
		p.did.Add(1)
	}
	return err
}

func (p *twice) Report() *report.Preprocessing {
	return &report.Preprocessing{
		Samples: p.did.Load(), Threads: 3,
		Transforms: []report.Transform{{Name: "twice", Seconds: p.spent * float64(p.did.Load())}},
	}
}

// large estimates the results of twice.
type large struct{}

func (large) Expected(bytes float64) float64 { return 2 * bytes }
func (large) Ragged() bool                   { return false }

// TestTransformedSamplesAreDelivered checks that ranks get what the preprocessor makes, and that
// its rate is known.
func TestTransformedSamplesAreDelivered(t *testing.T) {
	p := &twice{spent: 0.001}
	w := start(t, func(c *Config, parts *Parts) {
		c.Samples, parts.Outputs = large{}, []stage.Output{{Preprocessor: p}}
	})
	r := w.join(t, 0)
	defer r.Close()
	if rate := w.Transforms(); rate != 0 {
		t.Errorf("%g MB/s before the first sample", rate)
	}
	takes := take(r, 3)
	err := r.Run(t.Context(), 3, 0, func(b *stage.Batch) error {
		for i, id := range b.IDs {
			if data := r.buffer.Data(b.Offsets[i], b.Lengths[i]); !bytes.Equal(data,
				bytes.Repeat([]byte{byte(id)}, 2*sampleSize)) {
				t.Errorf("sample %d has %d other bytes", id, len(data))
			}
		}
		return takes(b)
	})
	if err != nil {
		t.Fatal(err)
	}
	// A sample has 0.0001 MB, and takes 0.001 s.
	if rate := w.Transforms(); rate < 0.0999 || rate > 0.1001 {
		t.Errorf("%g MB/s", rate)
	}
	rep := w.Report()
	if e := rep.Epochs[0]; e.Transformed == nil || e.Transformed.Samples != 6 {
		t.Errorf("transformed in the epoch: %+v", e.Transformed)
	}
	if got := rep.Preprocessing.Changes; !slices.Equal(got, []report.Change{{To: 3}}) {
		t.Errorf("threads: %+v", got)
	}
	p.spent = 0
	if rate := w.Transforms(); rate != 0 {
		t.Errorf("%g MB/s in no time", rate)
	}
}

// TestReportDescribesEpochs checks what a report has of epochs: their tiers, how far batches were
// staged ahead, where ranks are, and how long the job has run.
func TestReportDescribesEpochs(t *testing.T) {
	w := start(t, nil)
	r := w.join(t, 0)
	if epochs := w.Report().Ranks[0]; epochs.Position != (report.Position{}) || !epochs.Open {
		t.Errorf("before the first batch: %+v", epochs)
	}
	asked := make(chan struct{})
	go func() { // while ranks come
		defer close(asked)
		w.staged()
	}()
	second := w.join(t, 1)
	defer second.Close()
	<-asked
	if !w.since.IsZero() {
		t.Error("reads for the job have begun, before the first batch")
	}
	for e := range 2 {
		epoch(t, r, e)
	}
	rep := w.Report()
	for e := range 2 {
		d := rep.Epochs[e]
		if len(d.Tiers) != 1 || d.Tiers[0].Samples < 6 || d.Ahead < 2 {
			t.Errorf("epoch %d: %d ahead, tiers %+v", e, d.Ahead, d.Tiers)
		}
	}
	if rep.Ran <= 0 {
		t.Errorf("the job ran for %g s", rep.Ran)
	}
	if at := rep.Ranks[0].Position; at != (report.Position{Epoch: 2}) {
		t.Errorf("rank 0 is at %+v", at)
	}
	r.Close()
	if left := w.Report().Ranks[0]; left.Open || left.Epoch != 2 || len(left.Epochs) < 2 {
		t.Errorf("rank 0 has left: %+v", left)
	}
}

// TestEarlyReadsCountForTheFirstEpoch checks that what is read ahead before a rank has begun counts
// for the epoch that the job begins with, or resumes in, and for epoch 0 until that is known.
func TestEarlyReadsCountForTheFirstEpoch(t *testing.T) {
	w := start(t, nil)
	r := w.join(t, 0)
	defer r.Close()
	w.ReadAhead(70)
	source := func() map[int]int64 {
		bytes := map[int]int64{}
		for _, e := range w.Report().Epochs {
			bytes[e.Epoch] = e.Source.Bytes
		}
		return bytes
	}
	if got, want := source(), map[int]int64{0: 70}; !maps.Equal(got, want) {
		t.Errorf("before the job has begun: %v, want %v", got, want)
	}
	w.goesOn(2, 1)
	w.ReadAhead(20)
	w.goesOn(3, 0)
	w.ReadAhead(5)
	if got, want := source(), map[int]int64{2: 90, 3: 5}; !maps.Equal(got, want) {
		t.Errorf("after the job has resumed in epoch 2: %v, want %v", got, want)
	}
}

func (d *lacking) Requests() *report.Requests { return nil }

func (waited) Requests() *report.Requests { return nil }
