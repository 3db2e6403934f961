package analysis

import (
	"cmp"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// believed is by what share the job as it is may differ from what the rates of its parts predict,
// at most, for anything to be concluded from these.
const believed = 0.2

// helps is how many times as fast a change makes the job at least that is advised.
const helps = 1.01

// First returns the change to make first: of what would help, the first that does. (hdmlp in the
// place of another loader is listed whatever it brings.) It returns nil if nothing helps.
func (r *Report) First() *Option {
	at := slices.IndexFunc(r.Remedies, func(o Option) bool { return o.Times >= helps })
	if at < 0 {
		return nil
	}
	return &r.Remedies[at]
}

// Refuted reports whether the job as it is was measured to be so much faster or slower than its
// rates predict that nothing can be concluded from them.
func (r *Report) Refuted() bool { return max(r.Differs, -r.Differs) > believed }

// differs returns by what share the job as it is was measured to be faster than the rates of its
// parts predict; below 0: slower. It lies between the predictions, so that this is 0, if that of
// the first epoch, in which caches fill, and of later ones lie on both sides of it.
func (r *Report) differs(m *Measured) float64 {
	if m.AsIs == nil {
		return 0
	}
	speeds := []float64{r.Now.Samples}
	add := func(epoch float64) {
		if epoch > 0 {
			speeds = append(speeds, m.perNode()/epoch)
		}
	}
	add(r.Now.Later)
	if m.First {
		now, _ := rates(m.cold().Run(), m.serial(), nil)
		speeds = append(speeds, now.Speed())
		add(r.Now.First)
	}
	low, high := slices.Min(speeds), slices.Max(speeds)
	return m.AsIs.Median/min(max(m.AsIs.Median, low), high) - 1
}

// refutes returns how many times as fast as measured samples are prepared at least, since the job
// as it is takes more than that could give; 1 if it does not. The rates of several numbers of
// threads were measured after it, one after the other, while the machine may have done other work.
//
// Where what is read or trained explains how fast the job is, preparation is taken not to limit:
// what limits it was measured. Otherwise it limits, by elimination, to what the job as it is takes.
// Nothing is taken of a job whose first epoch was measured and that has caches, which differ
// between epochs, or that does one thing after the other.
func (m *Measured) refutes() float64 {
	if m.AsIs == nil || len(m.Preparation) == 0 || m.serial() ||
		m.First && m.Loader.CacheMB+m.Loader.DirectoryMB > 0 {
		return 1
	}
	now, _ := rates(m.Run(), false, nil)
	does := m.AsIs.Median
	if now.prepared() >= does/(1+believed) {
		return 1
	}
	least := does
	if others := min(now.Fetch, now.Training); others <= does*(1+believed) {
		least = max(does, others) * (1 + rounding)
	}
	return 1 / ((1/least - now.Reading) * now.Preparation)
}

// scaled returns the job with rates of preparation that are so many times as high.
func (m *Measured) scaled(by float64) *Measured {
	out := *m
	out.Preparation = slices.Clone(m.Preparation)
	for i := range out.Preparation {
		p := &out.Preparation[i].Rate
		p.Median *= by
		p.Low *= by
		p.High *= by
	}
	return &out
}

// cold returns the job with nothing in its caches.
func (m *Measured) cold() *Measured {
	c := *m
	c.Loader.CacheMB, c.Loader.DirectoryMB = 0, 0
	return &c
}

// rising returns the job with rates of preparation that do not fall with more threads or workers,
// as rates do that were measured one after the other on a machine that does other work too.
func (m *Measured) rising() *Measured {
	out := *m
	out.Preparation, out.Switched = isotonic(m.Preparation), isotonic(m.Switched)
	return &out
}

// isotonic returns the rising rates that are the closest to those of points, by least squares, with
// the pool-adjacent-violators algorithm (Barlow et al., Statistical Inference under Order
// Restrictions, 1972, 1.2). The interval of rates that were pooled holds those of all of them.
func isotonic(points []Point) []Point {
	type pool struct {
		Rate
		of float64 // points
	}
	var pools []pool
	for _, p := range points {
		last := pool{p.Rate, 1}
		for n := len(pools); n > 0 && pools[n-1].Median > last.Median; n-- {
			before := pools[n-1]
			pools = pools[:n-1]
			of := before.of + last.of
			last = pool{Rate{
				Median: (before.Median*before.of + last.Median*last.of) / of,
				Low:    min(before.Low, last.Low), High: max(before.High, last.High),
				Few: before.Few || last.Few,
			}, of}
		}
		pools = append(pools, last)
	}
	fitted := slices.Clone(points)
	at := 0
	for _, p := range pools {
		for range int(p.of) {
			fitted[at].Rate = p.Rate
			at++
		}
	}
	return fitted
}

// order sorts the changes: by price, or otherwise those that need more cores than there are last,
// since another machine is needed for them.
func (r *Report) order(o Options) {
	cores := max(r.Measured.Cores, 1)
	more := func(option Option) int {
		if slices.ContainsFunc(option.Changes, func(c remedy.Change) bool {
			return c.Key == remedy.Threads && int(c.Amount) > cores
		}) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(r.Remedies, func(a, b Option) int {
		if o.Prices != nil {
			return a.Price.compare(b.Price)
		}
		return cmp.Compare(more(a), more(b))
	})
}
