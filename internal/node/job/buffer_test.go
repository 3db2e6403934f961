package job

import (
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/order"
	"github.com/hdmlp/hdmlp/internal/node/request"
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

// TestBufferIsForTheRanksOwnBatches checks that a buffer holds as many batches where ranks get
// unequal parts of a global batch, or each all of it.
func TestBufferIsForTheRanksOwnBatches(t *testing.T) {
	index := start(t, nil).p.Order.Index()
	for scheme, want := range map[string][2]int64{
		"strided": {3, 3}, "uniform": {3, 3}, "whole": {6, 6}, "imbalanced": {4, 2},
	} {
		o, err := order.New(&request.Open{WorldSize: 2, Stream: request.Stream{
			Epochs: 4, GlobalBatch: 6, Shuffle: "torch", Scheme: scheme, Tail: "pad",
		}}, &request.Order{}, 7, index, nil)
		if err != nil {
			t.Fatal(err)
		}
		for rank, batch := range want {
			slot := (batch*bigSize + page - 1) / page * page
			if bytes, _ := BufferSize(o, rank, 0, big{}); bytes != batchesStaged*slot {
				t.Errorf("%s, rank %d: %d bytes, want %d slots of %d", scheme, rank, bytes,
					batchesStaged, slot)
			}
		}
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

// TestGivenPrefetchBoundsBuffer checks that a staging buffer grows no further than a given
// prefetch_batches needs, and otherwise to its usual limit. Its first size, one that was given, and
// the window of a group stay as they are.
func TestGivenPrefetchBoundsBuffer(t *testing.T) {
	const batch = 2 * bigSize
	for name, c := range map[string]struct {
		change func(*Config)
		want   int64
	}{
		"default":    {func(*Config) {}, growth * 4 * (batch + page - 2)},
		"1 batch":    {func(c *Config) { c.FixedPrefetch, c.Prefetch = true, 1 }, 5 * batch},
		"5 batches":  {func(c *Config) { c.FixedPrefetch, c.Prefetch = true, 5 }, 10 * batch},
		"many":       {func(c *Config) { c.FixedPrefetch, c.Prefetch = true, 64 }, growth * 4 * batch},
		"given size": {func(c *Config) { c.Staging, c.FixedPrefetch = 3*batch, true }, 3 * batch},
		"window": {func(c *Config) {
			c.FixedPrefetch = true
			c.Prefetch = 1
			c.Produces = true
		}, growth * 4 * batch},
	} {
		t.Run(name, func(t *testing.T) {
			j := start(t, func(config *Config, _ *Parts) {
				config.Samples, config.Staging = big{}, 0
				c.change(config)
			})
			size, _ := BufferSize(j.p.Order, 0, j.config.Staging, big{})
			got := j.mostBuffer(0, size)
			if want := min(c.want, mostStaged); got < want-page || got > want+growth*4*page {
				t.Errorf("%d bytes, want about %d", got, want)
			}
		})
	}
}
