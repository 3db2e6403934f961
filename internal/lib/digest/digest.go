// Package digest computes the checksum of a sample's bytes. It is taken at the first read from the
// source, checked by storage classes at each read, and sent along with the bytes between nodes.
//
// It detects accidental corruption and does not protect against forgery.
package digest

import "github.com/zeebo/xxh3"

// Of returns the digest of a sample's bytes: the lower half of their XXH3. It takes a quarter of
// the time of a CRC-32C, which matters because it is computed for every sample that is read.
func Of(data []byte) uint32 { return uint32(xxh3.Hash(data)) }

// Hash computes the digest of bytes that arrive in pieces. The zero value is ready to use.
type Hash struct{ h xxh3.Hasher }

// Add adds bytes.
func (h *Hash) Add(data []byte) { _, _ = h.h.Write(data) } // a hash never fails

// Sum returns the digest of the bytes added so far.
func (h *Hash) Sum() uint32 { return uint32(h.h.Sum64()) }
