package pixels

// quarters sets dst to src, turned counter-clockwise by a number of quarters from 1 to 3, as PIL's
// transpose.
func quarters(dst, src *Image, n int) {
	w, h := src.Width, src.Height
	if n != 2 {
		w, h = h, w
	}
	dst.Reset(w, h, src.Channels)
	channels := src.Channels
	// The position in dst of src's first pixel, and the steps to the next pixel of the row and of
	// the column.
	var first, across, down int
	switch n {
	case 1:
		first = (h - 1) * dst.Stride
		across = -dst.Stride
		down = channels
	case 2:
		first = (h-1)*dst.Stride + (w-1)*channels
		across = -channels
		down = -dst.Stride
	default:
		first = (w - 1) * channels
		across = dst.Stride
		down = -channels
	}
	// In squares, which fit into the cache.
	const side = 32
	for top := 0; top < src.Height; top += side {
		for left := 0; left < src.Width; left += side {
			right := min(left+side, src.Width)
			for y := top; y < min(top+side, src.Height); y++ {
				row := src.Row(y)[left*channels : right*channels]
				at := first + y*down + left*across
				if channels == 1 {
					for _, b := range row {
						dst.Pix[at] = b
						at += across
					}
					continue
				}
				for ; len(row) >= 3; row = row[3:] {
					to := dst.Pix[at : at+3 : at+3]
					to[0] = row[0]
					to[1] = row[1]
					to[2] = row[2]
					at += across
				}
			}
		}
	}
}
