package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/source/files"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/instrument"
	"github.com/hdmlp/hdmlp/internal/study/measure/survey"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// The shares of the time for the phases in the script; the rest is for the source and the caches.
const (
	shareAsIs        = 0.25
	shareTraining    = 0.15
	sharePreparation = 0.35
)

// measure runs the script, and measures what the script cannot; on several nodes, together with the
// others, until ctx ends. If cut is not nil, it is why not everything was measured, and m has what
// was measured.
func (o *scriptOptions) measure(ctx context.Context, n *others) (m *analysis.Measured,
	cut, err error,
) {
	part := func(share float64) time.Duration { return time.Duration(float64(o.time) * share) }
	begun := time.Now()
	busy, err := busyMachine()
	if err != nil {
		return nil, nil, err
	}
	if busy != "" {
		o.tell("warning: " + busy)
	}
	var available atomic.Int64
	joining, abandon := context.WithCancel(ctx)
	defer abandon()
	record, exit, err := instrument.Run(ctx, instrument.Options{
		Command: o.command, Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr,
		AsIs: part(shareAsIs), Training: part(shareTraining), Preparation: part(sharePreparation),
		Package: pythonPackage(), Progress: o.tell,
		Measuring: func() {
			if free, err := availableMemory(); err == nil {
				available.Store(free)
			}
		},
		Nodes: func(job instrument.Job) { n.join(joining, job) },
	})
	if cause := endOf(ctx); cause != nil && record != nil {
		cut = cause
		if input := (inputError{}); errors.As(cause, &input) || !counted(record) {
			return nil, nil, cause
		}
	} else if err != nil {
		return nil, nil, err
	} else if cut, err = judge(record, exit); err != nil {
		return nil, nil, err
	}
	m = record.Measured()
	o.given = record.First().Loader.Keys
	m.Command = o.command
	m.Cores = runtime.GOMAXPROCS(0)
	m.Room = available.Load()
	if busy != "" {
		m.Notes = append(m.Notes, analysis.Note{Text: busy})
	}
	how := "then the script was ended"
	switch {
	case exit.Forced:
		how = "the script did not end by itself after that, and was killed"
	case cut != nil || exit.Status != 0:
		how = fmt.Sprintf("the script's exit status is %d", exit.Status)
	}
	if cut == nil {
		m, cut, err = o.rest(ctx, n, m, record)
		if err != nil {
			return nil, nil, err
		}
	}
	if cut != nil {
		m.Notes = append(m.Notes, analysis.Note{Text: "cut short: " + whyCut(cut)})
	}
	o.tell(fmt.Sprintf("measured in %s; %s", seconds(time.Since(begun).Seconds()), how))
	return m, cut, nil
}

// whyCut returns the text of cut, which is why not everything was measured.
func whyCut(cut error) string {
	return strings.ReplaceAll(cut.Error(), context.Canceled.Error(), "interrupted")
}

// endOf returns why the measurements ended, if they did: context.Canceled for a signal.
func endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		return context.Canceled
	}
	return cause
}

// rest measures what the script cannot, and combines what was measured of all nodes. cut is why not
// all of it was measured; nil: all was.
func (o *scriptOptions) rest(ctx context.Context, n *others, m *analysis.Measured,
	r *instrument.Record,
) (_ *analysis.Measured, cut, err error) {
	// Nothing hangs longer than this, on other nodes either.
	within, cancel := context.WithTimeout(ctx, 2*o.time+time.Minute)
	defer cancel()
	group, files := n.found(), len(r.First().Files.Paths) > 0
	if end := endOf(ctx); end != nil {
		return m, end, nil
	}
	if group != nil {
		if files, err = n.share(within, group, m, files); err != nil {
			return m, err, nil
		}
	}
	if err := o.survey(within, m, r, group, files); err != nil {
		if within.Err() != nil {
			return m, cmp.Or(endOf(ctx), err), nil
		}
		return m, nil, err
	}
	if group != nil {
		if !o.validate {
			n.finish()
		}
		all, err := n.together(within, group, m)
		if err != nil {
			return m, err, nil
		}
		m = all
	}
	return m, nil, nil
}

// judge checks whether any conclusion can be drawn from the record: err is why none can, and cut is
// why not everything was measured.
func judge(r *instrument.Record, exit instrument.Exit) (cut, err error) {
	ended := fmt.Sprintf("the script ended with exit status %d", exit.Status)
	advice := "let it train for longer"
	if exit.Status != 0 {
		advice = "its own messages say why; if it is to end, let it train for longer"
	}
	switch {
	case r.Refused != "":
		return nil, badInput("%s", r.Refused)
	case r.Lost != "" && len(r.Ranks) == 0:
		return nil, errors.New(r.Lost)
	case r.Pythons == 0:
		return nil, badInput("%s, and no Python process of it could be measured: the command must "+
			"start Python, without its options -I, -E and -S, which hide PYTHONPATH", ended)
	case len(r.Ranks) == 0 && exit.Status != 0:
		return nil, fmt.Errorf("%s before it iterated a loader; its own messages say why", ended)
	case len(r.Ranks) == 0:
		return nil, badInput("%s and iterated no loader for training: hdmlp analyze measures "+
			"torch.utils.data.DataLoader and hdmlp's loaders", ended)
	}
	for _, rank := range r.Ranks {
		switch {
		case r.Lost != "":
			cut = errors.New(r.Lost)
		case !rank.Ended:
			cut = fmt.Errorf("%s before everything was measured; %s, or give less --time", ended, advice)
		}
	}
	if !counted(r) {
		if r.Lost != "" {
			return nil, errors.New(r.Lost)
		}
		return nil, fmt.Errorf("%s after too few iterations to measure any; %s", ended, advice)
	}
	return cut, nil
}

// counted reports whether any iteration was counted.
func counted(r *instrument.Record) bool {
	for _, rank := range r.Ranks {
		if len(rank.AsIs) > 0 {
			return true
		}
	}
	return false
}

// survey measures the source and the caches, and what hdmlp prepares; the source together with the
// nodes of the group, if that is not nil. Without known files, it is not measured.
func (o *scriptOptions) survey(ctx context.Context, m *analysis.Measured, r *instrument.Record,
	group *survey.Group, known bool,
) error {
	rank := r.First()
	c, err := jobConfig(whole(rank.Loader.Keys), o.cache, rank.Loader.Config)
	if err != nil {
		return err
	}
	if m.Loader.Name == analysis.HDMLP {
		if err := configured(m, c); err != nil {
			return err
		}
	} else if !rank.Uncached {
		m.Loader.CacheMB = float64(m.Room) / 1e6 // the page cache's
	}
	cache := m.Loader.CacheMB
	m.Loader.CacheMB = min(cache, m.Dataset.MB)
	m.Loader.DirectoryMB = min(m.Loader.DirectoryMB, m.Dataset.MB-m.Loader.CacheMB)
	if !known {
		return nil // the notes say why
	}
	source, err := files.New(rank.Files.Paths, rank.Files.Offsets, rank.Files.Sizes)
	if err != nil {
		return err
	}
	m.Dataset.Path = common(rank.Files.Paths)
	program, err := compile(rank.Transforms)
	if err != nil {
		m.Notes = append(m.Notes, analysis.Note{About: "preparation_by_hdmlp", Text: err.Error()})
	}
	probed := probeOptions{config: c, progress: once(o.tell), warn: o.tell}
	probed.time = time.Duration(float64(o.time) * (1 - shareAsIs - shareTraining - sharePreparation))
	spec, err := probed.spec(source, program)
	if err != nil {
		return err
	}
	spec.Group = group
	result, err := survey.Run(ctx, spec)
	if errors.Is(err, survey.ErrNoSamples) {
		m.Notes = append(m.Notes, analysis.Note{About: "source", Text: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	fill(m, result, program != nil, rank.Files.Each())
	if m.Forms != nil && m.Loader.Name == analysis.HDMLP { // what samples leave, forms take
		m.Loader.CacheMB = max(m.Loader.CacheMB, min(cache, float64(m.FormBytes())/1e6))
	}
	return nil
}

// fill adds the results of a survey of files, where each sample has so many files. transforms is
// set if there are transforms to measure.
func fill(m *analysis.Measured, s *survey.Result, transforms bool, files float64) {
	m.Source = perSample(instrument.Points(s.Source), files)
	m.SourceWork = s.Work() * files
	if s.Transforms != nil {
		points := instrument.Points(append(s.Source[:0:0], *s.Transforms))
		if m.Loader.Name == analysis.HDMLP {
			m.Preparation = points
		} else {
			m.Switched = points
		}
		if s.Forms.Time > 0 && files == 1 {
			m.Forms = &s.Forms
		}
	}
	for _, total := range s.Sources {
		p := instrument.PointOf(total.Nodes, total.Point.Rate, s.Mean*files)
		p.Streams = total.Point.Streams
		m.Sources = append(m.Sources, p)
	}
	if len(s.Network) > 0 {
		m.Peers = peers(s, m.Dataset.MB/float64(m.Dataset.Samples))
	}
	for _, class := range s.Classes {
		if len(class.Read) == 0 {
			continue
		}
		points := instrument.Points(class.Read[len(class.Read)-1:])
		rate := instrument.Best(perSample(points, files))
		if class.Path == "" {
			m.Memory = rate
		} else {
			m.Directory = rate
		}
	}
	for _, skipped := range s.Skipped {
		switch what := skipped.What; {
		case what == "transforms" && transforms:
			m.Notes = append(m.Notes, analysis.Note{About: "preparation_by_hdmlp", Text: skipped.Why})
		case what == "transforms": // there are none
		case m.Nodes <= 1 && (what == "network" || what == "source of several nodes"):
		default:
			m.Notes = append(m.Notes, analysis.Note{Text: skipped.What + ": " + skipped.Why})
		}
	}
	for _, note := range s.Notes {
		m.Notes = append(m.Notes, analysis.Note{Text: note})
	}
}

// perSample returns the rates of samples from those of files, of which a sample has so many.
func perSample(points []analysis.Point, files float64) []analysis.Point {
	for i := range points {
		p := &points[i]
		p.Median /= files
		p.Low /= files
		p.High /= files
	}
	return points
}

// peers returns the rate of reads from another node, of samples of mb MB: that of the model, with
// the interval of the fastest measurement, whose samples may have another size.
func peers(s *survey.Result, mb float64) *analysis.Rate {
	best := s.Network[len(s.Network)-1].Best()
	p := instrument.PointOf(1, best.Rate, mb)
	scale := s.Node.Network.Rate(best.Streams, mb) / best.Rate.Median
	p.Median *= scale
	p.Low *= scale
	p.High *= scale
	return &p.Rate
}

// whole returns values as JSON has them, with integers where they are whole.
func whole(keys map[string]any) map[string]any {
	out := make(map[string]any, len(keys))
	for key, value := range keys {
		if n, ok := value.(float64); ok && n == math.Trunc(n) {
			value = int64(n)
		}
		out[key] = value
	}
	return out
}

// once returns a function that passes the kind of a measurement to tell, once for each in a row.
// After the first comma come sizes and numbers of streams.
func once(tell func(text string)) func(what string) {
	last := ""
	return func(what string) {
		if kind, _, _ := strings.Cut(what, ","); kind != last {
			last = kind
			tell(kind)
		}
	}
}

// compile returns the program of transforms; nil if there are none, or not all are hdmlp's.
func compile(t *instrument.Transforms) (*transform.Program, error) {
	if t == nil || t.Left != "" || len(t.List) == 0 || string(t.List) == "null" {
		return nil, nil
	}
	return transform.Compile(t.List)
}

// common returns the deepest directory that has all of the files.
func common(paths []string) string {
	dir := filepath.Dir(paths[0])
	for _, path := range paths[1:] {
		for dir != "/" && !strings.HasPrefix(path, dir+"/") {
			dir = filepath.Dir(dir)
		}
	}
	return dir
}

// pythonPackage returns the directory with the Python package that this binary is part of; "": it
// is part of none.
func pythonPackage() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return ""
	}
	dir := filepath.Join(filepath.Dir(path), "..") // of hdmlp/bin
	if _, err := os.Stat(filepath.Join(dir, "__init__.py")); err != nil ||
		filepath.Base(dir) != "hdmlp" {
		return ""
	}
	return filepath.Dir(dir)
}

// busyMachine returns what to say if the machine does other work already; "": it does not.
func busyMachine() (string, error) {
	load, err := host.Load()
	if err != nil {
		return "", err
	}
	if cores := runtime.GOMAXPROCS(0); load > float64(cores) {
		return fmt.Sprintf("the machine is busy: %.1f processes want to run on %s; what is measured "+
			"is slower than on an idle machine, and the intervals are wide", load,
			count(cores, "processor")), nil
	}
	return "", nil
}
