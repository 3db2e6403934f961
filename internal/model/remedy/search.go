package remedy

import (
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
)

const (
	// worth is the least share of an epoch that a remedy must save.
	worth = 0.01
	// worthDealing is that of another order.
	worthDealing = 0.05
	// most is how many times as many threads or nodes, or as fast a source or network, a remedy may
	// be: more is not the smallest change for anybody.
	most = 16
)

// Diagnose returns what limits the run now, and the remedies: for each thing that can be changed
// alone, the smallest amount after which more of it would bring nothing, where it saves at least
// 1 % of an epoch; the cheapest first. If computation limits, there are none. The run must be
// valid.
func Diagnose(r *Run) (Now, []Remedy) {
	m := newModel(r)
	now := r.now(&m)
	if r.Python > r.Measured/20 && r.Python > now.Stall/2 {
		// The model does not cover code in Python; the run has measured it.
		model := now.Busy
		now.Busy = Busy{Python, r.Python, r.Python / r.Measured}
		now.Next = &model
		return now, nil
	}
	if now.Resource == Compute {
		return now, nil
	}
	var remedies []Remedy
	for _, find := range []func(*forecast) (Change, bool){
		moreThreads, dealt, moreMemory, moreCache, moreNodes, fasterSource, fasterNetwork,
	} {
		change, ok := find(&m)
		if !ok {
			continue
		}
		from, _ := m.now(change.Key)
		then := m.with(change)
		after := then.predict()
		least := worth
		if change.Key == Deal {
			least = worthDealing
		}
		if after.Epoch > now.Epoch*(1-least) {
			continue
		}
		remedy := Remedy{
			Change: change, From: from, Before: now.Epoch, After: after.Epoch,
			Resource: after.Resource, Source: after.Source,
		}
		for _, g := range after.Guessed {
			if !slices.Contains(now.Guessed, g) {
				remedy.Guessed = append(remedy.Guessed, g)
			}
		}
		remedy.Text = remedy.text(r)
		remedies = append(remedies, remedy)
	}
	return now, remedies
}

// large is the least share of a measured epoch that counts as a large difference.
const large = 0.25

// now returns the prediction for the run as it is, beside what was measured. What ranks did besides
// their usual steps is not measured: it is what is left of the epoch. What any rank waited for data
// is taken off, because the others may have waited for that rank meanwhile. Nothing is said if the
// rate of the computation was given: then it may be that all steps take longer.
func (r *Run) now(m *forecast) Now {
	now := Now{Prediction: m.predict(), Measured: r.Measured, silent: max(r.told, 1) < r.Nodes}
	other := r.Measured - r.Stall - (now.Epoch - now.Prediction.Stall)
	if least := large * r.Measured; r.Known.Compute.Origin == model.Measured &&
		other > least && r.Measured-now.Epoch > least {
		now.Other = other
	}
	return now
}

// least returns the smallest whole amount from low to high for which reached is true, which must be
// true for high and for all amounts above one for which it is.
func least(low, high float64, reached func(amount float64) bool) float64 {
	low, high = math.Ceil(low), math.Ceil(high)
	for low < high {
		middle := math.Floor((low + high) / 2)
		if reached(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high
}

// to returns the smallest whole amount up to high of what a change sets, with which epochs are as
// short as with `best` of it; ok is false if that takes more than high, or the present amount.
func (m *forecast) to(c Change, high, best float64) (Change, bool) {
	epoch := func(amount float64) float64 {
		c.Amount = amount
		then := m.with(c)
		return then.seconds()
	}
	goal := epoch(best) * (1 + rounding)
	low, _ := m.now(c.Key)
	if epoch(high) > goal {
		return c, false
	}
	c.Amount = least(low, high, func(amount float64) bool { return epoch(amount) <= goal })
	return c, c.Amount > low
}

// moreThreads finds the smallest number of threads with which something else limits; or if that
// takes too many, but transform_threads was given, the processors that the node has.
func moreThreads(m *forecast) (Change, bool) {
	if !m.transforms() {
		return Change{}, false
	}
	c := Change{Key: Threads}
	if all, ok := m.to(c, most*float64(m.later.Transformers), mostThreads); ok {
		return all, true
	}
	have := float64(m.processors)
	if have <= float64(m.later.Transformers) {
		return c, false
	}
	return m.to(c, have, have)
}

// dealt deals batches to the nodes that own their samples.
func dealt(m *forecast) (Change, bool) {
	share := m.imbalance()
	return Change{Key: Deal, Amount: share}, share > 0 && m.later.Dealt == 0 && !m.later.Cold
}

func moreMemory(m *forecast) (Change, bool) {
	c, all := Change{Key: Memory}, math.Ceil(m.later.Data*mega)
	return m.to(c, all, all)
}

// moreCache finds a larger cache directory, of the present speed; or if there is none, one on the
// slowest disk that does; or if a larger one brings nothing, a faster one.
func moreCache(m *forecast) (Change, bool) {
	all := math.Ceil(m.later.Data * mega)
	c, ok := m.to(Change{Key: Cache}, all, all)
	if ok && m.file > 0 {
		then := m.with(c)
		if then.seconds() <= m.seconds()*(1-worth) {
			return c, true
		}
	}
	held, speed := m.now(Cache)
	if m.file > 0 {
		c.Amount = held
	} else if !ok {
		return c, false
	}
	if speed >= disk || c.Amount == 0 {
		return c, false
	}
	epoch := func(rate float64) float64 {
		c.Speed = rate
		then := m.with(c)
		return then.seconds()
	}
	goal := epoch(disk) * (1 + rounding)
	c.Speed = least(max(speed, 1), disk, func(rate float64) bool { return epoch(rate) <= goal })
	return c, true
}

// moreNodes finds the smallest number of nodes at which neither the source nor the network limits.
// That it is the smallest is not found by bisection: with the second node, the network comes in.
func moreNodes(m *forecast) (Change, bool) {
	for n := m.later.Nodes + 1; n <= most*m.later.Nodes; n++ {
		c := Change{Key: Nodes, Amount: float64(n)}
		then := m.with(c)
		ideal := then.with(Change{Key: SourceRate, Amount: enough}).
			with(Change{Key: NetworkRate, Amount: enough})
		if then.seconds() <= ideal.seconds()*(1+rounding) {
			return c, then.predict().Resource != m.predict().Resource
		}
	}
	return Change{}, false
}

func fasterSource(m *forecast) (Change, bool) {
	now, _ := m.now(SourceRate)
	return m.to(Change{Key: SourceRate}, most*now, enough)
}

func fasterNetwork(m *forecast) (Change, bool) {
	if m.later.Nodes < 2 {
		return Change{}, false
	}
	now, _ := m.now(NetworkRate)
	return m.to(Change{Key: NetworkRate}, most*now, enough)
}

// Answer is what changes would bring.
type Answer struct {
	Job     string     `json:"job"`
	Changes []Change   `json:"changes"`
	Now     Now        `json:"now"`
	Then    Prediction `json:"then"`
}

// Ask answers what changes, all of them together, would bring. The run must be valid.
func Ask(r *Run, changes []Change) Answer {
	m := newModel(r)
	a := Answer{Changes: changes, Now: r.now(&m)}
	m = m.after(changes)
	a.Then = m.predict()
	return a
}

// Model returns what predictions of the run rest on, after changes: the environment, what a later
// epoch needs, and the names of the storage classes, of which env.Classes[0] has none. The run must
// be valid.
func Model(r *Run, changes []Change) (env model.Environment, l model.Later,
	classes []string,
) {
	m := newModel(r)
	m = m.after(changes)
	return m.env, m.later, m.names
}

// Present returns the present amount of what a key names. The run must be valid.
func Present(r *Run, key Key) float64 {
	m := newModel(r)
	amount, _ := m.now(key)
	return amount
}
