package analysis

import (
	"cmp"
	"context"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// Report is what follows from what was measured of a job.
type Report struct {
	Measured *Measured `json:"measured"`
	// Missing names what had to be measured to say more, and was not: then there is nothing else.
	Missing []string `json:"missing,omitempty"`
	// Now is a later epoch of the job as it is, by the equations, and Stall its time. Observed is
	// the stall with the speed that was measured.
	Now      Speed  `json:"now"`
	Stall    Stall  `json:"stall"`
	Observed *Stall `json:"observed_stall,omitempty"`
	// Differs is by what share the job as it is was measured to be faster than Now, or than the
	// first epoch if it is that which was measured; below 0: slower. By more than 0.2, nothing is
	// concluded.
	Differs float64 `json:"measured_differs_by"`
	// Refutes is how many times as high as measured the rates of preparation are taken to be, since
	// the job as it is takes more samples than they could give; 1: it does not.
	Refutes float64 `json:"preparation_is_times"`
	// Preparation and Switched are those of Measured as they were fitted, so that more threads or
	// workers prepare no less, and by Refutes; nil if they are as measured.
	Preparation []Point `json:"preparation_fitted,omitempty"`
	Switched    []Point `json:"preparation_by_hdmlp_fitted,omitempty"`
	// Iterations is how many iterations an epoch has.
	Iterations float64  `json:"iterations"`
	Needed     Needed   `json:"needed"`
	Caches     []Cache  `json:"by_cache"`
	Remedies   []Option `json:"remedies"`
	WhatIf     *Option  `json:"what_if,omitempty"`
	Formed     *Formed  `json:"forms,omitempty"`
	Together   []Jobs   `json:"share"`
}

// Formed is what the job needs for all of its samples to be kept in forms, by hdmlp's loader.
type Formed struct {
	// MB is the memory that this takes on each node; Fits means that there is as much, and Has that
	// the job's cache has it.
	MB   float64 `json:"memory_mb"`
	Fits bool    `json:"fits"`
	Has  bool    `json:"has"`
	// Prepare is P then, and AsRead what it is with samples as read, in samples/s of a node.
	Prepare float64 `json:"preparation_samples_per_s"`
	AsRead  float64 `json:"preparation_as_read_samples_per_s"`
}

// Speed is how fast a job is, and why.
type Speed struct {
	Limit string `json:"limit"` // as remedy.Busy names resources
	// Certain means that the 95 % intervals of the rates do not overlap: whichever values they have,
	// the same limits.
	Certain bool    `json:"certain"`
	Fetch   float64 `json:"fetch_samples_per_s"`       // F; 0: unlimited
	Prepare float64 `json:"preparation_samples_per_s"` // P; 0: nothing is prepared
	Train   float64 `json:"training_samples_per_s"`    // G
	Samples float64 `json:"samples_per_s"`             // of a node
	Low     float64 `json:"low_samples_per_s"`
	High    float64 `json:"high_samples_per_s"`
	Epoch   float64 `json:"epoch_s"`
	First   float64 `json:"first_epoch_s,omitempty"`     // simulated
	Later   float64 `json:"simulated_epoch_s,omitempty"` // simulated, a later one
	Cached  float64 `json:"cached_share"`                // of the dataset, by all nodes
}

// Needed is what the job needs for nothing but training to limit it.
type Needed struct {
	// Cache is x*, the least share of the dataset in each node's memory with which the source does
	// not limit, and CacheMB that in MB. Enough is false if all of it is not enough.
	Cache   float64 `json:"cache_share"`
	CacheMB float64 `json:"cache_mb"`
	Enough  bool    `json:"cache_is_enough"`
	// Cores is n*, the least number of cores that prepare as fast as samples are read and trained
	// with: min(F, G); 0 if nothing is prepared. CoresToTrain is that for G alone.
	Cores        int `json:"cores"`
	CoresToTrain int `json:"cores_for_training"`
}

// Cache is a later epoch with another cache in each node's memory.
type Cache struct {
	Share float64 `json:"share"` // of the dataset
	Fetch float64 `json:"fetch_samples_per_s"`
	Speed float64 `json:"samples_per_s"`
	Limit string  `json:"limit"`
	Stall
}

// Option is a change of the job, and what it brings.
type Option struct {
	Text    string          `json:"text"`
	Switch  bool            `json:"hdmlp,omitempty"` // hdmlp in the place of the loader in use
	Changes []remedy.Change `json:"changes,omitempty"`
	Epoch   float64         `json:"epoch_s"` // by the equations
	// Simulated is a later epoch in the simulator; 0: not simulated.
	Simulated float64  `json:"simulated_epoch_s,omitempty"`
	Limit     string   `json:"limit_after"`
	Times     float64  `json:"times_as_fast"` // as the job as it is
	Guessed   []string `json:"not_measured,omitempty"`
	// Few means that it rests on rates that were measured too rarely for an interval.
	Few bool `json:"too_few,omitempty"`
	// Forms means that it is so only once samples have become forms, after several epochs.
	Forms bool   `json:"forms,omitempty"`
	Price *Price `json:"price,omitempty"`
}

// Jobs is how fast each of several jobs on one node is, on devices of their own, alone and with
// share, in samples/s.
type Jobs struct {
	Jobs   int     `json:"jobs"`
	Apart  float64 `json:"samples_per_s"`
	Shared float64 `json:"shared_samples_per_s"`
}

// Options are what is asked besides.
type Options struct {
	Changes []remedy.Change // what if; all together
	Prices  *Prices         // nil: remedies are in the order of what is usually cheapest
}

// shares are the cache sizes of Report.Caches.
const shares = 20

// Analyze draws the conclusions. m must be valid. Its error is that of a simulation.
func Analyze(ctx context.Context, m *Measured, o Options) (*Report, error) {
	r := &Report{Measured: m, Remedies: []Option{}, Together: []Jobs{}, Caches: []Cache{}}
	if m.Training == nil {
		r.Missing = append(r.Missing, "training")
	}
	if len(m.Source) == 0 && len(m.Sources) == 0 {
		r.Missing = append(r.Missing, "source")
	}
	if m.failed() {
		r.Missing = append(r.Missing, "preparation")
	}
	if r.Missing != nil {
		return r, nil
	}
	raw := m
	m = m.rising()
	if r.Refutes = m.refutes(); r.Refutes != 1 {
		m = m.scaled(r.Refutes)
	}
	if !slices.Equal(m.Preparation, raw.Preparation) {
		r.Preparation = m.Preparation
	}
	if !slices.Equal(m.Switched, raw.Switched) {
		r.Switched = m.Switched
	}
	run, samples := m.Run(), m.perNode()
	now, parts := rates(run, m.serial(), nil)
	r.Iterations = m.iterations()
	r.Now = m.speed(now, parts)
	r.Stall = now.StallOf(samples)
	if m.AsIs != nil {
		observed := now.observed(samples, m.AsIs.Median)
		r.Observed = &observed
	}
	if m.Loader.Name == HDMLP { // the simulator does what hdmlp does
		var err error
		if r.Now.First, r.Now.Later, err = m.epochs(ctx, run, nil); err != nil {
			return nil, err
		}
	}
	if r.Differs = r.differs(m); r.Refuted() || r.Refutes != 1 {
		r.Now.Certain = false
	}
	r.caches(m)
	r.together(m)
	if err := r.remedies(ctx, m, o); err != nil {
		return nil, err
	}
	return r, nil
}

// failed reports whether the loader in use prepares samples, and that could not be measured: a note
// has the reason.
func (m *Measured) failed() bool {
	return len(m.Preparation) == 0 && slices.ContainsFunc(m.Notes, func(n Note) bool {
		return n.About == "preparation" || n.About == "preparation_by_hdmlp" && m.Loader.Name == HDMLP
	})
}

// serial reports whether the process that trains prepares the samples itself.
func (m *Measured) serial() bool { return m.Loader.Name == Torch && m.Loader.Workers == 0 }

// speed returns the speed of the job as it is, with the interval that follows from those of the
// rates.
func (m *Measured) speed(now Rates, parts []Part) Speed {
	low, _ := rates(m.level(func(r Rate) float64 { return r.Low }).Run(), m.serial(), nil)
	high, _ := rates(m.level(func(r Rate) float64 { return r.High }).Run(), m.serial(), nil)
	s := Speed{
		Limit: now.limit(parts), Samples: now.Speed(), Low: low.Speed(), High: high.Speed(),
		Fetch: finite(now.Fetch), Prepare: finite(now.Preparation), Train: finite(now.Training),
		Epoch: m.perNode() / now.Speed(),
	}
	for _, p := range parts {
		if p.Tier != remedy.Source {
			s.Cached += p.Share
		}
	}
	s.Certain = certain(now, low, high) && !m.TooFew() && !m.Contradicts(s.Low, s.High)
	return s
}

// TooFew reports whether training, or what the loader in use prepares or reads, was measured too
// rarely for an interval.
func (m *Measured) TooFew() bool {
	reads := around(m.Source, float64(m.Loader.Streams))
	if m.Loader.Streams == 0 && len(m.Source) > 0 {
		reads = []Point{best(m.Source)}
	}
	if len(m.Sources) > 0 {
		reads = around(m.Sources, float64(m.Nodes))
	}
	prepares := around(m.Preparation, float64(m.threads()))
	few := func(p Point) bool { return p.Few }
	return m.Training.Few || slices.ContainsFunc(prepares, few) || slices.ContainsFunc(reads, few) ||
		m.unprepared()
}

// unprepared reports whether preparation was measured, but not with as many workers as torch's
// loader has. (hdmlp's threads are measured until more of them bring nothing.)
func (m *Measured) unprepared() bool {
	n := len(m.Preparation)
	return m.Loader.Name == Torch && n > 0 && m.Preparation[n-1].N < m.threads()
}

// Contradicts reports whether the job as it is was measured to be slower or faster than all speeds
// between two, which follow from its rates, and than those with empty caches if they were.
func (m *Measured) Contradicts(low, high float64) bool {
	if m.First {
		cold, _ := rates(m.cold().level(func(r Rate) float64 { return r.Low }).Run(), m.serial(), nil)
		low = min(low, cold.Speed())
	}
	return m.AsIs != nil && (m.AsIs.High < low || m.AsIs.Low > high)
}

// certain reports whether the same rate is the least wherever the rates lie in their intervals.
func certain(now, low, high Rates) bool {
	all := []struct{ now, low, high float64 }{
		{now.Training, low.Training, high.Training},
		{now.prepared(), low.prepared(), high.prepared()},
		{now.Fetch, low.Fetch, high.Fetch},
	}
	slices.SortStableFunc(all, func(a, b struct{ now, low, high float64 }) int {
		return cmp.Compare(a.now, b.now)
	})
	return all[0].high < min(all[1].low, all[2].low)
}

// limit is Limit, with the tier that takes most of the time where F limits.
func (r Rates) limit(parts []Part) string {
	if limit := r.Limit(); limit != remedy.Source {
		return limit
	}
	return slowest(parts)
}

// level returns what was measured with another value for each median: an end of its interval.
func (m *Measured) level(of func(Rate) float64) *Measured {
	out := *m
	rate := func(r *Rate) *Rate {
		if r == nil {
			return nil
		}
		return &Rate{Median: of(*r), Low: r.Low, High: r.High}
	}
	points := func(all []Point) (moved []Point) {
		for _, p := range all {
			moved = append(moved, Point{p.N, p.Streams, *rate(&p.Rate)})
		}
		return moved
	}
	out.Training = rate(m.Training)
	out.Memory = rate(m.Memory)
	out.Directory = rate(m.Directory)
	out.Peers = rate(m.Peers)
	out.Preparation, out.Switched = points(m.Preparation), points(m.Switched)
	out.Source, out.Sources = points(m.Source), points(m.Sources)
	return &out
}

// caches fills in what other caches in memory would bring, of hdmlp's kind, which serve as many
// reads as they hold; and what the job needs.
func (r *Report) caches(m *Measured) {
	plain := *m
	plain.Loader.Name = HDMLP // a cache serves what it holds
	run := plain.Run()
	for i := range shares + 1 {
		x := float64(i) / shares
		rates, parts := rates(run, m.serial(), []remedy.Change{{
			Key: remedy.Memory, Amount: x * m.Dataset.MB * mega,
		}})
		r.Caches = append(r.Caches, Cache{
			Share: x, Fetch: finite(rates.Fetch), Speed: rates.Speed(), Limit: rates.limit(parts),
			Stall: rates.StallOf(m.perNode()),
		})
	}
	x, ok := m.needed(run)
	r.Needed = Needed{Cache: x, CacheMB: x * m.Dataset.MB, Enough: ok}
	if len(m.Preparation) > 0 {
		run := m.Run()
		now, _ := rates(run, m.serial(), nil)
		cores, rate := m.cores()
		one := 1 / (float64(cores)/rate + now.Reading*float64(run.Transformers))
		r.Needed.Cores = NeededCores(one, min(now.Fetch, now.Training))
		r.Needed.CoresToTrain = NeededCores(one, now.Training)
	}
}

// needed returns x*, by NeededCache if memory is the only cache, there is one node, and reads need
// no processor. Otherwise it is found by bisection: what is in memory need not be in a directory or
// on another node.
func (m *Measured) needed(run *remedy.Run) (x float64, ok bool) {
	with := func(x float64) Rates {
		rates, _ := rates(run, false, []remedy.Change{{
			Key: remedy.Memory, Amount: x * m.Dataset.MB * mega,
		}})
		return rates
	}
	none, all := with(0), with(1)
	if m.Nodes == 1 && m.Loader.DirectoryMB == 0 && none.Reading == 0 {
		return NeededCache(all.Fetch, none.Fetch, min(none.Preparation, none.Training))
	}
	enough := func(r Rates) bool { return r.Fetch >= min(r.prepared(), r.Training) }
	high := 1.0
	switch {
	case enough(none):
		return 0, true
	case !enough(all):
		return 1, false
	}
	for low, step := 0.0, 0; step < 40; step++ {
		if middle := (low + high) / 2; enough(with(middle)) {
			high = middle
		} else {
			low = middle
		}
	}
	return high, true
}

// together fills in what several jobs on a node would do, alone and with share.
func (r *Report) together(m *Measured) {
	with := m
	if m.Loader.Name != HDMLP {
		with = m.switched()
	}
	one, _ := rates(with.Run(), false, nil)
	for _, jobs := range []int{2, 4, 8} {
		n := float64(jobs)
		apart := Rates{Fetch: one.Fetch / n, Preparation: one.Preparation / n, Training: one.Training}
		r.Together = append(r.Together, Jobs{jobs, apart.Speed(), one.Speed()})
	}
}
