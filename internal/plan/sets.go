package plan

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/bits"
)

// PackSet encodes a set of samples as a bitmap, sample 0 in the lowest bit of the first byte,
// compressed (RFC 1951).
func PackSet(ids []int32) []byte {
	if len(ids) == 0 {
		return nil
	}
	var set []byte
	for _, id := range ids {
		if more := int(id)/8 + 1 - len(set); more > 0 {
			set = append(set, make([]byte, more)...)
		}
		set[id/8] |= 1 << (id % 8)
	}
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.BestSpeed) // cannot fail: the level is valid
	_, _ = w.Write(set)                            // cannot fail: the writer is a buffer
	_ = w.Close()
	return out.Bytes()
}

// UnpackSet decodes a set that PackSet encoded, for a dataset with the given number of samples. The
// result is in ascending order.
func UnpackSet(packed []byte, samples int) ([]int32, error) {
	if len(packed) == 0 {
		return nil, nil
	}
	most := (samples + 7) / 8
	set, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(set) > most {
		return nil, fmt.Errorf("more than %d samples", samples)
	}
	var ids []int32
	for i, b := range set {
		for ; b != 0; b &= b - 1 {
			id := 8*i + bits.TrailingZeros8(b)
			if id >= samples {
				return nil, fmt.Errorf("sample %d; the dataset has 0 to %d", id, samples-1)
			}
			ids = append(ids, int32(id))
		}
	}
	return ids, nil
}
