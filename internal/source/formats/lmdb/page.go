package lmdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// The layout of a data file of version 1 with 64-bit page numbers, little endian.
const (
	headerSize   = 16  // of a page: number u64, unused u16, kinds u16, lower u16, upper u16
	metaSize     = 152 // of a meta page: header, magic u32, version u32, 16 bytes, below
	databaseSize = 48  // of a database's description
	nodeSize     = 8   // of a node's header: length or child u32, flags or child u16, key length u16

	magic       = 0xBEEFC0DE
	dataVersion = 1

	leastPage = 512
	mostPage  = 32 << 10
	mostDepth = 64
	noPage    = 1<<64 - 1 // the root of an empty database
)

// Kinds of pages.
const (
	branchPage = 1 << iota
	leafPage
	overflowPage
	metaPage
	_
	fixedPage
	subPage
	pageKinds = branchPage | leafPage | overflowPage | metaPage | fixedPage | subPage
)

// Flags of databases.
const (
	reversedKeys = 0x02
	sortedDups   = 0x04
	integerKeys  = 0x08
	plainFlags   = reversedKeys | integerKeys
)

// Flags of the nodes of leaves.
const (
	bigNode = 1 // the value lies in overflow pages
	subNode = 2 // the value describes a database
)

var (
	u16 = binary.LittleEndian.Uint16
	u32 = binary.LittleEndian.Uint32
	u64 = binary.LittleEndian.Uint64
)

// database is a B+ tree, which has records or named databases.
type database struct {
	flags, depth  uint16
	entries, root uint64
}

func parseDatabase(b []byte) database {
	return database{flags: u16(b[4:]), depth: u16(b[6:]), entries: u64(b[32:]), root: u64(b[40:])}
}

// check refuses what cannot be read.
func (d database) check() error {
	switch {
	case d.flags&sortedDups != 0:
		return errors.New("it has several values per key (DUPSORT), which lie on pages of their " +
			"own; copy it into a database without dupsort")
	case d.flags&^plainFlags != 0:
		return fmt.Errorf("its flags %#x are not those of LMDB 0.9", d.flags)
	case d.root == noPage && d.entries > 0:
		return fmt.Errorf("it has %d records and no page: the file is damaged", d.entries)
	case d.root != noPage && (d.depth == 0 || d.depth > mostDepth):
		return fmt.Errorf("its tree has %d levels: the file is damaged", d.depth)
	}
	return nil
}

// compare compares keys in the database's order. Integers are little endian and of one length.
func (d database) compare(a, b []byte) int {
	if d.flags&plainFlags == 0 {
		return bytes.Compare(a, b)
	}
	for i, j := len(a)-1, len(b)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		if a[i] != b[j] {
			return int(a[i]) - int(b[j])
		}
	}
	return len(a) - len(b)
}

// snapshot is the state of a file after a transaction, as one of its two meta pages describes it.
type snapshot struct {
	pageSize    int64
	pages       uint64 // numbers of pages are below it
	transaction uint64
	main        database
	hash        uint32 // of all of it
}

// parseMeta decodes the first metaSize bytes of meta page number n, which is 0 or 1.
func parseMeta(b []byte, n uint64) (snapshot, error) {
	const export = "; export it there with mdb_dump, and import it on this machine with mdb_load"
	switch {
	case u32(b[16:]) == magic:
	case u32(b[12:]) == magic:
		return snapshot{}, errors.New("it was written by a 32-bit program" + export)
	case binary.BigEndian.Uint32(b[16:]) == magic || binary.BigEndian.Uint32(b[12:]) == magic:
		return snapshot{}, errors.New("it was written on a big-endian machine" + export)
	default:
		return snapshot{}, errors.New("this is no meta page of LMDB: it is another file, or damaged")
	}
	if v := u32(b[20:]); v != dataVersion {
		return snapshot{}, fmt.Errorf("its format has the version %d, as files of LMDB 1.0, "+
			"encrypted or not, and only %d can be read: export it with that version's mdb_dump, and "+
			"import it with mdb_load of LMDB 0.9", v, dataVersion)
	}
	s := snapshot{
		pageSize: int64(u32(b[40:])), pages: u64(b[136:]) + 1, transaction: u64(b[144:]),
		main: parseDatabase(b[40+databaseSize:]), hash: uint32(xxh3.Hash(b[40:metaSize])),
	}
	switch {
	case s.pageSize < leastPage || s.pageSize > mostPage || s.pageSize&(s.pageSize-1) != 0:
		return s, fmt.Errorf("its pages have %d bytes: the file is damaged", s.pageSize)
	case u64(b) != n || u16(b[10:])&pageKinds != metaPage || s.pages < 2:
		return s, errors.New("this is no meta page: the file is damaged")
	}
	return s, nil
}

// page is a page of a tree.
type page struct {
	number uint64
	data   []byte
	nodes  int
}

// parsePage checks a page that is to be of that kind.
func parsePage(number uint64, data []byte, kind uint16) (page, error) {
	lower, upper := int(u16(data[12:])), int(u16(data[14:]))
	p := page{number: number, data: data, nodes: (lower - headerSize) / 2}
	switch {
	case u64(data) != number || u16(data[10:])&pageKinds != kind,
		lower < headerSize || lower%2 != 0 || lower > upper || upper > len(data),
		p.nodes < 1 || kind == branchPage && p.nodes < 2:
		return p, errors.New("this is not the page that the tree has here: the file is damaged")
	}
	return p, nil
}

// node is an entry of a page: a child, or a record.
type node struct {
	key   []byte
	child uint64
	flags uint16
	size  int64 // of the value
	at    int   // in the page: where the value begins, or what points to it
}

var errOutside = errors.New("an entry lies outside of its page: the file is damaged")

// node returns a page's entry, of which there are nodes.
func (p page) node(i int, kind uint16) (node, error) {
	at := int(u16(p.data[headerSize+2*i:]))
	if at < headerSize+2*p.nodes || at+nodeSize > len(p.data) {
		return node{}, errOutside
	}
	b := p.data[at:]
	n := node{flags: u16(b[4:]), size: int64(u32(b))}
	keyEnd := nodeSize + int(u16(b[6:]))
	if keyEnd > len(b) {
		return node{}, errOutside
	}
	n.key, n.at = b[nodeSize:keyEnd], at+keyEnd
	if kind == branchPage {
		n.child = uint64(n.size) | uint64(n.flags)<<32
		return n, nil
	}
	held := n.size
	if n.flags&bigNode != 0 {
		held = 8 // the number of the first overflow page
	}
	if held > int64(len(b)-keyEnd) {
		return node{}, errOutside
	}
	return n, nil
}

// entriesOf returns a page's entries. Their keys must ascend from low on and be below high; no
// bytes stand for no limit. Every page of a level then has keys of its own, so that no page is
// there twice. The key of a branch's first entry does not count: it is low.
func (d database) entriesOf(p page, kind uint16, low, high []byte) ([]node, error) {
	list := make([]node, p.nodes)
	last := low
	for i := range list {
		n, err := p.node(i, kind)
		if err != nil {
			return nil, err
		}
		if i == 0 && kind == branchPage {
			n.key = low
		} else {
			order := 1
			if len(last) > 0 {
				order = d.compare(n.key, last)
			}
			if len(n.key) == 0 || order < 0 || order == 0 && i > 0 ||
				len(high) > 0 && d.compare(n.key, high) >= 0 {
				return nil, fmt.Errorf("the key %.100q of entry %d is not in order: the file is damaged, "+
					"or its keys have an order of the program that wrote it", n.key, i)
			}
			last = n.key
		}
		list[i] = n
	}
	return list, nil
}
