package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
)

// A dataset's version covers the listing and the contents of some of its files, so that datasets
// with equal names, sizes and times are distinguished. The listing alone determines which files,
// and which of their bytes, so that all nodes read the same ones.
const (
	// excerptFiles is the number of files with an excerpt; smaller datasets have one of each file.
	excerptFiles = 64
	// A file of up to a certain size is read as a whole; of a larger one, four pieces of a quarter
	// of that size are read: its beginning, its end, and two in between. The size is chosen so that
	// all excerpts together are 1/excerptPart of the dataset, within these two limits.
	leastWhole  = 4 << 10
	mostWhole   = 256 << 10
	excerptPart = 1024
)

// Extent is a piece of a file.
type Extent struct{ Offset, Length int64 }

// Excerpt is a file whose contents the dataset's version covers, and the pieces that are read.
type Excerpt struct {
	ID     int
	Pieces []Extent
}

// Excerpts returns the files whose contents the version covers, by ID. It depends on the listing
// alone.
func (x *Index) Excerpts() []Excerpt {
	state := binary.LittleEndian.Uint64(x.listing[:])
	draw := func() uint64 { // splitmix64
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	count := x.layout.excerpts()
	if count == 0 {
		return nil
	}
	var ids []int
	if x.Len() <= excerptFiles {
		for id := range x.Len() {
			ids = append(ids, id)
		}
	}
	chosen := make(map[int]bool, excerptFiles)
	for len(ids) < count {
		if id := int(draw() % uint64(x.Len())); !chosen[id] {
			chosen[id] = true
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	whole := min(max(x.bytes/excerptPart/excerptFiles, leastWhole), mostWhole)
	excerpts := make([]Excerpt, len(ids))
	for i, id := range ids {
		excerpts[i] = Excerpt{ID: id, Pieces: pieces(x.Size(id), whole, draw)}
	}
	return excerpts
}

// pieces returns the pieces that are read of a file of this size.
func pieces(size, whole int64, draw func() uint64) []Extent {
	if size <= whole {
		return []Extent{{0, size}}
	}
	piece := whole / 4
	between := func() int64 { return int64(draw() % uint64(size-piece+1)) }
	return []Extent{{0, piece}, {between(), piece}, {between(), piece}, {size - piece, piece}}
}

// Unreadable is the digest of a file that cannot be read. It is no evidence of the file's contents:
// versions that differ only there may be the same.
var Unreadable = [16]byte(xxh3.HashString128("hdmlp: unreadable").Bytes())

// Versioned is the digest of a file that was not read, because its place says which version of it
// there is, which the listing covers.
var Versioned = [16]byte(xxh3.HashString128("hdmlp: versioned").Bytes())

// SameContents reports whether two lists of digests, in the order of Excerpts, agree wherever both
// files could be read; if not, it returns the index of the first difference.
func SameContents(digests, others [][16]byte) (differs int, same bool) {
	for i, d := range digests {
		if i < len(others) && d != others[i] && d != Unreadable && others[i] != Unreadable {
			return i, false
		}
	}
	return 0, true
}

// Recognise returns an error unless the digests that were found are a dataset's whose digests are
// known. Files that cannot be read now are not compared, but there must be others.
func Recognise(found, known [][16]byte) error {
	readable := func(d [16]byte) bool { return d != Unreadable }
	if slices.ContainsFunc(known, readable) && !slices.ContainsFunc(found, readable) {
		return errors.New("no file of the dataset can be read")
	}
	if _, same := SameContents(found, known); !same {
		return errors.New("another dataset is mounted")
	}
	return nil
}

// hashers are reused, so that nothing is allocated for each file.
var hashers = sync.Pool{New: func() any { return xxh3.New() }}

// ContentDigest returns the digest of the pieces that were read of a file.
func ContentDigest(pieces ...[]byte) [16]byte {
	if len(pieces) == 1 {
		return xxh3.Hash128(pieces[0]).Bytes()
	}
	h := hashers.Get().(*xxh3.Hasher)
	defer hashers.Put(h)
	h.Reset()
	for _, p := range pieces {
		_, _ = h.Write(p) // a hash never fails
	}
	return h.Sum128().Bytes()
}

// WithContents returns the index with the digests of its excerpts, in the order of Excerpts.
func (x *Index) WithContents(digests [][16]byte) (*Index, error) {
	if n := x.layout.excerpts(); len(digests) != n {
		return nil, fmt.Errorf("%d digests for the %d files of the excerpts", len(digests), n)
	}
	image := slices.Clone(x.image)
	section := x.layout.contents.of(image)
	for i, d := range digests {
		copy(section[16*i:], d[:])
	}
	body := image[:len(image)-checksumSize]
	binary.LittleEndian.PutUint64(image[len(body):], xxh3.Hash(body))
	y := *x
	y.image = image
	y.fingerprint = y.version()
	return &y, nil
}

// Contents returns the digests of the excerpts, in the order of Excerpts.
func (x *Index) Contents() [][16]byte {
	section := x.layout.contents.of(x.image)
	digests := make([][16]byte, len(section)/16)
	for i := range digests {
		copy(digests[i][:], section[16*i:])
	}
	return digests
}

// version hashes the listing and the contents.
func (x *Index) version() [16]byte {
	b := append([]byte("hdmlp dataset 2\n"), x.listing[:]...)
	return xxh3.Hash128(append(b, x.layout.contents.of(x.image)...)).Bytes()
}
