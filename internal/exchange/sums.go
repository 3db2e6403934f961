package exchange

import (
	"hash/crc32"
	"sync/atomic"
)

// sums remembers the checksum of every sample that was sent, because to sum a
// sample that lies cold in memory costs as much as to send it. It may: a
// sample's bytes never change (Holder). Should memory rot all the same, whoever
// receives it finds out.
//
// It is a tree over the bits of the ID, 11, 10 and 10 of them, that grows where
// samples are: 8 bytes for each and its neighbours. Memory is taken only
// for samples that the Holder has.
type sums struct {
	root [1 << 11]atomic.Pointer[branch]
}

type (
	branch [1 << 10]atomic.Pointer[leaf]
	leaf   [1 << 10]atomic.Uint64 // known | sum; 0: not known
)

const known = 1 << 32

// of returns the sum of sample id, whose bytes are data.
func (s *sums) of(id int32, data []byte) uint32 {
	if b := s.root[id>>20].Load(); b != nil {
		if l := b[id>>10&1023].Load(); l != nil {
			if v := l[id&1023].Load(); v != 0 {
				return uint32(v)
			}
		}
	}
	sum := crc32.Checksum(data, castagnoli)
	l := grow(&grow(&s.root[id>>20])[id>>10&1023])
	l[id&1023].Store(known | uint64(sum))
	return sum
}

// grow gives what at points to, and makes it first where there is nothing.
func grow[T any](at *atomic.Pointer[T]) *T {
	if at.Load() == nil {
		at.CompareAndSwap(nil, new(T))
	}
	return at.Load()
}
