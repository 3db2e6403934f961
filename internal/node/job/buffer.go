package job

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/node/order"
)

const (
	page           = 4096     // bytes
	smallestBuffer = 32 << 20 // bytes, unless 4 batches need more
	batchesStaged  = 4
	// A staging buffer whose size was not given grows up to growth times its first size, and at most
	// to mostStaged bytes.
	growth     = 8
	mostStaged = 1 << 30
	// If prefetch_batches was given, it grows no further than to hold that number of batches and held
	// more: those that the process has not given back, and room for one at the end of the ring.
	held = 3
	// A staging buffer grows only if spare times as much memory is available: what it is for comes
	// later than what training processes and files need.
	spare = 4
	// mostAhead is up to how many batches are staged and not yet taken if prefetch_batches was not
	// given.
	mostAhead = 4096
	// maxRagged is the largest default if transforms produce images of different sizes, in bytes,
	// unless 2 batches need more.
	maxRagged = 512 << 20
)

// Sizes estimates the sizes of transformed samples.
type Sizes interface {
	// Expected estimates the size of the transform's result for a sample of the given size.
	Expected(bytes float64) float64
	// Ragged reports whether results differ in size.
	Ragged() bool
}

// BufferSize returns the size of a rank's staging buffer, and a warning if that is not the size
// asked for. asked is 0 if the size is left open; program is nil if samples are not transformed.
func BufferSize(o *order.Order, rank int, asked int64,
	program Sizes,
) (bytes int64, warning string) {
	batch := batchBytes(o, rankBatch(o, rank), program)
	bytes = asked
	switch {
	case bytes == 0:
		bytes = defaultSize(batch, program)
	case bytes < 2*batch:
		warning = fmt.Sprintf("staging_buffer = %d bytes is less than 2 batches of about %d "+
			"bytes; using %d bytes",
			bytes, batch, 2*batch)
		bytes = 2 * batch
	}
	return bytes, warning
}

// rankBatch returns the samples of a rank's largest batch.
func rankBatch(o *order.Order, rank int) int {
	stream, spec := o.Stream(), o.Stream().Spec()
	if o.Given() { // batches may differ in size, and have the same number of samples on all ranks
		return (spec.GlobalBatch + spec.WorldSize - 1) / spec.WorldSize
	}
	return stream.Offset(rank, min(1, stream.Steps()))
}

// batchBytes estimates the bytes of a batch.
func batchBytes(o *order.Order, samples int, program Sizes) int64 {
	sample := o.Mean()
	if program != nil {
		sample = program.Expected(sample)
	}
	return int64(float64(samples) * sample)
}

// defaultSize returns the size of a buffer for batches of so many bytes if none was given.
func defaultSize(batch int64, program Sizes) int64 {
	// In the window of a group, slots have whole pages.
	bytes := max(smallestBuffer, batchesStaged*((batch+page-1)&^(page-1)))
	if program != nil && program.Ragged() { // the sizes are only an estimate
		bytes = min(bytes, max(maxRagged, 2*batch))
	}
	return bytes
}

// mostBuffer returns up to how many bytes the staging buffer of a rank may grow that has this many
// at first.
func (j *Job) mostBuffer(rank int, size int64) int64 {
	if j.config.Staging != 0 {
		return size
	}
	most := min(growth*size, mostStaged)
	if j.config.FixedPrefetch && !j.config.Produces { // the window of a group holds pieces
		batch := batchBytes(j.p.Order, rankBatch(j.p.Order, rank), j.config.Samples)
		most = min(most, int64(j.config.Prefetch+held)*(batch+batch/4)) // batches differ in size
	}
	return max(size, most)
}

// Hold lets the staging buffer grow such that it holds as many batches of so many samples as it
// would of the rank's own, if its size was not given and memory is plentiful.
func (r *Rank) Hold(samples int) {
	j := r.job
	if j.config.Staging != 0 {
		return
	}
	size := defaultSize(batchBytes(j.p.Order, samples, j.config.Samples), j.config.Samples)
	if more := r.buffer.Lacks(size); more > 0 && j.grow(more) {
		r.buffer.Grow(more)
	}
}

// firstBatches returns how many batches are staged before the process has taken one: two, or as
// many as keep the reading threads busy.
func (j *Job) firstBatches(rank int) int {
	batch := max(j.p.Order.Stream().RankSamples(rank)/j.p.Order.Stream().Steps(), 1)
	return max(2, (2*j.p.Cache.Streams()+batch-1)/batch)
}

// grow reports whether a staging buffer may grow by this many bytes, and records that it does.
func (j *Job) grow(bytes int64) bool {
	if j.p.Admit(spare*bytes, "staging buffer", "set staging_buffer") != nil {
		return false
	}
	j.buffers.add(bytes)
	return true
}
