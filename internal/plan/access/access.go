// Package access derives, from the seed of the shuffle, the access stream of every rank and epoch:
// which samples a rank reads and in which order (R of thesis equation 3.1), and conversely which
// ranks read a given sample, and when. Access frequencies (thesis 3.2.1), first and next accesses
// follow from it.
//
// Everything here is a pure function of a Spec, or of given orders: no I/O, and no goroutine that
// outlives a call. A Stream and its Epochs are safe for concurrent use.
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
	// Given takes the order of each epoch from the caller instead of drawing it (NewGiven,
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
	// Subset, if not nil, restricts the stream to a part of the dataset: position p of what is
	// shuffled, distributed and padded is sample Subset[p], as in torch.utils.data.Subset. Samples
	// may repeat. It must not change while the stream is in use.
	Subset []int32
	// Mixture, if not nil, has epochs take samples of several datasets by weights: their positions
	// are those that it draws. Shuffle must be Feistel or Sequential.
	Mixture *Mixture
}
