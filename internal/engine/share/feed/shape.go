package feed

// Shape describes the epochs of a rank: samples and batches, which have the same size but for the
// last of each epoch.
type Shape struct{ Steps, Samples, Batch int }

// split returns the epoch of a batch, and its number there, given by its step over all epochs.
func (s Shape) split(n int) (epoch, step int) { return n / s.Steps, n % s.Steps }

// span returns which samples a batch has, of those of an epoch.
func (s Shape) span(step int) (from, to int64) {
	return int64(step * s.Batch), int64(min((step+1)*s.Batch, s.Samples))
}
