package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"
)

// zeros reads like a file with a hole.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// claim returns a consistent header that claims these numbers of entries, each with the fewest
// bytes that it can have, and the file size that it claims.
func claim(samples, directories, classes uint64) ([]byte, int64) {
	h := header{
		version: indexVersion,
		objects: samples, directories: directories, classes: classes,
		classText: classes, pathText: directories - 1, nameText: samples,
	}
	h.total = uint64(h.layout().total)
	return h.encode(), int64(h.total)
}

// allocated runs f and returns how many bytes it allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDecodeAllocatesForBytesReadNotClaimed decodes files that claim gigabytes and hold zeros, or a
// few bytes: memory is allocated only for what they hold and is valid.
func TestDecodeAllocatesForBytesReadNotClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		samples, directories, classes uint64
	}{
		"samples":     {1 << 29, 1, 0},
		"directories": {0, 1 << 26, 0},
		"classes":     {0, 1, 1 << 29},
	} {
		head, size := claim(c.samples, c.directories, c.classes)
		for what, rest := range map[string]io.Reader{
			"ends": bytes.NewReader(nil),
			"some": io.LimitReader(zeros{}, 5<<20),
		} {
			var err error
			n := allocated(func() {
				_, err = Decode(io.MultiReader(bytes.NewReader(head), rest), size)
			})
			if !errors.Is(err, ErrIndex) || n > 24<<20 {
				t.Errorf("%s, %s: %v; %d bytes taken of the %d claimed", name, what, err, n, size)
			}
		}
		var err error
		n := allocated(func() {
			_, err = DecodeWithin(io.MultiReader(bytes.NewReader(head), zeros{}), size, 1<<30)
		})
		var memory *MemoryError
		if !errors.As(err, &memory) || !errors.Is(err, ErrIndex) || memory.Need < size ||
			memory.Limit != 1<<30 || n > 1<<16 {
			t.Errorf("%s, with a limit: %v; %d bytes taken of the %d claimed", name, err, n, size)
		}
	}
	// An early error is found before the rest is read.
	head, size := claim(1<<20, 1<<10, 1<<10)
	source := &io.LimitedReader{R: zeros{}, N: size}
	if _, err := Decode(io.MultiReader(bytes.NewReader(head), source),
		size); !errors.Is(err, ErrIndex) || source.N < size/2 {
		t.Errorf("a class without a name: %v, after %d of %d bytes", err, size-source.N, size)
	}
}

func TestDecodeWithinRefusesIndexesAboveItsLimit(t *testing.T) {
	good := encode(t, small(t))
	l, err := parseHeader(good, int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeWithin(bytes.NewReader(good), int64(len(good)), l.memory()); err != nil {
		t.Error(err)
	}
	var memory *MemoryError
	if _, err := DecodeWithin(bytes.NewReader(good), int64(len(good)),
		l.memory()-1); !errors.As(err, &memory) {
		t.Errorf("a byte less: %v", err)
	}
}

// FuzzDecodeHeader decodes arbitrary headers followed by zeros: the memory allocated is bounded by
// the bytes read.
func FuzzDecodeHeader(f *testing.F) {
	good := encode(f, small(f))
	f.Add(good)
	f.Add(encode(f, smallRecords(f)))
	for _, field := range []int{16, 24, 32, 40, 48, 56, 64, 72, 80} {
		for _, value := range []uint64{
			0, 1 << 20, 1 << 31, 1 << 32, 1<<32 - 2, 1 << 40, 1 << 62,
			1<<64 - 1,
		} {
			hostile := bytes.Clone(good)
			binary.LittleEndian.PutUint64(hostile[field:], value)
			f.Add(hostile)
		}
	}
	for _, c := range [][3]uint64{
		{1 << 29, 1, 0},
		{0, 1 << 26, 0},
		{0, 1, 1 << 29},
		{1 << 20, 1 << 20, 1 << 20},
	} {
		head, _ := claim(c[0], c[1], c[2])
		f.Add(head)
	}
	const filled = 1 << 20
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		h := header{
			version:       binary.LittleEndian.Uint32(b[8:]),
			flags:         binary.LittleEndian.Uint32(b[12:]),
			objects:       binary.LittleEndian.Uint64(b[24:]),
			directories:   binary.LittleEndian.Uint64(b[32:]),
			classes:       binary.LittleEndian.Uint64(b[40:]),
			extensions:    binary.LittleEndian.Uint64(b[48:]),
			classText:     binary.LittleEndian.Uint64(b[56:]),
			extensionText: binary.LittleEndian.Uint64(b[64:]),
			pathText:      binary.LittleEndian.Uint64(b[72:]),
			nameText:      binary.LittleEndian.Uint64(b[80:]),
		}
		b = bytes.Clone(b)
		if h.version == recordsVersion {
			b = append(b, make([]byte, max(0, headerSize+recordHeaderSize-len(b)))...)
			h.records, _ = parseRecordHeader(b[headerSize:])
		}
		size := int64(binary.LittleEndian.Uint64(b[16:]))
		if max(h.objects, h.directories, h.classes, h.extensions, h.classText, h.extensionText,
			h.pathText, h.nameText) <= maxText {
			size = int64(h.layout().total) // the length that matches the header
			binary.LittleEndian.PutUint64(b[16:], uint64(size))
		}
		var err error
		n := allocated(func() {
			_, err = Decode(io.MultiReader(bytes.NewReader(b), io.LimitReader(zeros{}, filled)),
				size)
		})
		if err != nil && !errors.Is(err, ErrIndex) {
			t.Fatal(err)
		}
		if most := uint64(16*(len(b)+filled) + firstStep); n > most {
			t.Fatalf("%d bytes taken for %d that were there, %d claimed: %v", n, len(b)+filled,
				size, err)
		}
	})
}
