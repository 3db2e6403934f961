package request

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Order is what a process gives for its stream in addition to parameters: a part of the dataset, or
// the orders of epochs. The zero value means neither.
type Order struct {
	Part    *Part     // this rank's part of an epoch that the ranks of several nodes give together
	Subset  []int32   // samples
	Batches []int32   // sizes of the batches of each given epoch
	First   int       // the first epoch given with the request
	Epochs  [][]int32 // samples of the epochs from First on
	Digest  string    // of what the ranks of a job must agree on
	// Rank is the process's, among Ranks with orders and jobs of their own; at most 1: there are no
	// others.
	Rank, Ranks int
}

// Brief returns the order without its long lists.
func (o *Order) Brief() *Order {
	brief := *o
	brief.Batches, brief.Epochs = nil, nil
	return &brief
}

// Admit reserves memory, or returns an error if there is too little; advice describes how to need
// less. A nil Admit admits everything.
type Admit func(bytes int64, what, advice string) error

// maxRanks is the most ranks with orders of their own: with as many occurrences of a sample, their
// number takes 32 bits.
const maxRanks = 1 << 16

// ReadOrder reads the list that came with a request, and validates it.
func ReadOrder(m *Open, admit Admit) (*Order, error) {
	stream := &m.Stream
	if given := access.Shuffle(stream.Shuffle) == access.Given; given != (stream.Given != nil) {
		return nil, failure.Input("stream.shuffle = %q: it must be %q if the process gives the "+
			"epochs' orders (stream.given), and only then", stream.Shuffle, access.Given)
	}
	switch {
	case stream.Mix != nil && (stream.Subset != nil || stream.Given != nil):
		return nil, failure.Input("stream.mix is set beside stream.subset or stream.given; give at " +
			"most one: a mix draws its order from all samples of its datasets")
	case stream.Mix != nil && stream.Mix.Entries > MaxList:
		return nil, failure.Input("stream.mix.entries = %d: an epoch has at most %d samples",
			stream.Mix.Entries, MaxList)
	case stream.Subset != nil && stream.Given != nil:
		return nil, failure.Input("stream.subset and stream.given are both set; give at most " +
			"one: given orders consist of samples of the whole dataset")
	case stream.Subset != nil:
		return readSubset(stream, admit)
	case stream.Given != nil:
		switch {
		case m.Spans():
			return readPart(m, admit)
		case m.WorldSize != 1:
			return nil, failure.Input("stream.given: on a single node only a job with one rank "+
				"can give its own order, but the world size is %d; use a DistributedSampler, or "+
				"one process", m.WorldSize)
		}
		return readGiven(stream, admit)
	}
	return &Order{Digest: "none"}, nil
}

func readSubset(stream *Stream, admit Admit) (*Order, error) {
	l, err := openList(stream.List, "stream.subset", 1, stream.Subset.Count, 0)
	if err == nil {
		err = admit.list(l)
	}
	if err != nil {
		return nil, err
	}
	o := &Order{}
	if o.Subset, err = l.read(stream.Subset.Count); err != nil {
		return nil, err
	}
	o.Digest = fmt.Sprintf("%d samples with the digest %s", len(o.Subset), digestOf(o.Subset))
	return o, nil
}

func readGiven(stream *Stream, admit Admit) (*Order, error) {
	g := stream.Given
	switch {
	case g.Batches < 1 || g.Batches > MaxList:
		return nil, failure.Input("stream.given.batches = %d: an epoch has 1 to %d batches",
			g.Batches, MaxList)
	case g.First < 0 || g.First > MaxEpoch || g.Epochs > MaxEpoch:
		return nil, failure.Input("stream.given.first = %d, epochs = %d: epochs are 0 to %d",
			g.First, g.Epochs, MaxEpoch)
	case g.Ranks < 0 || g.Ranks > maxRanks || g.Rank < 0 || g.Rank >= max(g.Ranks, 1):
		return nil, failure.Input("stream.given.rank = %d, ranks = %d: ranks are 0 to ranks - 1, "+
			"of at most %d", g.Rank, g.Ranks, maxRanks)
	}
	l, err := openList(stream.List, "stream.given", g.Epochs, g.Entries, g.Batches)
	if err == nil {
		err = admit.list(l)
	}
	if err != nil {
		return nil, err
	}
	o := &Order{First: g.First, Rank: g.Rank, Ranks: g.Ranks}
	if o.Batches, err = l.read(g.Batches); err != nil {
		return nil, err
	}
	for range g.Epochs {
		ids, err := l.read(g.Entries)
		if err != nil {
			return nil, err
		}
		o.Epochs = append(o.Epochs, ids)
	}
	o.Digest = fmt.Sprintf("%d batches with the digest %s", len(o.Batches), digestOf(o.Batches))
	return o, nil
}

// digestOf returns the digest that nodes compare instead of a list.
func digestOf(list []int32) string {
	h := sha256.New()
	var piece [4096]byte
	for part := range slices.Chunk(list, len(piece)/4) {
		for i, v := range part {
			binary.LittleEndian.PutUint32(piece[4*i:], uint32(v))
		}
		h.Write(piece[:4*len(part)])
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// ReadSamples reads a number of samples from a descriptor. what names the request's key for errors.
func ReadSamples(file *os.File, what string, entries int, admit Admit) ([]int32, error) {
	l, err := openList(file, what, 1, entries, 0)
	if err == nil {
		err = admit.list(l)
	}
	if err != nil {
		return nil, err
	}
	return l.read(entries)
}

// list reads 32-bit numbers from a descriptor that a process passed. The descriptor is not trusted.
type list struct {
	file *os.File
	what string // key of the request, for errors
	at   int64  // offset of the next read
	need int64  // bytes to read
	size int64
}

// openList checks a descriptor that must hold `before` numbers followed by `rows` times `entries`.
// It must be a memfd, so that a read neither blocks nor fails, nor waits for another file system.
func openList(file *os.File, what string, rows, entries, before int) (*list, error) {
	if rows < 1 || rows > MaxList || entries < 1 || entries > MaxList || rows*entries > MaxList {
		return nil, failure.Input("%s: %d x %d samples (epochs x samples of each); allowed: at "+
			"least 1 of each, and at most %d samples in all", what, rows, entries, MaxList)
	}
	if file == nil {
		return nil, failure.Input("%s came without its descriptor", what)
	}
	size, err := sizeOf(file, what)
	if err != nil {
		return nil, err
	}
	l := &list{
		file: file,
		what: what,
		size: size,
		need: 4 * (int64(before) + int64(rows)*int64(entries)),
	}
	if size < l.need {
		return nil, l.short(l.need)
	}
	return l, nil
}

// sizeOf returns the size of what a process passed in a memfd, and an error if it is none.
func sizeOf(file *os.File, what string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return 0, failure.Input("%s: its descriptor cannot be used: %v", what, err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0); err != nil ||
		st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, failure.Input("%s: its descriptor is not a memfd; pass one made by memfd_create",
			what)
	}
	return st.Size, nil
}

// ReadManifest reads a manifest that came with a request. It does not map the file, so that a
// process which truncates it meanwhile does no harm.
func ReadManifest(file *os.File, admit Admit) (*source.Manifest, error) {
	const what = "dataset.manifest"
	size, err := sizeOf(file, what)
	if err != nil {
		return nil, err
	}
	if admit != nil {
		// The index that is made of it takes about as much.
		if err := admit(2*size, what+": the list of records", "give fewer at a time"); err != nil {
			return nil, err
		}
	}
	data := make([]byte, size)
	if n, err := file.ReadAt(data, 0); int64(n) < size {
		return nil, failure.Input("%s: its descriptor cannot be read: %v", what, err)
	}
	return source.NewManifest(data), nil
}

// list returns an error if there is too little memory for the list.
func (admit Admit) list(l *list) error {
	if admit == nil {
		return nil
	}
	return admit(l.need, l.what+": the list of samples", "give a shorter one")
}

func (l *list) short(need int64) error {
	return failure.Input("%s: its descriptor has %d bytes, and %d are needed: 4 for each entry",
		l.what, l.size, need)
}

// read reads the next entries, piece by piece. It does not map the file, so that a process which
// truncates it meanwhile does no harm.
func (l *list) read(entries int) ([]int32, error) {
	out := make([]int32, 0, entries)
	piece := make([]byte, min(4*entries, 1<<20))
	for len(out) < entries {
		part := piece[:min(len(piece), 4*(entries-len(out)))]
		n, err := l.file.ReadAt(part, l.at)
		l.at += int64(n)
		switch {
		case errors.Is(err, io.EOF) && n < len(part):
			l.size = l.at
			return nil, l.short(l.at + int64(4*(entries-len(out))-n))
		case err != nil && n < len(part):
			return nil, failure.Input("%s: its descriptor cannot be read: %v", l.what, err)
		}
		for ; len(part) > 0; part = part[4:] {
			out = append(out, int32(binary.LittleEndian.Uint32(part)))
		}
	}
	return out, nil
}
