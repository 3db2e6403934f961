package pixels

// mapAllGo maps all channels by one table.
func (m *Image) mapAllGo(t *table) {
	for y := range m.Height {
		row := m.Row(y)
		for i, b := range row {
			row[i] = t[b]
		}
	}
}

// mapEachGo maps each channel by its own table.
func (m *Image) mapEachGo(t *[3]table) {
	if m.Channels == 1 {
		m.mapAllGo(&t[0])
		return
	}
	for y := range m.Height {
		for row := m.Row(y); len(row) >= 3; row = row[3:] {
			row[0] = t[0][row[0]]
			row[1] = t[1][row[1]]
			row[2] = t[2][row[2]]
		}
	}
}

// countGo adds to the histogram of each channel.
func (m *Image) countGo(h *histogram) {
	for y := range m.Height {
		row := m.Row(y)
		if m.Channels == 1 {
			for _, b := range row {
				h[0][b]++
			}
			continue
		}
		for ; len(row) >= 3; row = row[3:] {
			h[0][row[0]]++
			h[1][row[1]]++
			h[2][row[2]]++
		}
	}
}

// extremesGo returns the lowest and the highest level of each channel.
func (m *Image) extremesGo() (least, most [3]byte) {
	least = [3]byte{255, 255, 255}
	for y := range m.Height {
		for row := m.Row(y); len(row) >= m.Channels; row = row[m.Channels:] {
			for c := range m.Channels {
				least[c] = min(least[c], row[c])
				most[c] = max(most[c], row[c])
			}
		}
	}
	return least, most
}

// lumasGo returns the sum of the L of all pixels.
func (m *Image) lumasGo() (sum int) {
	for y := range m.Height {
		row := m.Row(y)
		if m.Channels == 1 {
			for _, l := range row {
				sum += int(l)
			}
			continue
		}
		for ; len(row) >= 3; row = row[3:] {
			sum += int(luma(row[0], row[1], row[2]))
		}
	}
	return sum
}
