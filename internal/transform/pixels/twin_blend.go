package pixels

// saturateGo mixes the pixels of an RGB image with their L.
func (m *Image) saturateGo(factor float32) {
	for y := range m.Height {
		for row := m.Row(y); len(row) >= 3; row = row[3:] {
			l := luma(row[0], row[1], row[2])
			row[0] = mix(l, row[0], factor)
			row[1] = mix(l, row[1], factor)
			row[2] = mix(l, row[2], factor)
		}
	}
}

// grayGo writes the L of m's pixels into dst, which has m's size.
func (m *Image) grayGo(dst *Image) {
	for y := range m.Height {
		from, to := m.Row(y), dst.Row(y)
		for x := range m.Width {
			l := from[x*m.Channels]
			if m.Channels == 3 {
				l = luma(from[3*x], from[3*x+1], from[3*x+2])
			}
			for c := range dst.Channels {
				to[x*dst.Channels+c] = l
			}
		}
	}
}

// sharpenGo mixes src with its smooth version. PIL computes that in float32: the sum of the eight
// neighbours and five times the sample, over 13, rounded. No multiple of 1/13 is within 1/26 of the
// middle of two integers, so that integers give the same.
func sharpenGo(dst, src *Image, factor float32) {
	n := src.Channels
	last := src.Width*n - n
	for y := range src.Height {
		to, row := dst.Row(y), src.Row(y)
		if y == 0 || y == src.Height-1 {
			copy(to, row)
			continue
		}
		above, below := src.Row(y-1), src.Row(y+1)
		copy(to[:n], row)
		for i := n; i < last; i++ {
			sum := 4 * int(row[i])
			for k := i - n; k <= i+n; k += n {
				sum += int(above[k]) + int(row[k]) + int(below[k])
			}
			to[i] = mix(byte((sum+6)/13), row[i], factor)
		}
		copy(to[last:], row[last:])
	}
}
