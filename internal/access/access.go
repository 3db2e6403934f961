// Package access turns the seed of the shuffle into the access stream of every
// rank and epoch: which samples a rank reads, in which order (R of thesis
// equation 3.1), and, the other way, who reads a given sample when. From it come
// access frequencies (thesis 3.2.1), first and next accesses.
//
// Everything here is a pure function of a Spec, or of orders that are given: no I/O, no goroutine
// that outlives a call. A Stream and its Epochs are safe for concurrent use.
package access

// Shuffle is how the permutation of an epoch is drawn from the seed.
type Shuffle string

const (
	// Torch is bit-exact with torch.utils.data.DistributedSampler(shuffle=True):
	// torch.randperm seeded with seed+epoch. Materialised, an epoch at a time.
	Torch Shuffle = "torch"
	// Feistel is a keyed bijection on [0, F): O(1) memory, and O(1) time both ways.
	Feistel Shuffle = "feistel"
	// Sequential does not shuffle, as DistributedSampler(shuffle=False).
	Sequential Shuffle = "none"
	// Given does not draw: somebody else does, and says each epoch's order (NewGiven,
	// NewGivenShared).
	Given Shuffle = "given"
)

// Scheme is how a global batch is distributed over the ranks (thesis 4.1.3).
type Scheme string

const (
	Strided    Scheme = "strided"    // torch's: rank r takes r, r+N, r+2N, ...
	Uniform    Scheme = "uniform"    // contiguous slices of ceil(|B|/N), the last ones shorter
	Whole      Scheme = "whole"      // every rank gets the whole batch: model parallelism
	Imbalanced Scheme = "imbalanced" // half of the ranks get four times what the others get
)

// Tail is what happens to F mod world size samples at the end of an epoch.
type Tail string

const (
	Pad  Tail = "pad"  // repeat the epoch's first samples, as DistributedSampler(drop_last=False)
	Drop Tail = "drop" // leave them out, as DistributedSampler(drop_last=True)
	Keep Tail = "keep" // deliver each exactly once: ranks may differ by a few samples
)

// Spec defines a stream.
type Spec struct {
	Samples     int     // F, in [1, 2^31)
	Seed        uint64  // of the shuffle
	Epochs      int     // E; 0: no end
	WorldSize   int     // N ranks
	GlobalBatch int     // samples of a step over all ranks
	DropLast    bool    // drop an epoch's last, short batch
	Shuffle     Shuffle // default Torch
	Scheme      Scheme  // default Strided
	Tail        Tail    // default Pad
	// Subset, if not nil, is the part of the dataset that the stream is over: position p of what is
	// shuffled, dealt out and padded is sample Subset[p], as in torch.utils.data.Subset. Samples
	// may repeat. It must not change as long as the stream is in use.
	Subset []int32
}
