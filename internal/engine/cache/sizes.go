package cache

// # The order in which copies become forms
//
// Forms of JPEGs take little more than the files and halve what an image takes. Those that hold all
// pixels take several times as much, by kind of image: 2 to 4 times of a photograph's PNG, up to 60
// of a WebP or a drawing; and what they save grows with the pixels, not with the ratio. So copies
// whose forms are smaller, in parts of the sample, come first, by bands (sizeBands), of which each
// begins when the one before is done. Bands are this wide because memory is freed by segment: an
// exact order would take few samples of each segment at a time, whose bytes stay.

const (
	// sizeUnits are how many units of conversion.sizes are the sample's size.
	sizeUnits = 4
	// mostUnits is the largest size that a form may have: 63 times the sample's.
	mostUnits = 63 * sizeUnits
)

// sizeBands are the ends of bands, in sizeUnits: 1.5 times the sample, as forms of JPEGs are at
// most, 4 times, 16 times, and all.
var sizeBands = [...]uint8{3 * sizeUnits / 2, 4 * sizeUnits, 16 * sizeUnits, mostUnits}

// fitting returns the first samples whose forms take at most so many bytes together. A part of a
// segment is converted if it is pixels: its own bytes, which stay, are few beside them.
func (v *conversion) fitting(ids []int, bytes int64) []int {
	for n, id := range ids {
		if bytes -= v.cache.index.Size(id) * int64(v.sizes[id]) / sizeUnits; bytes < 0 {
			return ids[:n]
		}
	}
	return ids
}

// formSize returns how many bytes the form takes of a copy as read; ok is false if there is none
// of at most so many sizeUnits.
func (v *conversion) formSize(cl *class, id int, most uint8) (bytes int64, ok bool) {
	if v.asRead.has(id) {
		return 0, false
	}
	size := v.cache.index.Size(id)
	if v.sizes[id] == 0 {
		view, ok := cl.forms.View(id)
		if !ok {
			return 0, false
		}
		form := v.converter.Size(id, view.Data, v.way)
		view.Release()
		if form <= 0 || form > size*mostUnits/sizeUnits {
			v.asRead.set(id)
			return 0, false
		}
		v.sizes[id] = unitsOf(form, size)
	}
	units := v.sizes[id]
	return size * int64(units) / sizeUnits, units <= most
}

// unitsOf returns the size of a form of a sample of so many bytes, in sizeUnits: the nearest, so
// that forms of JPEGs, of up to 1.5 times the file, are in the first band also with the few bytes
// that a sample of several fields has besides.
func unitsOf(form, size int64) uint8 {
	return uint8(max((form*sizeUnits+size/2)/size, 1))
}
