package policy

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// drawn returns the actions of a policy for some keys.
func drawn(t *testing.T, p Policy, keys int) (actions []Action) {
	t.Helper()
	for key := range uint64(keys) {
		var d random.Draws
		d.Start(key)
		err := p.Draw(&d, 224, 160, func(a *Action) error {
			actions = append(actions, *a)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return actions
}

// TestShares: each operation is drawn as often as others, and each sign.
func TestShares(t *testing.T) {
	const keys = 4200
	policies := map[string]Policy{
		"v1": &Several{Count: 2, Offers: RandAugmentOffers(31, 9)},
		"v2": &Several{Count: 2, Offers: RandAugmentOffers(31, 9), V2: true},
	}
	for name, p := range policies {
		counts := map[string]int{}
		negative := 0
		for _, a := range drawn(t, p, keys) {
			counts[a.Name]++
			if a.Name == "Rotate" && a.Amount < 0 {
				negative++
			}
		}
		const expected = 2 * keys / 14 // with a deviation of 24
		for operation := range operations {
			if operation == "Invert" { // which RandAugment does not have
				continue
			}
			if n := counts[operation]; n < expected-120 || n > expected+120 {
				t.Errorf("%s: %s was drawn %d times of %d", name, operation, n, expected)
			}
		}
		if half := counts["Rotate"] / 2; negative < half-90 || negative > half+90 {
			t.Errorf("%s: %d of %d rotations are clockwise", name, negative, counts["Rotate"])
		}
	}
}

// TestMagnitudes: those of RandAugment are torchvision's, for its defaults.
func TestMagnitudes(t *testing.T) {
	want := map[string]float64{
		"Rotate": 9, "Brightness": 1.27, "Color": 1.27, "Contrast": 1.27, "Sharpness": 1.27,
		"Posterize": 7, "Solarize": 178.5,
		"ShearX": math.Atan(0.09) * 180 / math.Pi, "ShearY": math.Atan(0.09) * 180 / math.Pi,
		"TranslateX": 30, "TranslateY": 21, // whole pixels of 0.3 * 150 / 331 of the edges
	}
	p := &Several{Count: 1, Offers: RandAugmentOffers(31, 9)}
	for _, a := range drawn(t, p, 500) {
		amount := math.Abs(a.Amount)
		if amount < 1 && want[a.Name] == 1.27 {
			amount = 2 - amount // 1 - 0.27
		}
		if math.Abs(amount-want[a.Name]) > 1e-6 {
			t.Errorf("%s: %v, want %v", a.Name, a.Amount, want[a.Name])
		}
	}
}

// TestPublished: the policies have the sub-policies of the paper, each of two operations.
func TestPublished(t *testing.T) {
	for _, name := range []string{"imagenet", "cifar10", "svhn"} {
		policies := Published(name)
		if len(policies) != 25 {
			t.Errorf("%s: %d sub-policies", name, len(policies))
		}
		for i, list := range policies {
			if len(list) != 2 {
				t.Errorf("%s: sub-policy %d has %d operations", name, i, len(list))
			}
			for _, o := range list {
				if o.act != nil && o.share == 0 && len(o.magnitudes) != 1 {
					t.Errorf("%s: %s of sub-policy %d has no magnitude", name, o.name, i)
				}
			}
		}
	}
}

// TestLevels: what timm's operations take of magnitude 9, and of a magnitude above the upper bound.
func TestLevels(t *testing.T) {
	for text, want := range map[string]float64{
		`{"name": "Posterize", "p": 1, "magnitude": 9, "most": 10}`:           3,
		`{"name": "PosterizeIncreasing", "p": 1, "magnitude": 9, "most": 10}`: 1,
		`{"name": "PosterizeOriginal", "p": 1, "magnitude": 9, "most": 10}`:   7,
		`{"name": "Solarize", "p": 1, "magnitude": 9, "most": 10}`:            230,
		`{"name": "SolarizeIncreasing", "p": 1, "magnitude": 9, "most": 10}`:  26,
		`{"name": "SolarizeAdd", "p": 1, "magnitude": 9, "most": 10}`:         99,
		`{"name": "Color", "p": 1, "magnitude": 9, "most": 10}`:               1.72,
		`{"name": "Desaturate", "p": 1, "magnitude": 9, "most": 10}`:          0.05,
		`{"name": "GaussianBlur", "p": 1, "magnitude": 9, "most": 10}`:        1.81,
		`{"name": "Sharpness", "p": 1, "magnitude": 30, "most": 10}`:          1.9,
	} {
		var l Level
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		for _, a := range drawn(t, &Layers{Count: 1, Levels: []Level{l}}, 3) {
			if math.Abs(a.Amount-want) > 1e-12 {
				t.Errorf("%s: %v, want %v", text, a.Amount, want)
			}
		}
	}
}

// TestBits: posterizing to 0 bits is refused as by the Pillow that is installed.
func TestBits(t *testing.T) {
	var l Level
	err := json.Unmarshal([]byte(`{"name": "Posterize", "p": 1, "magnitude": 1, "most": 10}`), &l)
	if err != nil {
		t.Fatal(err)
	}
	var d random.Draws
	act := func(*Action) error { return nil }
	if err := (&Layers{Count: 1, Levels: []Level{l}}).Draw(&d, 9, 9, act); err != nil {
		t.Error(err)
	}
	strict := &TimmPolicies{Policies: [][]Level{{l}}, Strict: true}
	if err := strict.Draw(&d, 9, 9, act); !errors.Is(err, ErrBits) {
		t.Error(err)
	}
}

// TestUnsure: a share of an edge that gives a whole number may be another one in float32.
func TestUnsure(t *testing.T) {
	for width, unsure := range map[int]bool{331: true, 662: true, 224: false, 332: false} {
		o := narrow.at(Offer{named: operations["TranslateX"], magnitudes: make([]float64, 31)}, 30)
		var d random.Draws
		if _, got := o.magnitude(&d, width, 100); got != unsure {
			t.Errorf("width %d: %v", width, got)
		}
	}
}

// TestFaults: an operation says what is wrong with it.
func TestFaults(t *testing.T) {
	for text, says := range map[string]string{
		`{"name": "Rotat"}`:                        `did you mean "Rotate"`,
		`{"name": "Rotate"}`:                       "needs magnitudes",
		`{"name": "Rotate", "magnitudes": [1e9]}`:  "from -1e6 to 1e6",
		`{"name": "Invert", "p": 2}`:               "from 0 to 1",
		`{"name": "ShearX", "magnitudes": "none"}`: "magnitudes",
	} {
		var o Offer
		if err := json.Unmarshal([]byte(text), &o); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, says := range map[string]string{
		`{"name": "Rotat"}`:                              `did you mean "Rotate"`,
		`{"name": "Rotate", "fill": [1, 2]}`:             "3 channels",
		`{"name": "Rotate", "interpolation": ["lancz"]}`: "nearest, bilinear or bicubic",
	} {
		var l Level
		if err := json.Unmarshal([]byte(text), &l); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
