package pixels

// half is added to a fixed-point sum to round it to nearest.
const half = 1 << (precision - 1)

// clip converts a fixed-point sum to a sample.
func clip(sum int32) byte {
	return byte(min(max(sum>>precision, 0), 255))
}

// runGo resamples in Go.
func (j *resample) runGo() {
	src := j.src
	if j.horizontal != nil {
		dst := j.dst
		var between Image
		if j.vertical != nil {
			*j.rows = grow(*j.rows, dst.Width*src.Height*src.Channels)
			between = Image{*j.rows, dst.Width, src.Height, src.Channels, dst.Width * src.Channels}
			dst = &between
		}
		for y := range src.Height {
			horizontalGo(dst.Row(y), src.Row(y), src.Channels, int32(j.first.X), j.horizontal)
		}
		src = dst
	}
	if j.vertical != nil {
		for y := range j.dst.Height {
			verticalGo(j.dst.Row(y), src, y, int32(j.first.Y), j.vertical)
		}
	}
}

// horizontalGo resamples one row, whose first pixel is pixel origin of the full row.
func horizontalGo(dst, src []byte, channels int, origin int32, a *axis) {
	for i := range a.first {
		weights := a.weights[i*a.taps:][:a.counts[i]]
		from := src[int(a.first[i]-origin)*channels:]
		if channels == 3 {
			r := int32(half)
			g := int32(half)
			b := int32(half)
			for k, w := range weights {
				r += w * int32(from[k*3])
				g += w * int32(from[k*3+1])
				b += w * int32(from[k*3+2])
			}
			to := dst[i*3 : i*3+3]
			to[0] = clip(r)
			to[1] = clip(g)
			to[2] = clip(b)
			continue
		}
		for c := range channels {
			sum := int32(half)
			for k, w := range weights {
				sum += w * int32(from[k*channels+c])
			}
			dst[i*channels+c] = clip(sum)
		}
	}
}

// verticalGo computes target row y from src, whose first row is row origin of the full image.
func verticalGo(dst []byte, src *Image, y int, origin int32, a *axis) {
	weights := a.weights[y*a.taps:][:a.counts[y]]
	from := src.Pix[int(a.first[y]-origin)*src.Stride:]
	for x := range dst {
		sum := int32(half)
		for k, w := range weights {
			sum += w * int32(from[k*src.Stride+x])
		}
		dst[x] = clip(sum)
	}
}
