package transform

import "math"

// Key identifies the random numbers of one occurrence of a sample in an epoch. Random parameters
// are a pure function of the key and of the transform's position in the list.
type Key struct {
	Seed  uint64
	Epoch int
	// Sample is the sample's ID, and Occurrence the number of times that the epoch has it earlier.
	Sample, Occurrence int
}

const golden = 0x9E3779B97F4A7C15

// mix64 returns the output of SplitMix64 for the state x.
func mix64(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// item returns the key of all random numbers of the sample.
func (k Key) item() uint64 {
	h := mix64(k.Seed)
	h = mix64(h ^ uint64(k.Epoch))
	h = mix64(h ^ uint64(k.Sample))
	return mix64(h ^ uint64(k.Occurrence))
}

// draws holds the generators of one entry of a list of transforms for one sample: those of torch
// and of Python's random module, as HDMLP seeds them in Python before it calls such an entry.
// docs/SEMANTICS.md specifies the keys. A generator is seeded when it is first drawn from.
type draws struct {
	key    uint64
	torch  torchStream
	python pythonStream
}

// begin starts the random numbers of the entry at this position of the list.
func (d *draws) begin(item uint64, position int) {
	d.key = mix64(item ^ uint64(position))
	d.torch.key, d.torch.seeded = uint32(d.key), false
	d.python.key, d.python.seeded = d.key, false
}

// round rounds as Python does: halves to even.
func round(x float64) int { return int(math.RoundToEven(x)) }
