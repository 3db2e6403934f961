// Package digest says what tells a sample's bytes apart, wherever they go: the digest taken at the
// first read from the source, which storage classes check at each read, and which travels with the
// bytes between nodes.
//
// It finds differences that nobody made on purpose; it is no proof against forgery.
package digest

import "github.com/zeebo/xxh3"

// Of is the digest of a sample's bytes: the lower half of their XXH3. It takes a quarter of the
// time of a CRC-32C, and every sample that is read pays for it.
func Of(data []byte) uint32 { return uint32(xxh3.Hash(data)) }

// Hash takes a sample's bytes piece by piece. The zero value has taken none.
type Hash struct{ h xxh3.Hasher }

// Add takes more bytes.
func (h *Hash) Add(data []byte) { _, _ = h.h.Write(data) } // a hash never fails

// Sum is the digest of the bytes that were taken.
func (h *Hash) Sum() uint32 { return uint32(h.h.Sum64()) }
