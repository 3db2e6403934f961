package stage

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// leaving is a summary that leaves every nth sample to the process.
type leaving struct {
	summary
	nth   int
	wrong map[int]bool // of these it is an error
}

var errLeft = errors.New("left to the process")

// fault returns why a sample has no result; nil: it has one.
func (p leaving) fault(id int) error {
	switch {
	case p.wrong[id]:
		return errBad
	case id%p.nth == 0:
		return errLeft
	}
	return nil
}

func (p leaving) Apply(alloc func(int, int) ([]byte, error), src [][]byte,
	kind uint8, epoch, id, occurrence int, whole bool, spent []time.Duration,
) error {
	if err := p.fault(id); err != nil {
		return err
	}
	return p.summary.Apply(alloc, src, kind, epoch, id, occurrence, whole, spent)
}

func (leaving) Left(err error) (left, usual bool) { return errors.Is(err, errLeft), true }

// TestSamplesAreLeftToTheProcess checks that samples that the preprocessor leaves are delivered as
// they are, whatever memory there is, and the others as always.
func TestSamplesAreLeftToTheProcess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.IntRange(1, 40).Draw(t, "samples")
		made := make([]int, samples)
		for i := range made {
			made[i] = rapid.SampledFrom([]int{1, 20, 300, 9000}).Draw(t, "size")
		}
		g := newRig(t, rigOptions{
			sizes: made,
			spec: access.Spec{
				Samples:     samples,
				Epochs:      2,
				WorldSize:   2,
				GlobalBatch: rapid.IntRange(1, 24).Draw(t, "batch"),
				Shuffle:     access.Torch,
				Tail:        access.Pad,
			},
			threads: 3, buffer: 4096 * int64(rapid.IntRange(1, 4).Draw(t, "pages")),
			ahead:        rapid.IntRange(1, 8).Draw(t, "ahead"),
			preprocessor: leaving{nth: rapid.IntRange(1, 4).Draw(t, "nth")},
		})
		defer g.close()
		for r := range g.ranks {
			got, err := g.run(g.ranks[r], step{}, 0, rapid.IntRange(0, 3).Draw(t, "kept"))
			if err != nil {
				t.Fatal(err)
			}
			for at, batch := range got {
				if want := g.want(r, at); !equal(batch, want) {
					t.Fatalf("batch %v of rank %d is %v, want %v", at, r, batch, want)
				}
			}
			if used, extra := g.ranks[r].buffer.Usage(); used != 0 || extra != 0 {
				t.Fatalf("everything was returned, but %d and %d bytes are in use", used, extra)
			}
		}
	})
}

// TestLeftSamplesBesideBadOnes checks that samples are left at their places if others are left out
// or substituted, also by one that is left.
func TestLeftSamplesBesideBadOnes(t *testing.T) {
	for policy, want := range map[Policy][]int{
		Skip:       {0, 2, 3, 4},
		Substitute: {0, 2, 2, 3, 4, 0},
	} {
		g := newRig(t, rigOptions{
			sizes: []int{100, 200, 300, 400, 500, 600},
			spec: access.Spec{
				Samples:     6,
				Epochs:      2,
				WorldSize:   1,
				GlobalBatch: 6,
				Shuffle:     access.Sequential,
				Tail:        access.Keep,
			},
			threads: 3, buffer: 1 << 16, ahead: 4, policy: policy,
			preprocessor: leaving{nth: 2, wrong: map[int]bool{1: true, 5: true}},
		})
		got, err := g.run(g.ranks[0], step{}, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for at, batch := range got {
			if !slices.Equal(ids(batch), want) {
				t.Fatalf("%s: batch %v has samples %v, want %v", policy, at, ids(batch), want)
			}
			for i, s := range batch {
				left := int64(len(s.data)) == g.source.Index.Size(s.id)
				if left != (s.id%2 == 0) {
					t.Errorf("%s: position %d of batch %v has %d bytes", policy, i, at, len(s.data))
				}
				if !left && binary.LittleEndian.Uint64(s.data[8:]) != uint64(s.id) {
					t.Errorf("%s: position %d of batch %v has another sample's", policy, i, at)
				}
			}
		}
		g.close()
	}
}

// counting is a summary that counts, by sample, how often it was decoded to its end.
type counting struct {
	summary
	mu    *sync.Mutex
	whole map[int]int
}

func (p counting) Apply(alloc func(int, int) ([]byte, error), src [][]byte,
	kind uint8, epoch, id, occurrence int, whole bool, spent []time.Duration,
) error {
	if whole {
		p.mu.Lock()
		p.whole[id]++
		p.mu.Unlock()
	}
	return p.summary.Apply(alloc, src, kind, epoch, id, occurrence, whole, spent)
}

// TestSamplesAreDecodedToTheirEndOnce checks that a sample is decoded to its end when it is first
// preprocessed, and not again, in any epoch and on any rank.
func TestSamplesAreDecodedToTheirEndOnce(t *testing.T) {
	p := counting{mu: &sync.Mutex{}, whole: map[int]int{}}
	o := plain(8, 3)
	o.spec.WorldSize, o.preprocessor = 2, p
	g := newRig(t, o)
	defer g.close()
	for _, r := range g.ranks {
		if _, err := g.run(r, step{}, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	for id := range 8 {
		if p.whole[id] != 1 {
			t.Errorf("sample %d was decoded to its end %d times", id, p.whole[id])
		}
	}
}
