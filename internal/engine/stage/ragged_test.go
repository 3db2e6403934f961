package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// ragged turns every sample into a result whose size depends on the sample and the epoch. For some
// samples it calls alloc more than once.
type ragged struct {
	unreported
	largest int
	wrong   int64 // what it expects for every sample
	bad     map[int]bool
}

func (ragged) Size(int) int             { return 0 }
func (r ragged) Expected(int64) int64   { return r.wrong }
func (ragged) Steps() []string          { return []string{"Make"} }
func (ragged) Takes(int) float64        { return 0 }
func (r ragged) size(epoch, id int) int { return 24 + int(access.Mix(epoch, id)%uint64(r.largest)) }

func (r ragged) Apply(alloc func(int, int) ([]byte, error), src [][]byte, _ uint8,
	epoch, id, _ int, _ bool, _ []time.Duration,
) error {
	size := r.size(epoch, id)
	if id%5 == 0 {
		if _, err := alloc(0, size+16); err != nil {
			return err
		}
	}
	if id%3 == 0 {
		if _, err := alloc(0, size+8); err != nil {
			return fmt.Errorf("at first: %w", err)
		}
	}
	if r.bad[id] {
		return errBad
	}
	dst, err := alloc(0, size)
	if err != nil {
		return err
	}
	if len(dst) != size || cap(dst) != size {
		panic("wrong buffer")
	}
	for i := range dst {
		dst[i] = byte(id + i)
	}
	binary.LittleEndian.PutUint64(dst, uint64(epoch))
	binary.LittleEndian.PutUint64(dst[8:], uint64(id))
	binary.LittleEndian.PutUint32(dst[16:], crc32.ChecksumIEEE(src[0]))
	return nil
}

// TestRaggedResultsAreCompleteAndInOrder checks that results of different sizes are complete and in
// order, however small the buffer is, whatever size is expected, and whatever the process keeps;
// and that the buffer is empty at the end.
func TestRaggedResultsAreCompleteAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.IntRange(1, 60).Draw(t, "samples")
		made := make([]int, samples)
		for i := range made {
			made[i] = 10 + i
		}
		p := ragged{
			largest: rapid.SampledFrom([]int{1, 300, 9000}).Draw(t, "largest"),
			wrong:   rapid.SampledFrom([]int64{1, 500, 1 << 20}).Draw(t, "expected"),
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
			memory: int64(rapid.IntRange(0, 1000).Draw(t, "memory")), threads: 3,
			buffer: 4096 * int64(rapid.IntRange(1, 4).Draw(t, "pages")),
			ahead:  rapid.IntRange(1, 8).Draw(t, "ahead"), preprocessor: p,
		})
		defer g.close()
		keep := rapid.IntRange(0, 5).Draw(t, "kept")
		var charged int64
		for r := range g.ranks {
			got, err := g.run(g.ranks[r], step{}, 0, keep)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 2*g.stream.Steps() {
				t.Fatalf("%d batches, want %d", len(got), 2*g.stream.Steps())
			}
			for at, batch := range got {
				if want := g.want(r, at); !equal(batch, want) {
					t.Fatalf("batch %v of rank %d is %v, want %v", at, r, batch, want)
				}
			}
			if used, extra := g.ranks[r].buffer.Usage(); used != 0 || extra != 0 {
				t.Fatalf("everything was returned, but %d and %d bytes are in use", used, extra)
			}
			for _, e := range g.ranks[r].ledger.Epochs() {
				charged += e.Source.Samples
			}
		}
		if read, _ := g.cache.SourceReads(); read != charged {
			t.Fatalf("%d samples were read from the source, and %d are charged to epochs", read,
				charged)
		}
	})
}

// TestRaggedFaultsFollowThePolicy checks that samples that cannot be transformed are left out or
// substituted even if results vary in size and do not fit.
func TestRaggedFaultsFollowThePolicy(t *testing.T) {
	for policy, want := range map[Policy][]int{
		Skip:       {0, 2, 5},
		Substitute: {0, 2, 2, 5, 5, 5},
	} {
		for _, pages := range []int64{1, 16} {
			g := newRig(t, rigOptions{
				sizes: []int{100, 200, 300, 400, 500, 600},
				spec: access.Spec{
					Samples:     6,
					Epochs:      3,
					WorldSize:   1,
					GlobalBatch: 6,
					Shuffle:     access.Sequential,
					Tail:        access.Keep,
				},
				threads: 3, buffer: 4096 * pages, ahead: 4, policy: policy,
				preprocessor: ragged{
					largest: 9000,
					wrong:   1,
					bad:     map[int]bool{1: true, 3: true, 4: true},
				},
			})
			got, err := g.run(g.ranks[0], step{}, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			for at, batch := range got {
				var ids []int
				for _, s := range batch {
					ids = append(ids, s.id)
					if binary.LittleEndian.Uint64(s.data[8:]) != uint64(s.id) ||
						len(s.data) != g.ranks[0].stager.preprocessor.(ragged).size(at.epoch,
							s.id) {
						t.Errorf("%s: sample %d has %d bytes of another", policy, s.id, len(s.data))
					}
				}
				if !slices.Equal(ids, want) {
					t.Errorf("%s: batch %v has samples %v, want %v", policy, at, ids, want)
				}
			}
			faults := g.faults.List()
			if len(faults) != 3 {
				t.Errorf("%s: faults %+v", policy, faults)
			}
			for _, f := range faults {
				if f.Count != 3 {
					t.Errorf("%s: sample %d was left out 3 times, and is counted %d times", policy,
						f.Sample, f.Count)
				}
			}
			for epoch := range 3 {
				missing := access.Mix(epoch, 1) + access.Mix(epoch, 3) + access.Mix(epoch, 4)
				if policy == Substitute {
					missing -= access.Mix(epoch, 2) + 2*access.Mix(epoch, 5)
				}
				if n, got := g.ranks[0].ledger.Delivered(epoch); int(n) != len(want) ||
					got != missing {
					t.Errorf("%s, epoch %d: the audit counts %d samples, %x missing; want %d, %x",
						policy, epoch, n, got, len(want), missing)
				}
			}
			g.close()
		}
	}
	g := newRig(t, rigOptions{
		sizes: []int{100, 200}, spec: access.Spec{
			Samples:     2,
			Epochs:      1,
			WorldSize:   1,
			GlobalBatch: 2,
			Shuffle:     access.Sequential,
			Tail:        access.Keep,
		},
		threads: 2, buffer: 4096, ahead: 2, policy: Raise,
		preprocessor: ragged{largest: 9000, wrong: 1, bad: map[int]bool{1: true}},
	})
	defer g.close()
	if _, err := g.run(g.ranks[0], step{}, 0, 0); !errors.Is(err, errBad) {
		t.Errorf("%v, want %v", err, errBad)
	}
}

// TestSizesAreLearned checks that a batch reserves memory by the sizes of earlier results.
func TestSizesAreLearned(t *testing.T) {
	var s sizes
	if _, known := s.expect(10, 8); known {
		t.Error("a size is expected before any result")
	}
	for i := range 1000 {
		s.add(900 + 200*(i%2))
	}
	if bytes, known := s.expect(100, 8); !known || bytes < 100*1000 || bytes > 110*1000 {
		t.Errorf("%d bytes for 100 results of 1000 on average", bytes)
	}
}
