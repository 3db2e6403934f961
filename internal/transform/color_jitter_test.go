package transform

import "testing"

// TestHueTables: the tables give what PIL's arithmetic gives, of every colour; under the race detector of every 31st.
func TestHueTables(t *testing.T) {
	step := 1
	if raceDetector || sanitized {
		step = 31
	}
	tables := hueTables()
	for _, shift := range []byte{0, 1, 77, 200} {
		for c := 0; c < 1<<24; c += step {
			r, g, b := byte(c>>16), byte(c>>8), byte(c)
			h, s, v := toHSV(r, g, b)
			r1, g1, b1 := fromHSV(h+shift, s, v)
			if r2, g2, b2 := tables.turn(r, g, b, shift); r1 != r2 || g1 != g2 || b1 != b2 {
				t.Fatalf("colour %d %d %d, shift %d: %d %d %d, want %d %d %d", r, g, b, shift, r2, g2, b2, r1, g1, b1)
			}
		}
	}
}
