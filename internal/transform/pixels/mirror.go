package pixels

// Mirror mirrors an image in place.
func Mirror(m *Image, flip Flip) {
	if flip != 0 {
		m.mirror(best, flip)
	}
}
