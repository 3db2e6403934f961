package pixels

import "math"

// shiftGo is Affine for Nearest in 16.16 bits. Sums that overflow wrap.
func shiftGo(dst, src *Image, m fixed, fill [3]byte) {
	n := src.Channels
	u0 := m[2]
	v0 := m[5]
	for y := range dst.Height {
		to := dst.Row(y)
		colour(to, n, &fill)
		u := u0
		v := v0
		for x := range dst.Width {
			column, line := int(u>>16), int(v>>16)
			if column >= 0 && column < src.Width && line >= 0 && line < src.Height {
				copy(to[x*n:(x+1)*n], src.Row(line)[column*n:])
			}
			u += m[0]
			v += m[3]
		}
		u0 += m[1]
		v0 += m[4]
	}
}

// runGo is warp with PIL's arithmetic in float64, which rounds each product.
func (w *warp) runGo() {
	n := w.src.Channels
	for y := range w.dst.Height {
		to := w.dst.Row(y)
		for x := range w.dst.Width {
			u, v := w.point(float64(x)+0.5, float64(y)+0.5)
			pixel := to[x*n : (x+1)*n]
			// Not the complement: PIL takes a point that is not a number for one inside.
			outside := u < 0 || u >= float64(w.src.Width) || v < 0 || v >= float64(w.src.Height)
			nowhere := math.IsNaN(u) || math.IsNaN(v)
			switch {
			case outside || nowhere && w.filter == Nearest:
				copy(pixel, w.fill[:])
			case nowhere:
				clear(pixel)
			case w.filter == Nearest:
				copy(pixel, w.src.Row(int(v))[int(u)*n:])
			case w.filter == Bilinear:
				w.src.bilinear(pixel, u-0.5, v-0.5)
			default:
				w.src.bicubic(pixel, u-0.5, v-0.5)
			}
		}
	}
}

func (w *warp) point(x, y float64) (u, v float64) {
	m := &w.m
	u = float64(m[0]*x) + float64(m[1]*y) + m[2]
	v = float64(m[3]*x) + float64(m[4]*y) + m[5]
	if w.projective {
		scale := float64(m[6]*x) + float64(m[7]*y) + 1
		u /= scale
		v /= scale
	}
	return u, v
}

// bilinear interpolates between the four samples around a point, in distances from the first
// sample's centre.
func (m *Image) bilinear(pixel []byte, u, v float64) {
	x, y := int(math.Floor(u)), int(math.Floor(v))
	dx, dy := u-float64(x), v-float64(y)
	left, right := m.column(x), m.column(x+1)
	line := m.line(y)
	next := line
	if y+1 < m.Height {
		next = m.Row(y + 1)
	}
	for c := range pixel {
		a := between(float64(line[left+c]), float64(line[right+c]), dx)
		b := between(float64(next[left+c]), float64(next[right+c]), dx)
		pixel[c] = byte(between(a, b, dy))
	}
}

func between(a, b, d float64) float64 { return a + float64((b-a)*d) }

// bicubic interpolates between 16 samples.
func (m *Image) bicubic(pixel []byte, u, v float64) {
	x, y := int(math.Floor(u)), int(math.Floor(v))
	dx, dy := u-float64(x), v-float64(y)
	at := [4]int{m.column(x - 1), m.column(x), m.column(x + 1), m.column(x + 2)}
	for c := range pixel {
		var lines [4]float64
		for k := range lines {
			row := y - 1 + k
			if k > 0 && (row < 0 || row >= m.Height) {
				lines[k] = lines[k-1]
				continue
			}
			line := m.line(row)
			lines[k] = cubic(float64(line[at[0]+c]), float64(line[at[1]+c]),
				float64(line[at[2]+c]), float64(line[at[3]+c]), dx)
		}
		sum := cubic(lines[0], lines[1], lines[2], lines[3], dy)
		pixel[c] = byte(min(max(sum, 0), 255))
	}
}

// cubic interpolates between b and c.
func cubic(a, b, c, d, t float64) float64 {
	second := 2*(a-b) + c - d
	third := -a + b - c + d
	return b + float64(t*(-a+c+float64(t*(second+float64(t*third)))))
}

// column returns the position in a row of the pixel in this column, or of the nearest one.
func (m *Image) column(x int) int { return min(max(x, 0), m.Width-1) * m.Channels }

// line returns this row, or the nearest one.
func (m *Image) line(y int) []byte { return m.Row(min(max(y, 0), m.Height-1)) }
