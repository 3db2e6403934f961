package pixels

// mirrorGo mirrors an image in place.
func (m *Image) mirrorGo(flip Flip) {
	if flip&FlipVertical != 0 {
		for y := range m.Height / 2 {
			a, b := m.Row(y), m.Row(m.Height-1-y)
			for i := range a {
				a[i], b[i] = b[i], a[i]
			}
		}
	}
	if flip&FlipHorizontal == 0 {
		return
	}
	for y := range m.Height {
		row := m.Row(y)
		for a, b := 0, len(row)-m.Channels; a < b; a, b = a+m.Channels, b-m.Channels {
			for c := range m.Channels {
				row[a+c], row[b+c] = row[b+c], row[a+c]
			}
		}
	}
}
