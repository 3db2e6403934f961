package routing

const (
	// ExtraWorkers is how many workers of a node there are besides those that read from the source,
	// if their number is tuned: they read from other tiers, transform, and wait for the source.
	ExtraWorkers = 16

	// CopyMemory is how many bytes copies that wait to be written to a class may take: twice what a
	// staging buffer has, which the batches of a job's start fill as fast as the source is, before
	// the class has written anything.
	CopyMemory = 64 << 20
	// AheadMemory is how many of these copies may take for a sample to be read ahead of time: half is
	// left to what is read for batches, which costs no read of its own.
	AheadMemory = CopyMemory / 2

	// awayMemory is how many bytes may be in the buffers of workers in whose place others work, and
	// mostAway how many these are at most, with buffers of MinBuffer: 64 requests of 110 KB keep a
	// link of 1 Gbit/s busy for 56 ms.
	awayMemory = 64 << 20
	mostAway   = 64
	// MinBuffer is how many bytes of a buffer a worker keeps at least for its next sample.
	MinBuffer = 1 << 20
)

// Fillers returns how many of so many workers may bring samples ahead of time.
func Fillers(workers int) int { return max(workers*3/4, 1) }

// Buffer returns how many bytes of a buffer a worker keeps for its next sample, of a dataset of so
// many bytes and samples.
func Buffer(bytes int64, samples int) int {
	return int(max(MinBuffer, 4*bytes/int64(max(samples, 1))))
}

// Away returns in the place of how many of the workers that wait for other nodes others work, if
// each has a buffer of so many bytes.
func Away(waiting, buffer int) int {
	return min(waiting, awayMemory/max(buffer, awayMemory/mostAway))
}
