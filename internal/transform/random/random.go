// Package random draws what torch, Python's random module and numpy draw after HDMLP has seeded
// them for an entry of a list of transforms and a sample (docs/SEMANTICS.md specifies the keys).
package random

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

// Item returns the key of all random numbers of the sample.
func (k Key) Item() uint64 {
	h := mix64(k.Seed)
	h = mix64(h ^ uint64(k.Epoch))
	h = mix64(h ^ uint64(k.Sample))
	return mix64(h ^ uint64(k.Occurrence))
}

// Draws holds the generators of one entry of a list of transforms for one sample: those of torch,
// of Python's random module and of numpy, as HDMLP seeds them in Python before it calls such an
// entry. A generator is seeded when it is first drawn from.
type Draws struct {
	key    uint64
	Torch  Torch
	Python Python
	Numpy  Numpy
}

// Begin starts the random numbers of the entry at this position of the list.
func (d *Draws) Begin(item uint64, position int) { d.Start(mix64(item ^ uint64(position))) }

// Start starts the random numbers that follow from a key.
func (d *Draws) Start(key uint64) {
	d.key = key
	d.Torch.key, d.Torch.seeded = uint32(key), false
	d.Python.key, d.Python.seeded = key, false
	d.Numpy.key, d.Numpy.seeded = uint32(key>>32), false
}

// Key returns the key that the random numbers follow from.
func (d *Draws) Key() uint64 { return d.key }
