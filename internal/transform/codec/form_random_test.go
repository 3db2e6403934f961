//go:build cgo

package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

func segment(marker byte, content []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(content)+2))
	return append(b, content...)
}

// huffmanSegment is a table with codes for the first n symbols, in random order: all of one length,
// but for the last.
func huffmanSegment(r *rand.Rand, slot byte, n, length int) []byte {
	counts := make([]byte, 16)
	counts[length-1], counts[length] = byte(n-1), 1
	content := append([]byte{slot}, counts...)
	for _, symbol := range r.Perm(n) {
		content = append(content, byte(symbol))
	}
	return segment(markerDHT, content)
}

// randomJPEG is a baseline JPEG of random size, sampling, tables, restart intervals and
// coefficients, among them such as no encoder writes.
func randomJPEG(t testing.TB, r *rand.Rand) []byte {
	t.Helper()
	width, height := 1+r.IntN(90), 1+r.IntN(90)
	components := []byte{1, 3}[r.IntN(2)]
	src := []byte{0xff, markerSOI}
	frame := binary.BigEndian.AppendUint16([]byte{8}, uint16(height))
	frame = append(binary.BigEndian.AppendUint16(frame, uint16(width)), components)
	scan := []byte{components}
	luma := [...]byte{0x11, 0x21, 0x12, 0x22, 0x41, 0x14, 0x42, 0x24}[r.IntN(8)]
	for c := range components {
		quantizers := []byte{c}
		for range 64 {
			quantizers = append(quantizers, byte(1+r.IntN(30)))
		}
		src = append(src, segment(markerDQT, quantizers)...)
		src = append(src, huffmanSegment(r, c, 16, 4)...)
		src = append(src, huffmanSegment(r, 0x10|c, 256, 8+r.IntN(8))...)
		frame = append(frame, c+1, luma, c)
		scan = append(scan, c+1, c<<4|c)
		luma = 0x11
	}
	src = append(src, segment(markerSOF0, frame)...)
	if interval := r.IntN(12); interval > 0 {
		src = append(src, segment(markerDRI, []byte{0, byte(interval)})...)
	}
	src = append(src, segment(markerSOS, append(scan, 0, 63, 0))...)
	s := scanCoder{ones: r.IntN(4) > 0}
	if err := s.read(src); err != nil {
		t.Fatal(err)
	}
	ends := [...]int{1, 5, 12, 30, 64}[r.IntN(5)]
	most := [...]int{1, 7, 15, 100, 1000, 16000}[r.IntN(6)]
	src, err := s.appendScan(src, func(blocks []formBlock) bool {
		for i := range blocks {
			end := 1 + r.IntN(ends)
			for range r.IntN(end + 1) {
				blocks[i][r.IntN(end)] = int16(r.IntN(2*most+1) - most)
			}
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(src, 0xff, markerEOI)
}

// TestFormsOfRandomJPEGs: pixels and bytes are those of the JPEG.
func TestFormsOfRandomJPEGs(t *testing.T) {
	f := newFormTester(t)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 400 {
		err := f.check(fmt.Sprint("random JPEG ", i), randomJPEG(t, r))
		if err != nil || f.packed.ScanSize == 0 {
			t.Errorf("random JPEG %d: %v, or pixels alone", i, err)
		}
	}
}

// FuzzFormScan: the scan that our code in C makes of any body is that of the twin in Go.
func FuzzFormScan(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	var d Decoder
	defer d.Close()
	var heads [][]byte
	for i := range 12 {
		var p Packed
		if err := d.Pack(&p, randomJPEG(f, r), math.MaxInt32); err != nil {
			f.Fatal(err)
		}
		heads = append(heads, p.Header)
		f.Add(byte(i), byte(i), true, p.Body)
		f.Add(byte(i), byte(i), false, p.Body[:len(p.Body)/2])
		f.Add(byte(i+1), byte(i), true, p.Body)
	}
	f.Fuzz(func(t *testing.T, head, level byte, ones bool, body []byte) {
		p := Packed{Header: heads[int(head)%len(heads)], Body: body, Ones: ones, ScanSize: 1000}
		d.jpeg.level = int(level) % formLevels
		want, wrong := appendScanGo(nil, p.Header, p.Body, p.Ones)
		if wrong == nil {
			p.ScanSize = len(want)
		}
		var m pixels.Image
		_, _ = d.DecodePacked(&m, &p, Want{}) // sets the level
		got, err := d.appendScan(nil, &p)
		if (err == nil) != (wrong == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%v, and the twin: %v, or another scan", err, wrong)
		}
	})
}
