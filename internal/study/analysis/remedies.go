package analysis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// remedies fills in the changes that would help, and what if.
func (r *Report) remedies(ctx context.Context, m *Measured, o Options) error {
	was := r.Now.Epoch
	if m.AsIs != nil && m.Loader.Name != HDMLP {
		was = m.perNode() / m.AsIs.Median // what will be replaced was measured
		if m.First {
			was = min(was, r.Now.Epoch) // later epochs have more in caches
		}
	}
	add := func(base *Measured, text string, changes []remedy.Change, guessed []string) (
		Option, error,
	) {
		without := base.Run()
		base, left := base.threaded(changes)
		run := base.Run()
		after, parts := rates(run, base.serial(), left)
		_, later, _ := remedy.Model(run, left)
		option := Option{
			Text: text, Switch: base.Loader.Name != m.Loader.Name, Changes: changes,
			Limit: after.limit(parts), Few: base.TooFew(),
			Epoch: later.Node / later.Sample / after.Speed(), Guessed: guessed,
		}
		var err error
		if base.Loader.Name == HDMLP {
			_, option.Simulated, err = base.epochs(ctx, run, left)
		}
		option.Times = was / cmp.Or(option.Simulated, option.Epoch)
		if o.Prices != nil {
			option.Price = o.Prices.of(without, changes, cmp.Or(option.Simulated, option.Epoch))
		}
		return option, err
	}
	diagnose := func(base *Measured, before string, keys ...remedy.Key) error {
		_, found := remedy.Diagnose(base.Run())
		for _, f := range found {
			if len(keys) > 0 && !slices.Contains(keys, f.Key) {
				continue
			}
			text := before + f.Text
			if f.Key == remedy.Threads && base.Loader.Name == Torch {
				from := "none"
				if m.Loader.Workers > 0 {
					from = fmt.Sprint(m.Loader.Workers)
				}
				if m.Loader.Workers > m.Cores {
					from += " on " + plural(m.Cores, "core")
				}
				text = fmt.Sprintf("%.0f workers and as many cores instead of %s", f.Amount, from)
			}
			option, err := add(base, text, []remedy.Change{f.Change}, f.Guessed)
			if err != nil {
				return err
			}
			r.Remedies = append(r.Remedies, option)
		}
		return nil
	}
	asked := m
	if m.Loader.Name == HDMLP {
		if err := r.forms(m, "", nil, add); err != nil {
			return err
		}
		if err := diagnose(m, ""); err != nil {
			return err
		}
	} else {
		with := m.switched()
		text := fmt.Sprintf("hdmlp in the place of %s's loader", m.Loader.Name)
		memory := ", with memory=" + human.Format(with.CacheBytes())
		option, err := add(with, text+memory, nil, m.unmeasured())
		if err != nil {
			return err
		}
		guess := option.Guessed != nil
		if !guess {
			r.Remedies = append(r.Remedies, option)
		}
		if m.serial() && len(m.Preparation) > 0 {
			workers := max(m.Cores, 1)
			beside, err := add(m, plural(workers, "worker")+" instead of none",
				[]remedy.Change{{Key: remedy.Threads, Amount: float64(workers)}}, nil)
			if err != nil {
				return err
			}
			r.Remedies = append(r.Remedies, beside)
		}
		if err := diagnose(m, "", remedy.Threads, remedy.SourceRate); err != nil {
			return err
		}
		if guess { // what was measured comes first
			r.Remedies = append(r.Remedies, option)
		}
		if err := r.forms(with, text+", with ", m.unmeasured(), add); err != nil {
			return err
		}
		if err := diagnose(with, text+", and "); err != nil {
			return err
		}
		asked = with
	}
	r.order(o)
	if o.Changes == nil {
		return nil
	}
	text, guessed := textOf(o.Changes), unknown(asked, o.Changes)
	if asked != m {
		text += ", with hdmlp in the place of " + m.Loader.Name + "'s loader"
		guessed = append(m.unmeasured(), guessed...)
	}
	option, err := add(asked, text, o.Changes, guessed)
	r.WhatIf = &option
	return err
}

// threaded returns the job with as many threads or workers as the last of the changes to them sets,
// and the changes to other things. Beyond the most that were measured with a core each, and on more
// cores than there are, each is taken to prepare as much as one of those. Each worker of torch's
// loader reads a sample at a time.
func (m *Measured) threaded(changes []remedy.Change) (after *Measured, left []remedy.Change) {
	after = m
	for _, c := range changes {
		if c.Key != remedy.Threads || len(m.Preparation) == 0 {
			left = append(left, c)
			continue
		}
		n := int(c.Amount)
		with := *m
		with.Loader.Workers, with.Cores = n, max(m.Cores, n)
		if m.Loader.Streams > 0 {
			with.Loader.Streams = n
		}
		if cores, rate := m.cores(); n > cores {
			with.Preparation = slices.DeleteFunc(slices.Clone(m.Preparation), func(p Point) bool {
				return p.N > cores
			})
			with.Preparation = append(with.Preparation,
				Point{N: n, Rate: Rate{Median: rate * float64(n) / float64(cores)}})
		}
		after = &with
	}
	return after, left
}

// cores returns the most cores with which preparation was measured, and what they prepare together:
// more threads or workers than cores share these. There must be a point.
func (m *Measured) cores() (n int, rate float64) {
	last := m.Preparation[len(m.Preparation)-1]
	return min(last.N, max(m.Cores, 1)), last.Median
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// unmeasured names what the job with hdmlp rests on that was not measured.
func (m *Measured) unmeasured() (names []string) {
	if len(m.Preparation) > 0 && len(m.Switched) == 0 {
		names = append(names, "preparation by hdmlp, taken to be that of "+m.Loader.Name)
	}
	return names
}

// unknown names what an answer rests on that was not measured.
func unknown(m *Measured, changes []remedy.Change) []string {
	return remedy.Ask(m.Run(), changes).Then.Guessed
}

// textOf repeats a question.
func textOf(changes []remedy.Change) string {
	texts := make([]string, len(changes))
	for i, c := range changes {
		texts[i] = c.String()
	}
	return "what if " + strings.Join(texts, ", ")
}
