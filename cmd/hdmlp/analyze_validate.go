package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
	"github.com/hdmlp/hdmlp/internal/study/instrument"
	"github.com/hdmlp/hdmlp/internal/study/measure/survey"
)

// second is what a node measured of the job with the change.
type second struct {
	AsIs *analysis.Rate
	Why  string // there is none; "": there is
}

// compare runs the script with the first change that is advised, and compares a later epoch with
// what is predicted of it. What cannot be compared is noted. On several nodes all do the same.
func (o *scriptOptions) compare(ctx context.Context, n *others, m *analysis.Measured) error {
	note := func(text string) {
		o.tell("not validated: " + text)
		m.Notes = append(m.Notes, analysis.Note{About: "validation", Text: text})
	}
	t, why, err := trialOf(ctx, m, o.given)
	if err != nil {
		return err
	}
	if why != "" {
		o.tell(why)
		m.Notes = append(m.Notes, analysis.Note{About: "validation", Text: why})
	}
	if t.predicted == 0 {
		note("nothing is predicted of this job with hdmlp's loader")
		n.finish()
		return nil
	}
	o.tell("running the script again: " + t.text)
	record, exit, err := instrument.Run(ctx, instrument.Options{
		Command: o.command, Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr,
		AsIs: o.time / 2, Package: pythonPackage(), Validate: true, Progress: o.tell,
		Workers: t.workers, Variables: t.variables,
	})
	if err != nil {
		return err
	}
	all := []second{again(record, exit, t.workers > 0)}
	if g := n.found(); g != nil {
		n.finish()
		within, cancel := context.WithTimeout(ctx, 2*o.time+time.Minute)
		defer cancel()
		if all, err = survey.Tell(within, g, all[0]); err != nil {
			note(n.gone(within, err).Error())
			return nil
		}
	}
	var rates []*analysis.Measured
	for node, s := range all {
		if s.Why != "" {
			if len(all) > 1 {
				s.Why = fmt.Sprintf("node %d: %s", node, s.Why)
			}
			note(s.Why)
			return nil
		}
		rates = append(rates, &analysis.Measured{AsIs: s.AsIs})
	}
	asIs := analysis.OfNodes(rates).AsIs
	epoch := float64(m.Dataset.Samples) / float64(m.Nodes)
	v := &analysis.Validation{
		Change: t.text, Predicted: t.predicted, Measured: epoch / asIs.Median, Low: epoch / asIs.High,
		High: epoch / asIs.Low,
	}
	v.Error = v.Predicted/v.Measured - 1
	m.Validation = v
	o.tell(fmt.Sprintf("validated: %s: a later epoch was predicted to take %s, and "+
		"took %s (%s to %s): the prediction is off by %.1f %%", v.Change, seconds(v.Predicted),
		seconds(v.Measured), seconds(v.Low), seconds(v.High), 100*math.Abs(v.Error)))
	return nil
}

// tried returns the job with the caches that hdmlp's loader has by the configuration if it takes
// the place of another one. They are not all that there is room for, which is what is recommended.
func tried(m *analysis.Measured, c *config.Config) *analysis.Measured {
	if m.Loader.Name == analysis.HDMLP {
		return m
	}
	with := *m
	with.Room, with.Loader.DirectoryMB = 0, 0
	for _, class := range c.StorageClasses {
		if class.Memory {
			with.Room += class.Capacity()
		} else {
			with.Loader.DirectoryMB += float64(capacityOf(class)) / 1e6
		}
	}
	return &with
}

// again returns what the script did: with hdmlp's loader, or with torch's.
func again(record *instrument.Record, exit instrument.Exit, torchs bool) second {
	if cut, err := judge(record, exit); cut != nil || err != nil {
		return second{Why: cmp.Or(err, cut).Error()}
	}
	m := record.Measured()
	switch {
	case m.Loader.Name != analysis.HDMLP && !torchs:
		return second{Why: "the daemon does not serve the dataset"}
	case m.AsIs == nil:
		return second{Why: "a rank counted no iteration"}
	}
	return second{AsIs: m.AsIs}
}

// predictedEpoch returns how long a later epoch takes with hdmlp's loader and nothing else changed,
// in seconds; 0: there is no prediction.
func predictedEpoch(m *analysis.Measured, r *analysis.Report) float64 {
	if r.Missing != nil {
		return 0
	}
	if m.Loader.Name == analysis.HDMLP {
		return cmp.Or(r.Now.Later, r.Now.Epoch)
	}
	for _, option := range r.Remedies {
		if option.Switch {
			return cmp.Or(option.Simulated, option.Epoch)
		}
	}
	return 0
}
