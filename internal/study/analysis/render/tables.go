package render

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/drawing"
)

// facts describe the job.
func facts(r *analysis.Report) []drawing.Fact {
	m := r.Measured
	all := []drawing.Fact{
		{Name: "dataset", Value: dataset(&m.Dataset)},
		{Name: "loader", Value: loader(m)},
		{Name: "job", Value: fmt.Sprintf("%s on %s, batches of %s", plural(m.Ranks, "rank"),
			plural(m.Nodes, "node"), plural(m.Batch, "sample"))},
		{Name: "each node", Value: fmt.Sprintf("%s, %s of memory for a cache", plural(m.Cores, "core"),
			human.Bytes(float64(m.Room)/1e6))},
	}
	if m.Dataset.Path != "" {
		all[0].Value = human.Name(m.Dataset.Path) + ": " + all[0].Value
	}
	if m.Waited+m.Computed > 0 {
		all = append(all, drawing.Fact{Name: "an iteration, measured", Value: fmt.Sprintf(
			"waited for %.2f ms and computed for %.2f ms", m.Waited*1e3, m.Computed*1e3)})
	}
	if m.SourceWork > 0 && len(m.Preparation) > 0 {
		all = append(all, drawing.Fact{Name: "a read of the source", Value: fmt.Sprintf(
			"takes %.2f ms of a core, which is not there to prepare", m.SourceWork*1e3)})
	}
	if r.Missing != nil {
		return all
	}
	n := &r.Needed
	cache := fmt.Sprintf("%s of the dataset in each node's memory, %s",
		human.Percent(n.Cache), human.Bytes(n.CacheMB))
	switch {
	case !n.Enough:
		cache = "none is enough: reads from the cache limit as well"
	case n.Cache == 0:
		cache = "none: the source is fast enough"
	}
	all = append(all, drawing.Fact{Name: "least cache", Value: cache + " (x*)"})
	if n.Cores > 0 {
		all = append(all, drawing.Fact{Name: "least cores", Value: fmt.Sprintf("%d on each node for "+
			"what is read and trained now (n*), %d for training alone", n.Cores, n.CoresToTrain)})
	}
	if f := r.Formed; f != nil {
		fits := ""
		switch {
		case f.Has:
			fits = ", which the job has"
		case !f.Fits:
			fits = ", which is more than there is"
		}
		all = append(all, drawing.Fact{
			Name: "forms decoded faster",
			Value: fmt.Sprintf("all images take %s of memory on each node%s; hdmlp then prepares %s "+
				"samples/s instead of %s", human.Bytes(f.MB), fits, rate(f.Prepare), rate(f.AsRead)),
		})
	}
	return all
}

// dataset describes how large a dataset is, as far as that is known.
func dataset(d *analysis.Dataset) string {
	count := plural(d.Samples, "sample")
	if d.NoSamples {
		count = "the number of samples is not known"
	}
	if d.NoSize {
		return count + ", and their size is not known"
	}
	each := human.Bytes(d.MB/float64(d.Samples)) + " on average"
	if d.NoSamples {
		return count + ", " + each
	}
	return fmt.Sprintf("%s, %s, %s", count, human.Bytes(d.MB), each)
}

// tables are the tables of the page and the terminal.
func tables(r *analysis.Report) []drawing.Table {
	all := []drawing.Table{rates(r.Measured)}
	if r.Missing != nil {
		return all
	}
	return append(all, stalls(r), options(r), caches(r), together(r))
}

// add adds a row.
func add(t *drawing.Table, head string, cells ...string) {
	row := drawing.Row{Head: head}
	for i, c := range cells {
		row.Cells = append(row.Cells, drawing.Cell{Name: t.Head[i+1], Value: c})
	}
	t.Rows = append(t.Rows, row)
}

// rates is what was measured.
func rates(m *analysis.Measured) drawing.Table {
	t := drawing.Table{
		Title: "What was measured", Pairs: true,
		Head: []string{"", "samples/s", "95 % interval"},
	}
	if !m.Dataset.NoSize {
		t.Head = append(t.Head, "MB/s")
	}
	mb := m.Dataset.MB / float64(m.Dataset.Samples)
	row := func(name string, r *analysis.Rate) {
		if r == nil {
			return
		}
		interval := rate(r.Low) + " to " + rate(r.High)
		if r.Few {
			interval += mark
		}
		cells := []string{rate(r.Median), interval}
		if !m.Dataset.NoSize {
			cells = append(cells, human.Group(r.Median*mb, 1))
		}
		add(&t, name, cells...)
	}
	points := func(name, each string, all []analysis.Point) {
		for i := range all {
			row(fmt.Sprintf("%s, %s", name, plural(all[i].N, each)), &all[i].Rate)
		}
	}
	worker := "thread"
	if m.Loader.Name == analysis.Torch {
		worker = "worker"
	}
	row("training (G)", m.Training)
	row("the device alone", m.Device)
	points("preparation (P)", worker, m.Preparation)
	points("preparation by hdmlp", "thread", m.Switched)
	source := "source (S)"
	if m.Nodes > 1 {
		source = "source (S), 1 node"
	}
	points(source, "stream", m.Source)
	for _, p := range m.Sources {
		n := float64(p.N)
		each := analysis.Rate{Median: p.Median / n, Low: p.Low / n, High: p.High / n, Few: p.Few}
		name := fmt.Sprintf("source, each of %d nodes at once", p.N)
		if p.N == 1 {
			name = "source, 1 node alone"
		}
		if p.Streams > 0 {
			name += ", " + plural(p.Streams, "stream")
		}
		row(name, &each)
	}
	row("memory (C)", m.Memory)
	row("cache directory", m.Directory)
	row("other nodes", m.Peers)
	if m.Nodes > 1 {
		row("the job as it is, each node", m.AsIs)
		if r := m.AsIs; r != nil {
			n := float64(m.Nodes)
			row("the job as it is, all nodes",
				&analysis.Rate{Median: r.Median * n, Low: r.Low * n, High: r.High * n, Few: r.Few})
		}
		return t
	}
	row("the job as it is", m.AsIs)
	return t
}

// stalls is where the time of an epoch goes.
func stalls(r *analysis.Report) drawing.Table {
	t := drawing.Table{
		Title: "Where the time of a later epoch goes", Pairs: true,
		Head: []string{"", "s per epoch", "ms per iteration", "of the time"},
	}
	s := &r.Stall
	if r.Observed != nil {
		t.Head = append(t.Head, "as measured, s")
	}
	row := func(name string, v float64, observed func(*analysis.Stall) float64) {
		cells := []string{
			human.Seconds(v), human.Group(v/r.Iterations*1e3, 2), human.Percent(v / s.Epoch()),
		}
		if r.Observed != nil {
			cells = append(cells, human.Seconds(observed(r.Observed)))
		}
		add(&t, name, cells...)
	}
	row("training", s.Training, func(o *analysis.Stall) float64 { return o.Training })
	row("stall: preparation", s.Preparation,
		func(o *analysis.Stall) float64 { return o.Preparation })
	row("stall: fetch", s.Fetch, func(o *analysis.Stall) float64 { return o.Fetch })
	row("all", s.Epoch(), (*analysis.Stall).Epoch)
	return t
}

// options are the remedies, and what was asked.
func options(r *analysis.Report) drawing.Table {
	t := drawing.Table{
		Title: "What would help, the cheapest first",
		Head:  []string{"change", "epoch, s", "simulated", "times", "limit then"},
	}
	if r.Refuted() {
		t.Title = "What would help if the rates of the parts held, the cheapest first"
	}
	all := r.Remedies
	if r.WhatIf != nil {
		all = append([]analysis.Option{*r.WhatIf}, all...)
	}
	priced := len(all) > 0 && all[0].Price != nil
	if priced {
		money := "price"
		if c := all[0].Price.Currency; c != "" {
			money = human.Text(c)
		}
		t.Head = append(t.Head, money+"/h more", money+"/epoch")
	}
	for _, o := range all {
		text := o.Text
		for _, g := range o.Guessed {
			text += " (not measured: " + g + ")"
		}
		simulated := "–"
		if o.Simulated > 0 {
			simulated = human.Seconds(o.Simulated)
		}
		cells := []string{human.Seconds(o.Epoch), simulated, human.Ratio(o.Times), short(o.Limit)}
		if priced {
			cells = append(cells, price(o.Price.Hour, o.Price.Known),
				price(o.Price.Epoch, o.Price.Epoch > 0))
		}
		add(&t, text, cells...)
	}
	if len(all) == 0 {
		t.Rows = append(t.Rows, drawing.Row{Head: "nothing", Note: "no change of one thing alone"})
	}
	return t
}

// price formats an amount of money.
func price(v float64, known bool) string {
	switch {
	case !known:
		return "–"
	case v != 0 && v > -0.1 && v < 0.1:
		return fmt.Sprintf("%.3g", v)
	}
	return human.Group(v, 2)
}

// shown are the cache sizes of the table and of the bars, in percent: those of CoorDL's figures.
var shown = []int{0, 25, 35, 50, 75, 100}

// atShare returns the cache of a share in percent.
func atShare(r *analysis.Report, percent int) *analysis.Cache {
	return &r.Caches[percent*(len(r.Caches)-1)/100]
}

// caches is what other caches would bring.
func caches(r *analysis.Report) drawing.Table {
	t := drawing.Table{
		Title: "With another part of the dataset in each node's memory", Pairs: true,
		Head: []string{"cached", "memory", "fetch, samples/s", "job, samples/s", "epoch, s", "limit"},
	}
	for _, percent := range shown {
		c := atShare(r, percent)
		add(&t, fmt.Sprintf("%d %%", percent), human.Bytes(c.Share*r.Measured.Dataset.MB),
			rate(c.Fetch), rate(c.Speed), human.Seconds(c.Epoch()), short(c.Limit))
	}
	return t
}

// together is what several jobs on a node would do.
func together(r *analysis.Report) drawing.Table {
	what := "Several such jobs on a node, each with a device of its own"
	if r.Measured.Loader.Name == analysis.Torch {
		what += ", and with hdmlp"
	}
	t := drawing.Table{
		Title: what, Pairs: true,
		Head: []string{"jobs", "each, samples/s", "with share, samples/s", "times as fast"},
	}
	for _, j := range r.Together {
		add(&t, fmt.Sprint(j.Jobs), rate(j.Apart), rate(j.Shared), human.Ratio(j.Shared/j.Apart))
	}
	return t
}
