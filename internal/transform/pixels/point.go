package pixels

// table holds the new level of each level.
type table [256]byte

// tabulate returns the table of a function, whose results are clipped.
func tabulate(f func(level int) int) (t table) {
	for level := range t {
		t[level] = byte(min(max(f(level), 0), 255))
	}
	return t
}

// Invert inverts an image, as PIL's ImageOps.invert.
func Invert(m *Image) {
	m.mapAll(best, inverted())
}

func inverted() table {
	return tabulate(func(level int) int { return 255 - level })
}

// Posterize keeps the given number of high bits of each sample, from 0 to 8, as PIL's
// ImageOps.posterize. Pillow 13 and later refuse 0 bits; earlier releases return a black image.
func Posterize(m *Image, bits int) {
	m.mapAll(best, posterized(bits))
}

func posterized(bits int) table {
	mask := -1 << (8 - min(max(bits, 0), 8))
	return tabulate(func(level int) int { return level & mask })
}

// Solarize inverts the samples from threshold on, as PIL's ImageOps.solarize.
func Solarize(m *Image, threshold float64) {
	m.mapAll(best, solarized(threshold))
}

func solarized(threshold float64) table {
	return tabulate(func(level int) int {
		if float64(level) < threshold {
			return level
		}
		return 255 - level
	})
}

// SolarizeAdd adds a number to the samples below threshold, as timm's solarize_add.
func SolarizeAdd(m *Image, add int, threshold float64) {
	m.mapAll(best, solarizeAdded(add, threshold))
}

func solarizeAdded(add int, threshold float64) table {
	return tabulate(func(level int) int {
		if float64(level) < threshold {
			return level + add
		}
		return level
	})
}

// Brightness mixes an image with black, as PIL's ImageEnhance.Brightness: factor 0 gives black, 1
// the image.
func Brightness(m *Image, factor float32) {
	m.mapAll(best, blended(0, factor))
}

// Contrast mixes an image with the mean of its gray version, as PIL's ImageEnhance.Contrast.
func Contrast(m *Image, factor float32) { contrast(best, m, factor) }

func contrast(k kernel, m *Image, factor float32) {
	mean := float64(m.lumas(k)) / float64(m.Width*m.Height)
	m.mapAll(k, blended(byte(mean+0.5), factor))
}

func blended(level byte, factor float32) table {
	var t table
	for b := range t {
		t[b] = mix(level, byte(b), factor)
	}
	return t
}

// AutoContrast stretches each channel to the levels from 0 to 255, as PIL's ImageOps.autocontrast
// without a cutoff.
func AutoContrast(m *Image) { autoContrast(best, m) }

func autoContrast(k kernel, m *Image) {
	least, most := m.extremes(k)
	var t [3]table
	for c := range m.Channels {
		lo, hi := int(least[c]), int(most[c])
		scale := 1.0
		offset := 0.0
		if hi > lo {
			scale = 255.0 / float64(hi-lo)
			offset = float64(-lo) * scale
		}
		t[c] = tabulate(func(level int) int {
			return int(float64(float64(level)*scale) + offset)
		})
	}
	m.mapEach(k, &t)
}

// Equalize makes the distribution of each channel's levels as uniform as a table can, as PIL's
// ImageOps.equalize.
func Equalize(m *Image) { equalize(best, m) }

func equalize(k kernel, m *Image) {
	var h histogram
	m.count(k, &h)
	var t [3]table
	for c := range m.Channels {
		equalizer(&t[c], &h[c], m.Width*m.Height)
	}
	m.mapEach(k, &t)
}

// equalizer computes the table that equalizes a channel of n samples.
func equalizer(t *table, h *[256]uint32, n int) {
	last := 255
	for last > 0 && h[last] == 0 {
		last--
	}
	step := (n - int(h[last])) / 255
	if step == 0 { // few samples below the highest level, or none
		for level := range t {
			t[level] = byte(level)
		}
		return
	}
	sum := step / 2
	for level := range t {
		t[level] = byte(min(sum/step, 255))
		sum += int(h[level])
	}
}

// histogram counts the samples of each level, for each channel.
type histogram [3][256]uint32

// Permute makes channel c of an image that which was channel order[c].
func Permute(m *Image, order []int) {
	n := m.Channels
	var pixel [4]byte
	for y := range m.Height {
		row := m.Row(y)
		for ; len(row) > 0; row = row[n:] {
			copy(pixel[:n], row)
			for c, from := range order {
				row[c] = pixel[from]
			}
		}
	}
}
