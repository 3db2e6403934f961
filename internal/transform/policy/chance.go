package policy

import "github.com/hdmlp/hdmlp/internal/transform/random"

// Maybe is the Policy of torchvision's transforms that apply one operation with a probability.
// torch's number is compared in float64; if P is a float32, that is the comparison in float32.
type Maybe struct {
	P      float64
	Kind   Kind
	Amount float64
}

// Channels returns how many channels images must have at least.
func (p *Maybe) Channels() int { return 1 }

// Draw draws whether the operation is applied.
func (p *Maybe) Draw(d *random.Draws, _, _ int, act func(*Action) error) error {
	if float64(d.Torch.Rand()) >= p.P {
		return nil
	}
	return act(&Action{Kind: p.Kind, Name: "applied", Amount: p.Amount})
}

// Scripts is the Policy of classes of training scripts that apply one operation by what Python's
// random module draws.
type Scripts struct {
	Kind Kind
	// From and To are the interval of the amount, if Drawn; otherwise it is From.
	From, To float64
	Drawn    bool
	// Chance means that it is applied if random.random() is at most P; otherwise it always is.
	Chance bool
	P      float64
}

// Channels returns how many channels images must have at least.
func (p *Scripts) Channels() int { return 1 }

// Draw draws whether the operation is applied, and its amount.
func (p *Scripts) Draw(d *random.Draws, _, _ int, act func(*Action) error) error {
	if p.Chance && d.Python.Random() > p.P {
		return nil
	}
	a := Action{Kind: p.Kind, Name: "amount", Amount: p.From}
	if p.Drawn {
		a.Amount = d.Python.Uniform(p.From, p.To)
	}
	return act(&a)
}
