package plan

// Bound returns the fewest bytes that a run of E epochs can read from the source, for a dataset of
// S bytes and caches of `cached` bytes over all nodes (N*D): every byte once, and in every later
// epoch what the caches cannot hold. (Each sample is needed once per epoch, so a cache of x bytes
// serves at most x bytes of an epoch's reads.) It is S + (E-1)*max(0, S-N*D).
//
// It holds if nothing but the caches keeps samples from one epoch to the next, and all ranks go
// through the epochs together. A real run can be below it: a read for the end of an epoch also
// serves the beginning of the next one, if a batch there is staged by then. That is at most what is
// staged, or as much as ranks are apart. To subtract the staging buffers' capacity would make the
// bound S for most datasets that they could hold, although hardly any sample is staged twice.
func Bound(dataset, cached int64, epochs int) int64 {
	if epochs <= 0 {
		return 0
	}
	return dataset + int64(epochs-1)*max(0, dataset-cached)
}

// Demand is what an epoch needs: the bytes of its samples, each counted once, and of those that no
// earlier epoch needed.
type Demand struct{ Bytes, New int64 }

// BoundOf is Bound for epochs that need different samples, and caches whose size changes: an epoch
// reads from the source what was never read before, and at least what cannot have been cached when
// it began, of which cached returns the bytes, for the epoch at an index.
func BoundOf(epochs []Demand, cached func(at int) int64) (bound int64) {
	for at, e := range epochs {
		bound += max(e.New, e.Bytes-cached(at))
	}
	return bound
}
