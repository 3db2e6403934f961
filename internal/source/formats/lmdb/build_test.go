package lmdb

import "encoding/binary"

// record is a record of a file that a test builds.
type record struct {
	key   string
	value []byte
	flags uint16
}

// builder builds data files: records in the order in which they are given, page by page.
type builder struct {
	size  int // of pages
	pages [][]byte
}

// built returns a data file with these records, in ascending order, and pages of that size.
func built(pageSize int, records ...record) []byte {
	b := &builder{size: pageSize, pages: make([][]byte, 2)}
	main := b.tree(0, records)
	for n := range 2 {
		meta := b.page(uint64(n), metaPage)
		binary.LittleEndian.PutUint32(meta[16:], magic)
		binary.LittleEndian.PutUint32(meta[20:], dataVersion)
		binary.LittleEndian.PutUint32(meta[40:], uint32(pageSize))
		copy(meta[88:], main)
		binary.LittleEndian.PutUint64(meta[136:], uint64(len(b.pages)-1))
		binary.LittleEndian.PutUint64(meta[144:], uint64(n+6))
		b.pages[n] = meta
	}
	var all []byte
	for _, p := range b.pages {
		all = append(all, p...)
	}
	return all
}

func (b *builder) page(number uint64, kind uint16) []byte {
	p := make([]byte, b.size)
	binary.LittleEndian.PutUint64(p, number)
	binary.LittleEndian.PutUint16(p[10:], kind)
	binary.LittleEndian.PutUint16(p[12:], headerSize)
	binary.LittleEndian.PutUint16(p[14:], uint16(b.size))
	return p
}

// tree adds a tree, and returns its description.
func (b *builder) tree(flags uint16, records []record) []byte {
	d := make([]byte, databaseSize)
	binary.LittleEndian.PutUint16(d[4:], flags)
	binary.LittleEndian.PutUint64(d[32:], uint64(len(records)))
	binary.LittleEndian.PutUint64(d[40:], noPage)
	if len(records) == 0 {
		return d
	}
	var nodes [][]byte
	for _, r := range records {
		data := r.value
		size, flags := uint32(len(r.value)), r.flags
		if nodeSize+len(r.key)+len(r.value) > (b.size-headerSize)/2&^1-2 {
			data, flags = binary.LittleEndian.AppendUint64(nil, b.overflow(r.value)), bigNode
		}
		nodes = append(nodes, nodeOf(size, flags, r.key, data))
	}
	level := b.level(leafPage, nodes)
	depth := 1
	for ; len(level) > 1; depth++ {
		nodes = nil
		for i, c := range level {
			key := string(c.low)
			if i == 0 {
				key = ""
			}
			nodes = append(nodes, nodeOf(uint32(c.number), uint16(c.number>>32), key, nil))
		}
		level = b.level(branchPage, nodes)
	}
	binary.LittleEndian.PutUint16(d[6:], uint16(depth))
	binary.LittleEndian.PutUint64(d[40:], level[0].number)
	return d
}

func nodeOf(size uint32, flags uint16, key string, data []byte) []byte {
	n := binary.LittleEndian.AppendUint32(nil, size)
	n = binary.LittleEndian.AppendUint16(n, flags)
	n = binary.LittleEndian.AppendUint16(n, uint16(len(key)))
	return append(append(n, key...), data...)
}

// overflow adds pages for a value, and returns the first one's number.
func (b *builder) overflow(value []byte) uint64 {
	first := uint64(len(b.pages))
	count := (headerSize + len(value) + b.size - 1) / b.size
	all := make([]byte, count*b.size)
	copy(all, b.page(first, overflowPage))
	binary.LittleEndian.PutUint32(all[12:], uint32(count))
	copy(all[headerSize:], value)
	for i := range count {
		b.pages = append(b.pages, all[i*b.size:(i+1)*b.size])
	}
	return first
}

// level adds pages with these entries.
func (b *builder) level(kind uint16, nodes [][]byte) (level []child) {
	for len(nodes) > 0 {
		number := uint64(len(b.pages))
		p := b.page(number, kind)
		lower, upper := headerSize, b.size
		n := 0
		for n < len(nodes) && lower+2 <= upper-(len(nodes[n])+1)&^1 {
			// A branch must have two entries, also the last one.
			if kind == branchPage && n > 1 && n == len(nodes)-2 {
				break
			}
			upper -= (len(nodes[n]) + 1) &^ 1
			copy(p[upper:], nodes[n])
			binary.LittleEndian.PutUint16(p[lower:], uint16(upper))
			lower += 2
			n++
		}
		binary.LittleEndian.PutUint16(p[12:], uint16(lower))
		binary.LittleEndian.PutUint16(p[14:], uint16(upper))
		key := nodes[0][nodeSize:][:u16(nodes[0][6:])]
		level = append(level, child{number, key})
		b.pages = append(b.pages, p)
		nodes = nodes[n:]
	}
	return level
}
