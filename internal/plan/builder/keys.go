package builder

import "slices"

// radixMost is the most keys that are sorted with a second buffer of the same size.
const radixMost = 1 << 20

// sortKeys sorts keys whose low words are already ascending.
func sortKeys(keys []uint64) {
	const digit, small = 11, 512
	if len(keys) < small || len(keys) > radixMost {
		slices.Sort(keys)
		return
	}
	spare := make([]uint64, len(keys))
	from, to := keys, spare
	for shift := 32; shift < 64; shift += digit {
		var start [1<<digit + 1]int32
		for _, k := range from {
			start[k>>shift&(1<<digit-1)+1]++
		}
		if start[from[0]>>shift&(1<<digit-1)+1] == int32(len(from)) {
			continue // all have the same digit
		}
		for d := range 1 << digit {
			start[d+1] += start[d]
		}
		for _, k := range from {
			d := k >> shift & (1<<digit - 1)
			to[start[d]] = k
			start[d]++
		}
		from, to = to, from
	}
	if &from[0] != &keys[0] {
		copy(keys, from)
	}
}
