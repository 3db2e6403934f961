package source

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Stamp identifies the instance of a file that a sample's bytes came from. Its upper half is a hash
// of size and modification time: if it differs from the index's, the file was written to. Its lower
// half is a hash of inode and change time: if only this half differs, the file was replaced by one
// with the same times, or its owner, mode or links changed, and its bytes may or may not be the
// same. The zero Stamp is that of sources without stamps, and matches any other.
//
// The device is not part of it: device numbers change when a file system is remounted.
type Stamp uint64

// NewStamp returns the stamp of a file. The size is in bytes, times are in nanoseconds since 1970.
func NewStamp(size, modified, changed int64, inode uint64) Stamp {
	var b [16]byte
	half := func(first, second uint64) Stamp {
		binary.LittleEndian.PutUint64(b[:], first)
		binary.LittleEndian.PutUint64(b[8:], second)
		return Stamp(max(uint32(xxh3.Hash(b[:])), 1)) // 0 means no stamp
	}
	return half(uint64(size), uint64(modified))<<32 | half(inode, uint64(changed))
}

// with returns the stamp of a sample that also has bytes from a file of another stamp: each half
// changes if that of one of the files does.
func (s Stamp) with(other Stamp) Stamp {
	if s == 0 || other == 0 {
		return max(s, other)
	}
	half := func(a, b uint32) Stamp {
		var pair [8]byte
		binary.LittleEndian.PutUint32(pair[:], a)
		binary.LittleEndian.PutUint32(pair[4:], b)
		return Stamp(max(uint32(xxh3.Hash(pair[:])), 1))
	}
	return half(uint32(s>>32), uint32(other>>32))<<32 | half(uint32(s), uint32(other))
}

// Written reports whether the file was written to between the two stamps.
func (s Stamp) Written(since Stamp) bool {
	return s != 0 && since != 0 && s>>32 != since>>32
}

// Instance returns the lower half: the hash of inode and change time.
func (s Stamp) Instance() uint32 { return uint32(s) }

// InDirectory is a Source whose dataset is a directory.
type InDirectory interface {
	// DirectoryID returns the directory's device and inode.
	DirectoryID() (device, inode uint64)
}

// DirectoryHash returns a hash of a directory's device and inode, which is never 0.
func DirectoryHash(device, inode uint64) uint32 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], device)
	binary.LittleEndian.PutUint64(b[8:], inode)
	return max(uint32(xxh3.Hash(b[:])), 1)
}
