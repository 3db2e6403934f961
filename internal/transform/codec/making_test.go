package codec

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image/color"
	"math/rand/v2"
	"testing"
)

// grays are n colours from black to white.
func grays(n int) color.Palette {
	all := make(color.Palette, n)
	for i := range all {
		v := byte(i * 255 / max(n-1, 1))
		all[i] = color.NRGBA{v, v, v, 255}
	}
	return all
}

// chunk is a PNG's chunk, with its checksum.
func chunk(kind string, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = append(append(b, kind...), body...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:]))
}

// rawPNG is a PNG of noise, each of whose rows has the filter that filter returns, whether there is
// such a one or not.
func rawPNG(t testing.TB, width, height int, depth, kind byte, filter func(y int) byte) []byte {
	t.Helper()
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)),
		uint32(height))
	header = append(header, depth, kind, 0, 0, 0)
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	r := rand.New(rand.NewPCG(uint64(width), uint64(height)))
	row := make([]byte, 1+(width*pngSamples[kind]*int(depth)+7)/8)
	for y := range height {
		for i := range row {
			row[i] = byte(r.Uint32())
		}
		row[0] = filter(y)
		if _, err := z.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return append(append(append([]byte(pngSignature), chunk("IHDR", header)...),
		chunk("IDAT", packed.Bytes())...), chunk("IEND", nil)...)
}

// bitWriter writes numbers, the lowest bits first.
type bitWriter struct {
	bytes []byte
	n     int // bits
}

func (w *bitWriter) put(value uint32, bits int) {
	for i := range bits {
		if w.n%8 == 0 {
			w.bytes = append(w.bytes, 0)
		}
		w.bytes[w.n/8] |= byte(value>>i&1) << (w.n % 8)
		w.n++
	}
}

// tableWebP is a lossless WebP of black pixels that has so many groups of code tables (Google's
// specification of the bitstream, 5 and 6), all of which are to be held at once; of some 3 bytes
// each in the file.
func tableWebP(side, groups int) []byte {
	var w bitWriter
	one := func(symbol uint32) { // a code of one symbol, which takes no bits
		w.put(1, 1) // simple
		w.put(0, 1) // of one
		if symbol < 2 {
			w.put(0, 1)
			w.put(symbol, 1)
			return
		}
		w.put(1, 1)
		w.put(symbol, 8)
	}
	w.put(0x2f, 8)
	w.put(uint32(side-1), 14)
	w.put(uint32(side-1), 14)
	w.put(0, 1+3) // no alpha, version
	w.put(0, 1)   // no transforms
	w.put(0, 1)   // no cache of colours
	w.put(1, 1)   // an image of the groups that pixels have:
	w.put(0, 3)   // one pixel for 4 x 4
	w.put(0, 1)   // no cache of colours
	one(uint32(groups-1) & 255)
	one(uint32(groups-1) >> 8)
	one(0)
	one(0)
	one(0)
	for range 5 * groups {
		one(0)
	}
	body := w.bytes
	if len(body)%2 != 0 {
		body = append(body, 0)
	}
	b := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body)+12))
	b = append(b, "WEBPVP8L"...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(w.bytes))), body...)
}
