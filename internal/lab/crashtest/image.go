package crashtest

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
)

const (
	sector = 512  // bytes that a disk writes completely or not at all
	page   = 4096 // bytes that a system writes back at a time, and allocates
	never  = math.MaxInt
)

// unit is the smallest change that a crash keeps or loses.
type unit struct {
	kind    kind
	node    *node
	durable int // number of the operation before which it became durable

	at   int64  // of a sector in its file, or a size
	data []byte // of a sector

	name, from string // of an entry; from: it was renamed
	to         *node  // nil: removed
}

type kind int

const (
	sectorWritten kind = iota
	sizeGrown          // to at, by a write
	sizeSet            // to at, by truncate
	entrySet           // name to the node, or removed
)

// String describes the unit for reports.
func (u unit) String() string {
	switch {
	case u.kind == sectorWritten:
		return fmt.Sprintf("%s: bytes %d to %d", u.node.name, u.at, u.at+int64(len(u.data)))
	case u.kind == sizeGrown, u.kind == sizeSet:
		return fmt.Sprintf("%s: its size %d", u.node.name, u.at)
	case u.to == nil:
		return fmt.Sprintf("%s: the removal of %s", u.node.name, u.name)
	}
	return fmt.Sprintf("%s: the entry %s%s", u.node.name, u.name,
		map[bool]string{true: ", renamed from " + u.from}[u.from != ""])
}

// image is what a disk holds after a crash.
type image struct {
	files       map[*node]*file
	directories map[*node]map[string]*node
}

// file is a file of an image. Sectors that were never written are missing.
type file struct {
	size    int64
	sectors map[int64][]byte // by offset
}

func (m *image) file(n *node) *file {
	f := m.files[n]
	if f == nil {
		f = &file{size: int64(len(n.durable.data)), sectors: map[int64][]byte{}}
		for at := int64(0); at < f.size; at += sector {
			f.sectors[at] = n.durable.data[at:min(at+sector, f.size)]
		}
		m.files[n] = f
	}
	return f
}

func (m *image) directory(n *node) map[string]*node {
	d := m.directories[n]
	if d == nil {
		d = maps.Clone(n.durable.entries)
		m.directories[n] = d
	}
	return d
}

func (m *image) apply(u unit) {
	switch u.kind {
	case sectorWritten:
		m.file(u.node).sectors[u.at] = u.data
	case sizeGrown:
		f := m.file(u.node)
		f.size = max(f.size, u.at)
	case sizeSet:
		m.file(u.node).truncate(u.at)
	case entrySet:
		d := m.directory(u.node)
		delete(d, u.from)
		if delete(d, u.name); u.to != nil {
			d[u.name] = u.to
		}
	}
}

// complete reports whether all sectors were written.
func (f *file) complete() bool {
	for at := int64(0); at < f.size; at += sector {
		if _, ok := f.sectors[at]; !ok {
			return false
		}
	}
	return true
}

func (f *file) truncate(size int64) {
	for at, data := range f.sectors {
		switch {
		case at >= size:
			delete(f.sectors, at)
		case at+int64(len(data)) > size:
			f.sectors[at] = data[:size-at]
		}
	}
	f.size = size
}

// filling is what a file shows where it was never written: one of these, or the number of freed
// contents.
type filling int

const (
	holes filling = -1 - iota // not allocated
	zeros                     // allocated
)

// hash identifies the image and its fillings.
func (m *image) hash(seed maphash.Seed, root *node, fill func(*node) filling) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	number := func(n int64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	m.walk("", root, func(path string, n *node) {
		_, _ = h.WriteString(path)
		if n.durable.entries != nil {
			number(-1)
			return
		}
		f := m.file(n)
		number(f.size)
		for at := int64(0); at < f.size; at += sector {
			data, ok := f.sectors[at]
			if !ok {
				number(at)
			}
			_, _ = h.Write(data[:min(int64(len(data)), f.size-at)])
		}
		if !f.complete() {
			number(int64(fill(n)))
		}
	})
	return h.Sum64()
}

// walk visits everything below a directory, directories first.
func (m *image) walk(path string, d *node, visit func(path string, n *node)) {
	entries := m.directory(d)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		n, below := entries[name], filepath.Join(path, name)
		visit(below, n)
		if n.durable.entries != nil {
			m.walk(below, n, visit)
		}
	}
}

// write creates the image in a directory.
func (m *image) write(path string, root *node, freed []freed,
	fill func(*node) filling,
) (err error) {
	m.walk(path, root, func(path string, n *node) {
		if err != nil {
			return
		}
		if n.durable.entries != nil {
			err = os.Mkdir(path, 0o700)
			return
		}
		err = m.file(n).write(path, freed, fill(n))
	})
	return err
}

func (f *file) write(path string, freed []freed, with filling) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // nothing is buffered
	data := make([]byte, f.size)
	if with >= 0 {
		copy(data, freed[with].data)
	}
	start := int64(-1) // of bytes that are stored and not written yet
	for at := int64(0); at < f.size; at += sector {
		if stored, ok := f.sectors[at]; ok {
			clear(data[at:min(at+sector, f.size)])
			copy(data[at:], stored)
		} else if with == holes {
			if start >= 0 {
				if _, err := out.WriteAt(data[start:at], start); err != nil {
					return err
				}
			}
			start = -1
			continue
		}
		if start < 0 {
			start = at
		}
	}
	if start >= 0 {
		if _, err := out.WriteAt(data[start:], start); err != nil {
			return err
		}
	}
	return out.Truncate(f.size)
}
