package stage

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"iter"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/cachetest"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/report"
)

// unreported is a part of a Preprocessor that counts nothing.
type unreported struct{}

func (unreported) Report() *report.Preprocessing            { return nil }
func (unreported) Left(error) (bool, bool)                  { return false, false }
func (unreported) ThreadChanges() iter.Seq2[time.Time, int] { return nil }

// summary turns every sample into a few bytes that identify the sample, the epoch, and the sample's
// bytes.
type summary struct {
	unreported
	bad map[int]bool
}

var errBad = errors.New("no summary of that")

func (summary) Size(int) int    { return 20 }
func (summary) Steps() []string { return []string{"Read", "Sum"} }

func (summary) Expected(int64) int64 { return 20 }

func (summary) Takes(int) float64 { return 0 }

func (d summary) Apply(alloc func(int, int) ([]byte, error), src [][]byte,
	_ uint8, epoch, id, occurrence int, _ bool, spent []time.Duration,
) error {
	dst, err := alloc(0, 20)
	if err != nil {
		return err
	}
	if len(dst) != 20 || cap(dst) != 20 || len(spent) != 2 {
		panic("wrong buffer")
	}
	if d.bad[id] {
		return errBad
	}
	binary.LittleEndian.PutUint64(dst, uint64(epoch))
	binary.LittleEndian.PutUint64(dst[8:], uint64(occurrence)<<32|uint64(id))
	binary.LittleEndian.PutUint32(dst[16:], crc32.ChecksumIEEE(src[0]))
	spent[1] += time.Millisecond
	return nil
}

func summaryRig(t *testing.T, policy Policy, bad ...int) *rig {
	d := summary{bad: map[int]bool{}}
	for _, id := range bad {
		d.bad[id] = true
	}
	return newRig(t, rigOptions{
		sizes: []int{100, 200, 300, 400, 500, 600},
		spec: access.Spec{
			Samples:     6,
			Epochs:      1,
			WorldSize:   1,
			GlobalBatch: 6,
			Shuffle:     access.Sequential,
			Tail:        access.Keep,
		},
		memory: 1000, threads: 3, buffer: 1 << 16, ahead: 4, policy: policy, preprocessor: d,
	})
}

// TestPreprocessingFaultsFollowThePolicy checks that samples that cannot be preprocessed are
// treated like samples that cannot be read, and that the rest of the batch remains one tensor.
func TestPreprocessingFaultsFollowThePolicy(t *testing.T) {
	for policy, want := range map[Policy][]int{
		Skip:       {0, 2, 5},
		Substitute: {0, 2, 2, 5, 5, 5},
	} {
		g := summaryRig(t, policy, 1, 3, 4)
		got, err := g.run(g.ranks[0], step{}, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		batch := got[step{0, 0}]
		if len(batch) != len(want) {
			t.Fatalf("%s: %d samples, want %v", policy, len(batch), want)
		}
		for i, s := range batch {
			sum := crc32.ChecksumIEEE(cachetest.Content(want[i], g.source.Index.Size(want[i])))
			if s.id != want[i] || binary.LittleEndian.Uint64(s.data[8:]) != uint64(want[i]) ||
				binary.LittleEndian.Uint32(s.data[16:]) != sum {
				t.Errorf("%s: position %d has sample %d with %x, want sample %d", policy, i, s.id,
					s.data, want[i])
			}
		}
		if faults := g.faults.List(); len(faults) != 3 || faults[0].Path != "/source/a/000001.x" ||
			!strings.Contains(faults[0].Reason, "transforms") ||
			!strings.Contains(faults[0].Reason, errBad.Error()) {
			t.Errorf("%s: faults %+v", policy, faults)
		}
		g.close()
	}
	for range 20 { // always the first one
		g := summaryRig(t, Raise, 3, 4, 5)
		_, err := g.run(g.ranks[0], step{}, 0, 0)
		if err == nil || !errors.Is(err, errBad) ||
			!strings.Contains(err.Error(), "sample 3 (/source/b/000000.x)") {
			t.Errorf("raised %v", err)
		}
		g.close()
	}
}

// TestResultsFormOneTensor checks that results are contiguous, and that samples are counted by
// their size when read, not by the size of the result.
func TestResultsFormOneTensor(t *testing.T) {
	g := summaryRig(t, Raise)
	defer g.close()
	r := g.ranks[0]
	err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
		for i := range b.Offsets {
			if b.Offsets[i] != b.Offsets[0]+uint64(20*i) || b.Lengths[i] != 20 {
				t.Errorf("result %d has %d bytes at %d; the first is at %d", i, b.Lengths[i],
					b.Offsets[i], b.Offsets[0])
			}
		}
		r.ledger.Yielded(0, 0, Stall{All: time.Second})
		_, err := r.buffer.Free(b.Slots[0])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	e := r.ledger.Epochs()[0]
	var read report.Amount
	for _, a := range e.Reads {
		read.Add(a)
	}
	if want := (report.Amount{Samples: 6, Bytes: 2100}); read != want || e.Source != want {
		t.Errorf("read %+v, from the source %+v, want %+v", read, e.Source, want)
	}
}

// TestStallIsDividedAmongTransforms checks that a stall for preprocessing is divided among the
// steps.
func TestStallIsDividedAmongTransforms(t *testing.T) {
	g := summaryRig(t, Raise)
	defer g.close()
	l := g.ranks[0].ledger
	now := time.Now()
	l.emitted(delivery{
		planned: now, ready: now.Add(time.Hour), fetched: true, slow: true,
		spent: []time.Duration{time.Second, 3 * time.Second},
	})
	l.Yielded(0, 0, Stall{All: 8 * time.Second})
	stall := l.Epochs()[0].Stall
	if len(stall) != 2 || stall["transform Read"] != 2 || stall["transform Sum"] != 6 {
		t.Errorf("stall %v", stall)
	}
}

// late is a preprocessor that fails late for some samples.
type late struct {
	summary
	bad map[int]bool
}

func (p late) Apply(alloc func(int, int) ([]byte, error), src [][]byte,
	kind uint8, epoch, id, occurrence int, whole bool, spent []time.Duration,
) error {
	<-time.After(time.Second)
	if p.bad[id] {
		spent[0] += time.Second
		return errBad
	}
	return p.summary.Apply(alloc, src, kind, epoch, id, occurrence, whole, spent)
}

// TestStallIsNotChargedToStepsThatFailed checks that a stall is divided among the steps by their
// times for the samples that are delivered. For a batch without any it is charged to the tier in
// which the last sample was found.
func TestStallIsNotChargedToStepsThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		bad   map[int]bool
		cause string
	}{
		"one of two": {map[int]bool{0: true}, "transform Sum"},
		"all":        {map[int]bool{0: true, 1: true}, "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := plain(2, 1)
				o.preprocessor = late{bad: c.bad}
				o.policy = Skip
				o.memory = 200
				o.threads = 1
				g := newRig(t, o)
				defer g.close()
				for id := range 2 {
					if err := g.serve(id); err != nil {
						t.Fatal(err)
					}
				}
				r := g.ranks[0]
				err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
					r.ledger.Yielded(0, 0, Stall{All: 2 * time.Second})
					g.giveBack(r, b)
					return nil
				})
				if stall := r.ledger.Epochs()[0].Stall; err != nil ||
					!maps.Equal(stall, map[string]float64{c.cause: 2}) {
					t.Errorf("stall %v, want all of it for %s; %v", stall, c.cause, err)
				}
			})
		})
	}
}

// busy is a summary that is the bottleneck.
type busy struct{ summary }

func (busy) Takes(samples int) float64 { return 0.5 * float64(samples) }

// TestSamplesAreDueWhenThreadsNeedThem checks that a sample is not needed before the threads have
// transformed all others, however long the process has been waiting.
func TestSamplesAreDueWhenThreadsNeedThem(t *testing.T) {
	for _, c := range []struct {
		p    Preprocessor
		want float64
	}{{busy{}, 3}, {summary{}, 0}} {
		b := &batch{stager: &Stager{o: Options{}, preprocessor: c.p}}
		b.begin(7)
		b.arrived()
		if got := b.due(time.Now()); got != c.want {
			t.Errorf("%T: due in %.1f s, want %.1f s", c.p, got, c.want)
		}
	}
}
