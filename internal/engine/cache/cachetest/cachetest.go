// Package cachetest provides fakes for tests of caches, and of what reads through them: a source
// whose bytes follow from the sample's ID and whose faults the test chooses, and real stores with a
// plan for what they are to hold.
package cachetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// T is a test, a benchmark or a rapid.T.
type T interface {
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// Source is a fake source. The bytes of a sample follow from its ID.
type Source struct {
	Index *source.Index
	Reads []atomic.Int32
	Bad   map[int]bool // samples that cannot be read

	Hook func(ctx context.Context, id int) error // if not nil, called first by every Read

	// The current state of the source: its directory, the instance of each file, and its bytes.
	// nil: as at the beginning.
	Inode   uint64
	Changed func(id int) int64
	Bytes   func(id int, dst []byte)
	Stats   atomic.Int32
}

// NewSource returns a source with samples of the given sizes.
func NewSource(t T, sizes []int) *Source {
	b := source.NewBuilder([]string{"a", "b"}, []string{".x"})
	b.Directory(source.Directory{Path: "", Class: -1})
	half := (len(sizes) + 1) / 2
	for class, part := range [][]int{sizes[:half], sizes[half:]} {
		b.Directory(source.Directory{Path: string(rune('a' + class)), Class: class})
		for i, size := range part {
			b.Sample(fmt.Sprintf("%06d.x", i), int64(size), 0, 0)
		}
	}
	index, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return &Source{Index: index, Reads: make([]atomic.Int32, len(sizes)), Bad: map[int]bool{}}
}

// block is how much of a sample is random: drawing megabytes takes seconds with the race detector.
const block = 1 << 16

// Content returns the bytes of a sample of the given size. Each block after the first is the first
// one with its own offset at its beginning.
func Content(id int, size int64) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(id), 1))
	var w [8]byte
	for i := 0; i < min(len(b), block); i += 8 {
		binary.LittleEndian.PutUint64(w[:], r.Uint64())
		copy(b[i:], w[:])
	}
	for i := block; i < len(b); i += block {
		copy(b[i:], b[:block])
		binary.LittleEndian.PutUint64(w[:], uint64(i))
		copy(b[i:], w[:])
	}
	return b
}

// DirectoryID implements source.InDirectory.
func (s *Source) DirectoryID() (device, inode uint64) { return 1, s.Inode }

func (s *Source) stamp(id int) source.Stamp {
	if s.Changed == nil {
		return 0
	}
	return source.NewStamp(s.Index.Size(id), 0, s.Changed(id), uint64(id))
}

// Read implements source.Source.
func (s *Source) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	s.Reads[id].Add(1)
	if s.Hook != nil {
		if err := s.Hook(ctx, id); err != nil {
			return 0, err
		}
	}
	if s.Bad[id] {
		return 0, &source.SampleError{ID: id, Path: s.Path(id), Kind: source.ErrMissing}
	}
	copy(dst, Content(id, int64(len(dst))))
	if s.Bytes != nil {
		s.Bytes(id, dst)
	}
	return s.stamp(id), nil
}

// Stat implements source.Source.
func (s *Source) Stat(_ context.Context, id int) (source.Stamp, error) {
	s.Stats.Add(1)
	if s.Bad[id] {
		return 0, &source.SampleError{ID: id, Path: s.Path(id), Kind: source.ErrMissing}
	}
	return s.stamp(id), nil
}

// Close implements source.Source.
func (s *Source) Close() error { return nil }

// Path implements source.Locator.
func (s *Source) Path(id int) string { return "/source/" + s.Index.Name(id) }

// Hanging returns a Hook that makes the first read of each of the given samples hang, as if in the
// kernel, until gate is closed.
func Hanging(gate <-chan struct{}, samples ...int) func(context.Context, int) error {
	hung := make([]atomic.Bool, 100)
	return func(_ context.Context, id int) error {
		if slices.Contains(samples, id) && !hung[id].Swap(true) {
			<-gate
		}
		return nil
	}
}

// Options say which stores to open.
type Options struct {
	Memory, File int64         // capacity in bytes; 0: no such store
	MemoryClass  *memory.Class // nil: a new one
	Dir          string        // of the file class
	Spare        int64         // bytes that the file class has besides
	PlanAll      bool          // plan all samples for the first store, whatever its capacity
}

// Stores are the open stores for a source's samples.
type Stores struct {
	Names  []string // memory, file
	Stores []store.Store
	// Plan is what each store is to hold: the first samples that fit the first store, then the
	// next.
	Plan [][]int32
	file *file.Class
}

// Open opens stores for the samples of a source.
func Open(t T, s *Source, o Options) *Stores {
	out := &Stores{}
	ds := store.Dataset{
		Fingerprint: s.Index.Fingerprint(),
		Samples:     s.Index.Len(),
		Size:        s.Index.Size,
	}
	next := 0
	add := func(name string, class store.Class, capacity int64) {
		store, err := class.Open(ds, capacity)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int32
		for ; next < s.Index.Len() && (o.PlanAll || capacity >= s.Index.Size(next)); next++ {
			capacity -= s.Index.Size(next)
			ids = append(ids, int32(next))
		}
		out.Names = append(out.Names, name)
		out.Stores = append(out.Stores, store)
		out.Plan = append(out.Plan, ids)
	}
	if o.Memory > 0 {
		class := o.MemoryClass
		if class == nil {
			class = memory.New(memory.Options{})
		}
		add(memory.Name, class, o.Memory)
	}
	if o.File > 0 {
		var err error
		if out.file, err = file.New(file.Options{
			Dir:      o.Dir,
			Capacity: o.File + o.Spare,
			Reserve:  1,
		}); err != nil {
			t.Fatal(err)
		}
		add(file.Name, out.file, o.File)
	}
	return out
}

// Close closes the stores.
func (s *Stores) Close(t T) {
	for _, store := range s.Stores {
		if err := store.Close(); err != nil {
			t.Fatalf("close store: %v", err)
		}
	}
	if s.file != nil {
		if err := s.file.Close(); err != nil {
			t.Fatalf("close class: %v", err)
		}
	}
}
