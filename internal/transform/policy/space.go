package policy

import "math"

// RandAugmentOffers returns torchvision's operations of RandAugment with magnitude index of bins.
func RandAugmentOffers(bins, index int) []Offer {
	list := narrow.offers(bins)
	for i := range list {
		list[i] = narrow.at(list[i], index)
	}
	return list
}

// TrivialAugmentOffers returns torchvision's operations of TrivialAugmentWide with bins magnitudes.
func TrivialAugmentOffers(bins int) []Offer { return wide.offers(bins) }

// space describes the magnitudes of a policy's operations by the largest of each.
type space struct {
	shear, move, turn, adjust float64
	share                     bool // move is a share of the edge
	bits                      int  // by which Posterize reduces 8, at most
}

var (
	narrow = space{shear: 0.3, move: 150.0 / 331.0, turn: 30, adjust: 0.9, share: true, bits: 4}
	wide   = space{shear: 0.99, move: 32, turn: 135, adjust: 0.99, bits: 6}
)

// offers returns the operations with n magnitudes each, as torchvision's _augmentation_space.
func (s *space) offers(n int) []Offer {
	shear := linspace(0, s.shear, n)
	for i, m := range shear {
		shear[i] = math.Atan(m) * (180 / math.Pi)
	}
	moves := linspace(0, s.move, n)
	adjust := linspace(0, s.adjust, n)
	bits := make([]float64, n)
	for i := range bits {
		reduced := float32(i) / (float32(n-1) / float32(s.bits))
		bits[i] = 8 - math.RoundToEven(float64(reduced))
	}
	var list []Offer
	add := func(name string, magnitudes []float64, signed bool) {
		list = append(list,
			Offer{named: operations[name], magnitudes: magnitudes, signed: signed})
	}
	add("Identity", nil, false)
	add("ShearX", shear, true)
	add("ShearY", shear, true)
	add("TranslateX", moves, true)
	add("TranslateY", moves, true)
	add("Rotate", linspace(0, s.turn, n), true)
	for _, name := range []string{"Brightness", "Color", "Contrast", "Sharpness"} {
		add(name, adjust, true)
	}
	add("Posterize", bits, false)
	add("Solarize", linspace(255, 0, n), false)
	add("AutoContrast", nil, false)
	add("Equalize", nil, false)
	return list
}

// at returns an offer with only its magnitude i.
func (s *space) at(o Offer, i int) Offer {
	n := len(o.magnitudes)
	switch {
	case n == 0:
	case s.share && i > 0 && (o.name == "TranslateX" || o.name == "TranslateY"):
		o.share = s.move * float64(i) / float64(n-1)
		o.magnitudes = nil
	default:
		o.magnitudes = o.magnitudes[i : i+1]
	}
	return o
}

// linspace returns n numbers from one to another, as torch.linspace computes them in float32 one by
// one.
func linspace(from, to float64, n int) []float64 {
	list := make([]float64, n)
	step := float32(0)
	if n > 1 {
		step = (float32(to) - float32(from)) / float32(n-1)
	}
	for i := range list {
		if i < n/2 {
			list[i] = float64(float32(from) + float32(step*float32(i)))
		} else {
			list[i] = float64(float32(to) - float32(step*float32(n-1-i)))
		}
	}
	return list
}
