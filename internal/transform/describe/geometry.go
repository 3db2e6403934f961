package describe

import "image"

// Margins is the width of a border on each side of an image, in pixels. Negative ones crop.
type Margins struct{ Left, Top, Right, Bottom int }

// Margins returns an argument that is margins: one number for all, one for left and right and one
// for the others, or four.
func (a *Arguments) Margins(name string) Margins {
	allowed := "a whole number, [left and right, top and bottom] or [left, top, right, bottom]"
	switch m := a.Wholes(name, -MaxEdge, MaxEdge, allowed, 1, 2, 4); len(m) {
	case 1:
		return Margins{m[0], m[0], m[0], m[0]}
	case 2:
		return Margins{m[0], m[1], m[0], m[1]}
	case 4:
		return Margins{m[0], m[1], m[2], m[3]}
	}
	return Margins{}
}

// Around returns r extended by the margins.
func (m Margins) Around(r image.Rectangle) image.Rectangle {
	return image.Rectangle{
		image.Point{r.Min.X - m.Left, r.Min.Y - m.Top},
		image.Point{r.Max.X + m.Right, r.Max.Y + m.Bottom},
	}
}

// Size returns the size of an image of this size with the margins.
func (m Margins) Size(width, height int) (int, int) {
	return width + m.Left + m.Right, height + m.Top + m.Bottom
}

// Cropping returns the margins that are negative, and 0 for the others.
func (m Margins) Cropping() Margins {
	return Margins{min(m.Left, 0), min(m.Top, 0), min(m.Right, 0), min(m.Bottom, 0)}
}

// Adding returns the margins that are positive, and 0 for the others.
func (m Margins) Adding() Margins {
	return Margins{max(m.Left, 0), max(m.Top, 0), max(m.Right, 0), max(m.Bottom, 0)}
}

// Sizing is the size that an image is resized to: Width and Height, or, where these are 0, that of
// its shorter edge, with the longer one in proportion and, unless that is 0, at most Longest.
type Sizing struct{ Width, Height, Shorter, Longest int }

// Sizing returns the arguments size and max_size of Resize.
func (a *Arguments) Sizing() (s Sizing) {
	switch size := a.Wholes("size", 1, MaxEdge, "a whole number or [height, width]", 1,
		2); len(size) {
	case 1:
		s.Shorter = size[0]
	case 2:
		s.Height, s.Width = size[0], size[1]
	}
	if a.None("max_size") {
		return s
	}
	s.Longest = a.Whole("max_size", 1, MaxEdge)
	if s.Shorter == 0 {
		a.Fault("max_size", "it needs a size that is one number")
	} else if s.Longest <= s.Shorter {
		a.Fault("max_size", "it must be more than size, %d", s.Shorter)
	}
	return s
}

// Of returns the size that an image of this size is resized to (torchvision's
// _compute_resized_output_size). The shorter edge may be 0.
func (s Sizing) Of(width, height int) (int, int) {
	if s.Shorter == 0 {
		return s.Width, s.Height
	}
	short, long := min(width, height), max(width, height)
	newShort, newLong := s.Shorter, int(float64(s.Shorter*long)/float64(short))
	if s.Longest > 0 && newLong > s.Longest {
		newShort, newLong = int(float64(s.Longest*newShort)/float64(newLong)), s.Longest
	}
	if width <= height {
		return newShort, newLong
	}
	return newLong, newShort
}
