package codec

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// This is the twin of form.c and form_scan.c, for builds without cgo and for tests: it makes the
// scan of a form again, which Go's decoder then reads.

// formBlock is a block's coefficients in zigzag order.
type formBlock [64]int16

// scanBlock is a block of an MCU.
type scanBlock struct {
	component, dc, ac int // dc and ac: the Huffman tables
}

// scanCoder describes the blocks and codes of a scan with all of an image's components.
type scanCoder struct {
	columns, rows int // of MCUs
	restart       int // MCUs between restart markers; 0: none
	blocks        []scanBlock
	dc, ac        [4]huffmanCodes
	ones          bool // fill bytes before markers with ones
}

// huffmanCodes are the code of each symbol, of length bits; 0: there is none.
type huffmanCodes struct {
	code   [256]uint16
	length [256]uint8
}

// set makes the codes of a table: how many there are of each length, and their symbols (T.81, C.2).
func (h *huffmanCodes) set(counts, symbols []byte) {
	*h = huffmanCodes{}
	code := 0
	for n, count := range counts {
		for range count {
			if len(symbols) == 0 {
				return
			}
			h.code[symbols[0]] = uint16(code)
			h.length[symbols[0]] = uint8(n + 1)
			symbols, code = symbols[1:], code+1
		}
		code <<= 1
	}
}

// read reads a JPEG's beginning, up to its only scan.
func (s *scanCoder) read(head []byte) error {
	var frame []byte
	for segments := (jpegSegments{head, 2}); ; {
		marker, body, err := segments.next()
		switch {
		case err != nil:
			return err
		case isFrame(marker):
			frame = body
		case marker == markerDHT:
			if !s.readCodes(body) {
				return fail(ErrCorrupt, damagedForm)
			}
		case marker == markerDRI && len(body) >= 2:
			s.restart = int(binary.BigEndian.Uint16(body))
		case marker == markerEOI || marker == markerSOS && !s.readScan(frame, body):
			return fail(ErrCorrupt, damagedForm)
		case marker == markerSOS:
			return nil
		}
	}
}

func (s *scanCoder) readCodes(body []byte) bool {
	for len(body) > 17 {
		counts, symbols := body[1:17], 0
		for _, n := range counts {
			symbols += int(n)
		}
		tables := &s.dc
		if body[0]>>4 != 0 {
			tables = &s.ac
		}
		if body[0]&15 > 3 || len(body) < 17+symbols {
			return false
		}
		tables[body[0]&15].set(counts, body[17:17+symbols])
		body = body[17+symbols:]
	}
	return true
}

// readScan reads a frame header and a scan header (T.81, B.2.2 and B.2.3).
func (s *scanCoder) readScan(frame, scan []byte) bool {
	if len(frame) < 6 {
		return false
	}
	n := int(frame[5])
	if len(frame) != 6+3*n || len(scan) != 4+2*n || int(scan[0]) != n {
		return false
	}
	height, width := int(binary.BigEndian.Uint16(frame[1:])), int(binary.BigEndian.Uint16(frame[3:]))
	across, down := 1, 1
	for c := range n {
		h, v := int(frame[7+3*c]>>4), int(frame[7+3*c]&15)
		dc, ac := int(scan[2+2*c]>>4), int(scan[2+2*c]&15)
		if h < 1 || h > 4 || v < 1 || v > 4 || dc > 3 || ac > 3 || frame[6+3*c] != scan[1+2*c] {
			return false
		}
		across, down = max(across, h), max(down, v)
		if n == 1 {
			h, v = 1, 1 // a scan of one component has its blocks in rows
			across, down = 1, 1
		}
		for range h * v {
			s.blocks = append(s.blocks, scanBlock{c, dc, ac})
		}
	}
	s.columns, s.rows = (width+8*across-1)/(8*across), (height+8*down-1)/(8*down)
	return len(s.blocks) <= 10
}

// appendScan appends the scan. next sets the blocks of the next MCU, which are zero.
func (s *scanCoder) appendScan(dst []byte, next func(blocks []formBlock) bool) ([]byte, error) {
	w := scanWriter{to: dst, ones: s.ones}
	blocks := make([]formBlock, len(s.blocks))
	var last [4]int16
	for mcu := range s.columns * s.rows {
		if s.restart > 0 && mcu > 0 && mcu%s.restart == 0 {
			w.flush()
			w.to = append(w.to, 0xff, markerRST0+byte(mcu/s.restart-1)&7)
			last = [4]int16{}
		}
		clear(blocks)
		if !next(blocks) {
			return dst, fail(ErrCorrupt, damagedForm)
		}
		for i := range blocks {
			b := s.blocks[i]
			difference := int(blocks[i][0]) - int(last[b.component])
			last[b.component] = blocks[i][0]
			if !w.value(&s.dc[b.dc], 0, difference) || !w.block(&s.ac[b.ac], &blocks[i]) {
				return dst, fail(ErrCorrupt, damagedForm)
			}
		}
	}
	w.flush()
	return w.to, nil
}

// scanWriter appends bits, highest first, with a zero after each byte 0xff.
type scanWriter struct {
	to   []byte
	bits uint64 // the lowest count
	n    int    // less than 8 between calls
	ones bool
}

func (w *scanWriter) put(value, n int) {
	w.bits = w.bits<<n | uint64(value)
	for w.n += n; w.n >= 8; w.n -= 8 {
		b := byte(w.bits >> (w.n - 8))
		w.to = append(w.to, b)
		if b == 0xff {
			w.to = append(w.to, 0)
		}
	}
}

func (w *scanWriter) flush() {
	fill := 0
	if w.ones {
		fill = 0xff
	}
	n := -w.n & 7
	w.put(fill&(1<<n-1), n)
}

// code appends a code, and reports whether there is one.
func (w *scanWriter) code(codes *huffmanCodes, symbol int) bool {
	w.put(int(codes.code[symbol]), int(codes.length[symbol]))
	return codes.length[symbol] > 0
}

// value appends the code for run and v's size, and v; negative values as the complement of their
// magnitude (T.81, F.1.2.1).
func (w *scanWriter) value(codes *huffmanCodes, run, v int) bool {
	size := bits.Len(uint(max(v, -v)))
	if size > 15 || !w.code(codes, run<<4|size) {
		return false
	}
	if v < 0 {
		v--
	}
	w.put(v&(1<<size-1), size)
	return true
}

func (w *scanWriter) block(ac *huffmanCodes, block *formBlock) bool {
	const endOfBlock, zeros16 = 0x00, 0xf0
	last := 0
	for k := 1; k < 64; k++ {
		if block[k] == 0 {
			continue
		}
		for ; k-last > 16; last += 16 {
			if !w.code(ac, zeros16) {
				return false
			}
		}
		if !w.value(ac, k-last-1, int(block[k])) {
			return false
		}
		last = k
	}
	return last == 63 || w.code(ac, endOfBlock)
}

// formReader reads the blocks of a body (form.h).
type formReader struct {
	s           *scanCoder
	classes     []byte
	rows, left  []byte // left: the blocks
	at          int    // a bit of left
	row, column int
	dc          [4]int16
}

const formClassBytes = 3

func (r *formReader) open(s *scanCoder, body []byte) bool {
	if len(body) == 0 {
		return false
	}
	classes, rows := formClassBytes*int(body[0]), 4*s.rows
	if len(body)-1 < classes+rows {
		return false
	}
	*r = formReader{s: s, classes: body[1 : 1+classes], column: s.columns, row: -1}
	r.rows, r.left = body[1+classes:][:rows], body[1+classes+rows:]
	for class := range slices.Chunk(r.classes, formClassBytes) {
		if maskBits(class) > 64 {
			return false
		}
	}
	return true
}

// maskBits returns the length of a class's mask.
func maskBits(class []byte) int { return int(class[0]&31) * 4 }

// width returns the width of a class's fields of group g.
func width(class []byte, g int) int {
	w := (int(class[0]) | int(class[1])<<8 | int(class[2])<<16) >> (5 + 4*g) & 15
	if w == 15 {
		return 16
	}
	return w
}

// next sets the blocks of the next MCU, and reports whether they are valid.
func (r *formReader) next(blocks []formBlock) bool {
	if r.column == r.s.columns {
		r.row++
		r.column, r.dc = 0, [4]int16{}
		row := int(binary.LittleEndian.Uint32(r.rows[4*r.row:]))
		if row > len(r.left) {
			return false
		}
		r.at = 8 * row
	}
	r.column++
	for i := range blocks {
		if !r.block(&blocks[i], &r.dc[r.s.blocks[i].component]) {
			return false
		}
	}
	return r.at <= 8*len(r.left)
}

func (r *formReader) block(block *formBlock, dc *int16) bool {
	var class []byte
	if n := formClassBytes * int(r.bits(8)); n < len(r.classes) {
		class = r.classes[n:]
	} else {
		class = []byte{byte(r.bits(8)), byte(r.bits(8)), byte(r.bits(8))}
	}
	if maskBits(class) > 64 {
		return false
	}
	mask := r.bits(maskBits(class))
	for k := range block {
		if mask>>k&1 == 0 {
			continue
		}
		field := r.bits(width(class, groupOf(k)))
		v := int16(field>>1) + 1
		if field&1 != 0 {
			v = -v
		}
		block[k] = v
	}
	*dc += block[0]
	block[0] = *dc
	r.at = (r.at + 7) &^ 7
	return true
}

// groupOf returns the group of a coefficient.
func groupOf(k int) int {
	switch {
	case k == 0:
		return 0
	case k < 10:
		return 1
	case k < 28:
		return 2
	}
	return 3
}

// bits returns the next n bits, lowest first. Those after the end are 0.
func (r *formReader) bits(n int) (v uint64) {
	for i := 0; i < n; {
		at, from := r.at>>3, r.at&7
		got := min(8-from, n-i)
		if at < len(r.left) {
			v |= uint64(r.left[at]>>from&(1<<got-1)) << i
		}
		i, r.at = i+got, r.at+got
	}
	return v
}

// appendScanGo appends the scan that body gives, for a JPEG that begins with head.
func appendScanGo(dst, head, body []byte, ones bool) ([]byte, error) {
	s := scanCoder{ones: ones}
	if err := s.read(head); err != nil {
		return dst, err
	}
	var r formReader
	if !r.open(&s, body) {
		return dst, fail(ErrCorrupt, damagedForm)
	}
	return s.appendScan(dst, r.next)
}
