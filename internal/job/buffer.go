package job

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/order"
)

const (
	smallestBuffer = 32 << 20 // bytes of staging buffer, unless four batches need more
	batchesStaged  = 4
	// bytes of staging buffer where samples become images of different sizes, unless two batches
	// need more
	mostRagged = 512 << 20
)

// Sizes say how large what is made of samples is.
type Sizes interface {
	// Expected is about how many bytes a sample becomes that has so many now.
	Expected(bytes float64) float64
	// Ragged reports whether results differ in size.
	Ragged() bool
}

// BufferSize is the size of a rank's staging buffer, and a warning where that is not what was asked
// for. asked is 0 where that is left open; program, if not nil, makes what is delivered.
func BufferSize(o *order.Order, rank int, asked int64,
	program Sizes,
) (bytes int64, warning string) {
	stream, sample := o.Stream(), o.Mean()
	if program != nil {
		sample = program.Expected(sample)
	}
	samples := float64(stream.RankSamples(rank)) / float64(max(stream.Steps(), 1))
	if o.Given() { // batches may differ much
		spec := stream.Spec()
		samples = float64(spec.GlobalBatch / spec.WorldSize)
	}
	batch := int64(samples * sample)
	bytes = asked
	switch {
	case bytes == 0:
		bytes = max(smallestBuffer, batchesStaged*batch)
		if program != nil && program.Ragged() { // how much that is, is a guess
			bytes = min(bytes, max(mostRagged, 2*batch))
		}
	case bytes < 2*batch:
		warning = fmt.Sprintf("staging_buffer = %d bytes is less than two batches of about %d "+
			"bytes: it is made %d",
			bytes, batch, 2*batch)
		bytes = 2 * batch
	}
	return bytes, warning
}
