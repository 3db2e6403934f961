package pixels

import (
	"math"
	"sync"
)

// turnGo shifts the hue of an RGB image. It computes toHSV and fromHSV by tables.
func (m *Image) turnGo(shift byte) {
	t := hueTables()
	for y := range m.Height {
		for row := m.Row(y); len(row) >= 3; row = row[3:] {
			row[0], row[1], row[2] = t.turn(row[0], row[1], row[2], shift)
		}
	}
}

// hues holds the results of toHSV and fromHSV, indexed by the inputs that they depend on.
type hues struct {
	hue        [6][256][256]byte // the channels' order, high - middle, high - low
	saturation [256][256]byte    // high, high - low
	sector     [256]byte         // by hue
	rest       [256]float32      // by hue: the position within the sector
	least      [256][256]byte    // value, saturation: the lowest channel
	share      [256]float32      // by saturation
}

var hueTables = sync.OnceValue(func() *hues {
	t := &hues{}
	for a := range 256 {
		hue := float64(float32(a)) * 6.0 / 255.0
		t.sector[a] = byte(int(hue) % 6)
		t.rest[a] = float32(hue - float64(float32(int(hue))))
		t.share[a] = float32(float64(float32(a)) / 255.0)
		for b := range 256 {
			t.least[a][b] = portion(byte(a), 1.0-float64(float32(float64(float32(b))/255.0)))
			if b == 0 || b > a { // high - low is more than 0, and no more than high
				continue
			}
			_, t.saturation[a][b], _ = toHSV(byte(a), byte(a-b), byte(a-b))
		}
	}
	for span := 1; span < 256; span++ {
		// the highest channel is at its maximum: only differences matter
		for d := range span + 1 {
			high := byte(255)
			middle := byte(255 - d)
			low := byte(255 - span)
			for order, c := range [6][3]byte{
				{high, middle, low},
				{high, low, middle},
				{middle, high, low},
				{low, high, middle},
				{middle, low, high},
				{low, middle, high},
			} {
				t.hue[order][d][span], _, _ = toHSV(c[0], c[1], c[2])
			}
		}
	}
	return t
})

func (t *hues) turn(r, g, b, shift byte) (byte, byte, byte) {
	var high, middle, low byte
	var order int
	switch {
	case r >= g && r >= b && g >= b:
		order = 0
		high = r
		middle = g
		low = b
	case r >= g && r >= b:
		order = 1
		high = r
		middle = b
		low = g
	case g >= b && r >= b:
		order = 2
		high = g
		middle = r
		low = b
	case g >= b:
		order = 3
		high = g
		middle = b
		low = r
	case r >= g:
		order = 4
		high = b
		middle = r
		low = g
	default:
		order = 5
		high = b
		middle = g
		low = r
	}
	s := t.saturation[high][high-low]
	if s == 0 {
		return high, high, high
	}
	h := t.hue[order][high-middle][high-low] + shift
	p := t.least[high][s]
	f := t.rest[h]
	share := t.share[s]
	// Only one of q and t in fromHSV is used. For non-negative numbers, rounding half up equals
	// rounding half away from 0.
	rising := byte(float64(high)*(1.0-float64(float64(share)*(1.0-float64(f)))) + 0.5)
	if t.sector[h]&1 != 0 {
		rising = byte(float64(high)*(1.0-float64(float32(share*f))) + 0.5)
	}
	switch t.sector[h] {
	case 0:
		return high, rising, p
	case 1:
		return rising, high, p
	case 2:
		return p, high, rising
	case 3:
		return p, rising, high
	case 4:
		return rising, p, high
	}
	return high, p, rising
}

// toHSV is PIL's rgb2hsv, with float and double in the same places, so that results agree in the
// last bit.
func toHSV(r, g, b byte) (h, s, v byte) {
	high, low := max(r, g, b), min(r, g, b)
	if high == low {
		return 0, 0, high
	}
	span := float32(high - low)
	saturation := span / float32(high)
	rc := float32(high-r) / span
	gc := float32(high-g) / span
	bc := float32(high-b) / span
	var hue float32
	switch high {
	case r:
		hue = bc - gc
	case g:
		hue = float32(2.0 + float64(rc) - float64(bc))
	default:
		hue = float32(4.0 + float64(gc) - float64(rc))
	}
	turned := float64(hue)/6.0 + 1.0
	if turned >= 1 { // fmod(turned, 1): it is below 2
		turned--
	}
	hue = float32(turned)
	return byte(float64(hue) * 255.0), byte(float64(saturation) * 255.0), high
}

// portion returns the given share of a level.
func portion(v byte, share float64) byte {
	return byte(min(max(math.Round(float64(v)*share), 0), 255))
}
