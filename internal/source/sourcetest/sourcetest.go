// Package sourcetest checks that a kind of source fulfils the contract of source.Source. The tests
// of each implementation, and of each decorator, call Run once.
//
// A Factory stores samples that the suite generates, as files, objects or records, and opens them.
// It must not rely on anything else about them. If a factory can damage samples, the suite checks
// faults as well.
package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
)

// Sample is what a factory lays out.
type Sample struct {
	Class string // its class
	Name  string // within its class, ending with .jpg
	Data  []byte // never empty
	// Fields are the fields that Data packs (source.Pack), the last one never missing or empty; nil
	// is one that is missing. Of Run, samples have no fields, or one.
	Fields [][]byte
}

// FieldNames are the names of the fields of RunFields' samples.
var FieldNames = []string{"jpg", "npy", "json"}

// Fault is a kind of damage to a sample after the dataset was opened.
type Fault int

const (
	Removed    Fault = iota // the sample does not exist
	Shortened               // its last byte is missing
	Lengthened              // it has one byte more
	Emptied                 // it has no bytes
	Unreadable              // it exists, but is not a sample
	Rewritten               // it has other bytes, as many as before
)

func (f Fault) String() string {
	return [...]string{
		"removed", "shortened", "lengthened", "emptied", "unreadable",
		"rewritten",
	}[f]
}

// kinds maps each fault to the kind of error that Read must return.
var kinds = map[Fault]error{
	Removed: source.ErrMissing, Shortened: source.ErrShort, Lengthened: source.ErrLong,
	Emptied: source.ErrEmpty, Unreadable: source.ErrUnreadable, Rewritten: source.ErrChanged,
}

// Fixture is a dataset that a factory has stored and opened.
type Fixture struct {
	Source source.Source // closed by the suite
	Index  *source.Index
	// Shared is true if the samples of a class are in one file, in order, so that damage to one may
	// affect the others. The suite then damages only the last sample of a file, and the samples in
	// other files must be unaffected.
	Shared bool
	// Unlabelled is true if the index has no classes.
	Unlabelled bool
	// Damage damages a sample, and reports whether the source can detect that; if it cannot, Damage
	// does nothing. If Damage is nil, no faults are checked.
	Damage func(id int, fault Fault) bool
}

// Factory stores samples, which are in the order of class and name, and opens them. IDs must follow
// that order.
type Factory func(t *testing.T, samples []Sample) Fixture

// Run checks the sources that factory makes.
func Run(t *testing.T, factory Factory) { suite{factory, samples()}.run(t) }

// RunFields checks the sources that factory makes of samples of several fields.
func RunFields(t *testing.T, factory Factory) { suite{factory, withFields(samples())}.run(t) }

// suite checks the sources that a factory makes of samples.
type suite struct {
	factory Factory
	samples []Sample
}

func (s suite) run(t *testing.T) {
	t.Run("Index", s.testIndex)
	t.Run("Bytes", s.testBytes)
	t.Run("Parallel", s.testParallel)
	t.Run("Misuse", s.testMisuse)
	t.Run("Cancelled", s.testCancelled)
	t.Run("Stamps", s.testStamps)
	t.Run("Faults", s.testFaults)
}

// samples generates a dataset: sizes around the boundaries of bytes, pages and read sizes, and
// contents that never repeat.
func samples() []Sample {
	random := rand.NewChaCha8([32]byte([]byte("the same dataset in every test ."))) // 32 bytes
	sizes := []int{
		1, 2, 3, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 65537, 110_000, 1 << 20,
		1<<20 + 1,
	}
	var list []Sample
	for _, class := range []string{"ant", "bee", "cat"} {
		for i, size := range sizes {
			data := make([]byte, size)
			_, _ = random.Read(data) // it never fails
			list = append(list, Sample{Class: class, Name: fmt.Sprintf("%04d.jpg", i), Data: data})
		}
		slices.Reverse(sizes)
	}
	return list
}

// withFields divides samples into fields: one, of those that are short, or three, of which some are
// empty and some are missing.
func withFields(list []Sample) []Sample {
	for i := range list {
		s := &list[i]
		n := len(s.Data)
		s.Fields = [][]byte{nil, nil, s.Data}
		if n > 3 {
			s.Fields[0] = s.Data[:n/3]
			s.Fields[2] = s.Data[n/3:]
			switch i % 3 {
			case 0:
				s.Fields[1], s.Fields[2] = s.Data[n/3:n/2], s.Data[n/2:]
			case 1:
				s.Fields[1] = []byte{}
			}
		}
		lengths := make([]int64, len(s.Fields))
		for f, data := range s.Fields {
			lengths[f] = int64(len(data))
			if data == nil {
				lengths[f] = source.Missing
			}
		}
		offsets, size := source.Pack(nil, lengths)
		s.Data = make([]byte, size)
		for f, data := range s.Fields {
			copy(s.Data[min(offsets[f], size):], data)
		}
	}
	return list
}

func (s suite) setUp(t *testing.T) (Fixture, []Sample) {
	t.Helper()
	list := s.samples
	f := s.factory(t, slices.Clone(list))
	t.Cleanup(func() {
		if err := f.Source.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if f.Index.Len() != len(list) {
		t.Fatalf("the index has %d samples, not %d", f.Index.Len(), len(list))
	}
	return f, list
}

func (s suite) testIndex(t *testing.T) {
	f, list := s.setUp(t)
	sum, largest := int64(0), int64(0)
	for id, want := range list {
		if !f.Unlabelled {
			if got := f.Index.Classes()[f.Index.Label(id)]; got != want.Class {
				t.Errorf("sample %d is of class %q, not %q", id, got, want.Class)
			}
		}
		if got := f.Index.Size(id); got != int64(len(want.Data)) {
			t.Errorf("sample %d has %d bytes, not %d", id, got, len(want.Data))
		}
		sum += int64(len(want.Data))
		largest = max(largest, int64(len(want.Data)))
	}
	if f.Index.Bytes() != sum || f.Index.MaxSize() != largest {
		t.Errorf("the index has %d bytes, at most %d a sample, not %d and %d",
			f.Index.Bytes(), f.Index.MaxSize(), sum, largest)
	}
}

// readPadded reads a sample into the middle of a buffer and checks that nothing
// around it was touched.
func readPadded(ctx context.Context, source source.Source, id int, want []byte) error {
	const padding = 64
	buffer := bytes.Repeat([]byte{0xA5}, len(want)+2*padding)
	dst := buffer[padding : padding+len(want) : padding+len(want)]
	if _, err := source.Read(ctx, id, dst); err != nil {
		return err
	}
	if !bytes.Equal(dst, want) {
		return fmt.Errorf("sample %d has other bytes", id)
	}
	around := append(bytes.Clone(buffer[:padding]), buffer[padding+len(want):]...)
	if !bytes.Equal(around, bytes.Repeat([]byte{0xA5}, 2*padding)) {
		return fmt.Errorf("the read of sample %d wrote outside of its buffer", id)
	}
	return nil
}

func (s suite) testBytes(t *testing.T) {
	f, list := s.setUp(t)
	for id, s := range list {
		if err := readPadded(t.Context(), f.Source, id, s.Data); err != nil {
			t.Error(err)
		}
	}
}

func (s suite) testParallel(t *testing.T) {
	f, list := s.setUp(t)
	var readers sync.WaitGroup
	for reader := range 8 {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(reader), 1))
			for range 4 {
				for _, id := range random.Perm(len(list)) {
					if err := readPadded(t.Context(), f.Source, id, list[id].Data); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	readers.Wait()
}

func read(t *testing.T, f Fixture, id int, dst []byte) error {
	_, err := f.Source.Read(t.Context(), id, dst)
	return err
}

// failed checks that err is a SampleError of this kind that names the sample.
func failed(t *testing.T, what string, err error, id int, kind error) {
	t.Helper()
	var sample *source.SampleError
	switch {
	case !errors.As(err, &sample):
		t.Errorf("%s: not a SampleError: %v", what, err)
	case !errors.Is(err, kind):
		t.Errorf("%s: %v, not %q", what, err, kind)
	case sample.ID != id:
		t.Errorf("%s: of sample %d: %v", what, id, err)
	}
}

func (s suite) testMisuse(t *testing.T) {
	f, list := s.setUp(t)
	for _, id := range []int{-1, len(list), 1 << 40} {
		failed(t, "out of range", read(t, f, id, make([]byte, 1)), id, source.ErrNoSample)
	}
	for _, extra := range []int{-1, 1, 4096} {
		dst := make([]byte, len(list[8].Data)+extra)
		failed(t, "wrong length", read(t, f, 8, dst), 8, source.ErrLength)
		if !bytes.Equal(dst, make([]byte, len(dst))) {
			t.Error("a buffer of the wrong length was written to")
		}
	}
	failed(t, "no buffer", read(t, f, 8, nil), 8, source.ErrLength)
}

// testStamps checks that an unchanged sample's stamp is that of the index, if the source has
// stamps.
func (s suite) testStamps(t *testing.T) {
	f, list := s.setUp(t)
	for id, s := range list {
		read, err := f.Source.Read(t.Context(), id, make([]byte, len(s.Data)))
		if err != nil {
			t.Fatal(err)
		}
		asked, err := f.Source.Stat(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if listed := f.Index.Stamp(id); read != listed || asked != listed {
			t.Errorf("sample %d: stamp %x from Read, %x from Stat, %x in the index", id, read,
				asked, listed)
		}
	}
	_, err := f.Source.Stat(t.Context(), len(list))
	failed(t, "stat out of range", err, len(list), source.ErrNoSample)
}

func (s suite) testCancelled(t *testing.T) {
	f, list := s.setUp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Source.Read(ctx, 0, make([]byte, len(list[0].Data)))
	failed(t, "cancelled", err, 0, context.Canceled)
}

func (s suite) testFaults(t *testing.T) {
	for fault := Removed; fault <= Rewritten; fault++ {
		t.Run(fault.String(), func(t *testing.T) {
			f, list := s.setUp(t)
			// Samples of one byte, of a page, larger than a page, the largest. A shortened sample
			// of one byte would be empty, which is another fault.
			harmed, unharmed := []int{0, 7, 11, 14}, []int{1, 8, 12}
			if f.Shared {
				harmed, unharmed = []int{14}, []int{15, 23, 44}
			}
			for _, id := range harmed {
				if fault == Shortened && len(list[id].Data) == 1 {
					continue
				}
				if f.Damage == nil || !f.Damage(id, fault) {
					t.Skipf("not checked: Fixture.Damage has no sample that is %v", fault)
				}
				dst := make([]byte, len(list[id].Data))
				failed(t, fault.String(), read(t, f, id, dst), id, kinds[fault])
				_, err := f.Source.Stat(t.Context(), id)
				failed(t, "stat of one that was "+fault.String(), err, id, kinds[fault])
			}
			for _, id := range unharmed {
				if err := readPadded(t.Context(), f.Source, id, list[id].Data); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
