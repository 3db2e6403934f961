package pixels

import "encoding/binary"

// packGo is Pack in Go: it looks every sample up in the Packer's table.
func (p *Packer) packGo(dst []byte, src *Image, flip Flip) {
	n := src.Channels
	// Strides from a sample to the next column and channel, in elements of the tensor.
	column, channel := n, 1
	if p.target.Layout == CHW {
		column, channel = 1, src.Width*src.Height
	}
	for y := range src.Height {
		row := src.Row(y)
		to := y
		if flip&FlipVertical != 0 {
			to = src.Height - 1 - y
		}
		first, step := to*src.Width*column, column
		if flip&FlipHorizontal != 0 {
			first, step = first+(src.Width-1)*column, -column
		}
		for c := range n {
			table := &p.words[c]
			switch at := first + c*channel; p.target.Type {
			case Uint8:
				for x := range src.Width {
					dst[at] = row[x*n+c]
					at += step
				}
			case Float32:
				for x := range src.Width {
					binary.LittleEndian.PutUint32(dst[at*4:], table[row[x*n+c]])
					at += step
				}
			default:
				for x := range src.Width {
					binary.LittleEndian.PutUint16(dst[at*2:], uint16(table[row[x*n+c]]))
					at += step
				}
			}
		}
	}
}
