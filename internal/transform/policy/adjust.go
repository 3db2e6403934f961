package policy

import "github.com/hdmlp/hdmlp/internal/transform/pixels"

// Adjust applies an operation that changes each pixel in its place, by the amount of an Action. For
// Hue that is a shift in turns of the circle, from -0.5 to 0.5.
func Adjust(m *pixels.Image, kind Kind, amount float64) {
	switch kind {
	case Brightness:
		pixels.Brightness(m, float32(amount))
	case Color:
		pixels.Color(m, float32(amount))
	case Contrast:
		pixels.Contrast(m, float32(amount))
	case Hue:
		pixels.Hue(m, byte(int(amount*255))) // as numpy's uint8, a negative number wraps
	case Posterize:
		pixels.Posterize(m, int(amount))
	case Solarize:
		pixels.Solarize(m, amount)
	case SolarizeAdd:
		pixels.SolarizeAdd(m, int(amount), 128)
	case AutoContrast:
		pixels.AutoContrast(m)
	case Equalize:
		pixels.Equalize(m)
	case Invert:
		pixels.Invert(m)
	case Gray:
		if m.Channels == 3 {
			pixels.Gray(m, m, 3)
		}
	}
}
