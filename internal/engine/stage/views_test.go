package stage

import (
	"slices"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// pair is a preprocessor with two results of a sample, of 3 bytes and of 5.
type pair struct {
	leaving
}

func (pair) Size(view int) int    { return []int{3, 5}[view] }
func (pair) Expected(int64) int64 { return 8 }

func (p pair) Apply(alloc func(view, size int) ([]byte, error), _ [][]byte, _ uint8,
	_, id, _ int, _ bool, spent []time.Duration,
) error {
	if err := p.fault(id); err != nil {
		return err
	}
	for view := range 2 {
		dst, err := alloc(view, p.Size(view))
		if err != nil {
			return err
		}
		for i := range dst {
			dst[i] = byte(10*id + view)
		}
	}
	spent[0] += time.Second
	return nil
}

// TestViews: each view of a batch's samples forms a tensor, also if samples are left out. A sample
// that is left to the process is so once, at the place of its first view.
func TestViews(t *testing.T) {
	p := pair{leaving{nth: 3, wrong: map[int]bool{2: true}}}
	g := newRig(t, rigOptions{
		sizes: same(6),
		spec: access.Spec{
			Samples: 6, Epochs: 1, WorldSize: 1, GlobalBatch: 6, Shuffle: access.Sequential,
			Tail: access.Keep,
		},
		threads: 3, buffer: 1 << 16, ahead: 4, policy: Skip, preprocessor: p,
	})
	defer g.close()
	r := g.ranks[0]
	err := r.stager.Run(t.Context(), 0, 0, func(b *Batch) error {
		if want := []uint32{0, 1, 3, 4, 5}; !slices.Equal(b.IDs, want) {
			t.Fatalf("samples %v, want %v", b.IDs, want)
		}
		n := len(b.IDs)
		if b.Outputs() != 2 {
			t.Fatalf("%d outputs", b.Outputs())
		}
		for at, offset := range b.Offsets {
			view, i := at/n, at%n
			size := p.Size(view)
			if offset != b.Offsets[view*n]+uint64(i*size) || b.Lengths[at] != uint64(size) {
				t.Errorf("view %d of %d lies at %d, with %d bytes", view, i, offset, b.Lengths[at])
			}
			data := r.buffer.Data(offset, b.Lengths[at])
			if id := int(b.IDs[i]); id%3 != 0 && data[0] != byte(10*id+view) {
				t.Errorf("view %d of sample %d is that of another: %v", view, id, data)
			}
		}
		var left []uint32
		for _, l := range b.Left {
			left = append(left, l.Position)
		}
		if !slices.Equal(left, []uint32{0, 2}) {
			t.Errorf("left at %v", left)
		}
		g.giveBack(r, b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
