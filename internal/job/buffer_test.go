package job

import (
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/order"
	"github.com/hdmlp/hdmlp/internal/request"
)

// big stands for a transform to images of some mebibytes.
type big struct{}

const bigSize = 10<<20 + 1

func (big) Expected(float64) float64 { return bigSize }
func (big) Ragged() bool             { return false }

// TestBufferHoldsWholeBatches has an epoch end with a batch of half the size: as many slots fit as
// there would without it, each of whole pages.
func TestBufferHoldsWholeBatches(t *testing.T) {
	const batch = samples * 2 / 3
	o, err := order.New(&request.Open{WorldSize: 1, Stream: request.Stream{
		Epochs: 4, GlobalBatch: batch, Shuffle: "torch", Scheme: "strided", Tail: "pad",
	}}, &request.Order{}, 7, start(t, nil).p.Order.Index(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := o.Stream().RankSamples(0); n%batch == 0 {
		t.Fatalf("%d samples", n)
	}
	bytes, _ := BufferSize(o, 0, 0, big{})
	if slot := (batch*bigSize + page - 1) / page * page; bytes != int64(batchesStaged*slot) {
		t.Errorf("%d bytes, want %d slots of %d", bytes, batchesStaged, slot)
	}
}

// TestHoldLetsABufferGrow has batches of others than the rank's process, which are larger. A buffer
// whose size was given, and one for which memory is scarce, stay as they are.
func TestHoldLetsABufferGrow(t *testing.T) {
	const others = smallestBuffer / 2 / sampleSize // samples in half of the buffer
	for _, c := range []struct {
		staging int64
		scarce  bool
		want    int64
	}{
		{want: 2 * smallestBuffer},
		{scarce: true, want: smallestBuffer},
		{staging: 1 << 20, want: 1 << 20},
	} {
		w := start(t, func(config *Config, p *Parts) {
			config.Staging = c.staging
			p.Admit = func(_ int64, what, _ string) error {
				if c.scarce && what == "staging buffer" {
					return errors.New("scarce")
				}
				return nil
			}
		})
		r := w.join(t, 0)
		r.Hold(1)
		r.Hold(others)
		r.Hold(1)
		if got := r.buffer.Limit(); got < c.want-page || got > c.want {
			t.Errorf("%+v: %d bytes", c, got)
		}
		r.Close()
	}
}
