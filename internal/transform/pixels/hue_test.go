package pixels

import (
	"bytes"
	"testing"
)

// TestHueTables: the tables give what PIL's arithmetic gives, of every colour; under the
// address sanitizer, and without cgo, where the tables are the same Go code, of every 31st.
func TestHueTables(t *testing.T) {
	step := 1
	if sanitized || !usesC {
		step = 31
	}
	tables := hueTables()
	for _, shift := range []byte{0, 1, 77, 200} {
		for c := 0; c < 1<<24; c += step {
			r := byte(c >> 16)
			g := byte(c >> 8)
			b := byte(c)
			h, s, v := toHSV(r, g, b)
			r1, g1, b1 := fromHSV(h+shift, s, v)
			if r2, g2, b2 := tables.turn(r, g, b, shift); r1 != r2 || g1 != g2 || b1 != b2 {
				t.Fatalf("colour %d %d %d, shift %d: %d %d %d, want %d %d %d", r, g, b, shift, r2,
					g2, b2, r1, g1, b1)
			}
		}
	}
}

// TestHueTwins: C at every level gives the bytes of Go, of every colour.
func TestHueTwins(t *testing.T) {
	step := 16
	if sanitized {
		step = 512
	}
	var all, m, want Image
	for _, shift := range []byte{0, 1, 99, 255} {
		for first := 0; first < 4096; first += step {
			// Rows are not multiples of a vector.
			all.Reset(4099, 16, 3)
			for i := range len(all.Pix) / 3 {
				c := (first*4096 + i) & (1<<24 - 1)
				copy(all.Pix[3*i:], []byte{byte(c >> 16), byte(c >> 8), byte(c)})
			}
			all.CopyTo(&want)
			want.turn(inGo, shift)
			for _, k := range kernels()[1:] {
				all.CopyTo(&m)
				m.turn(k, shift)
				if !bytes.Equal(m.Pix, want.Pix) {
					t.Fatalf("kernel %d, shift %d: %d samples differ from Go's", k, shift,
						count(m.Pix, want.Pix))
				}
			}
		}
	}
}

// fromHSV is PIL's hsv2rgb.
func fromHSV(h, s, v byte) (r, g, b byte) {
	if s == 0 {
		return v, v, v
	}
	at := float64(float32(h)) * 6.0 / 255.0
	sector := int(at)
	f := float32(at - float64(float32(sector)))
	fs := float32(float64(float32(s)) / 255.0)
	p := portion(v, 1.0-float64(fs))
	q := portion(v, 1.0-float64(float32(fs*f)))
	t := portion(v, 1.0-float64(float64(fs)*(1.0-float64(f))))
	switch sector % 6 {
	case 0:
		return v, t, p
	case 1:
		return q, v, p
	case 2:
		return p, v, t
	case 3:
		return p, q, v
	case 4:
		return t, p, v
	}
	return v, p, q
}
