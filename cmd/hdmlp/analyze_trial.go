package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

// trial is a change that a script can be run again with, and what is predicted of it.
type trial struct {
	text      string
	workers   int      // of torch's loader in each rank; 0: hdmlp's loader is used
	variables []string // that configure hdmlp's loader, NAME=value
	predicted float64  // a later epoch, s; 0: there is no prediction
}

// trialOf returns what to try of what was measured: the first advice, or hdmlp's loader as it is
// configured if nothing is advised, or that cannot be made here: then why says so. given are the
// keys that the script's loader gives itself.
func trialOf(ctx context.Context, m *analysis.Measured, given map[string]any) (
	t trial, why string, err error,
) {
	r, err := analysis.Analyze(ctx, m, analysis.Options{})
	if err != nil {
		return t, "", err
	}
	if first := r.First(); first != nil {
		if t, why = applied(m, first, given); why == "" {
			return t, "", nil
		}
		why = fmt.Sprintf("the first advice, %s, cannot be tried: %s", first.Text, why)
	}
	c, err := jobConfig(nil, "", "") // what loaders get that are given nothing else
	if err != nil {
		return t, why, err
	}
	if r, err = analysis.Analyze(ctx, tried(m, c), analysis.Options{}); err != nil {
		return t, why, err
	}
	return trial{text: "hdmlp's loader", predicted: predictedEpoch(m, r)}, why, nil
}

// applied returns the trial of an advice, or why it cannot be applied.
func applied(m *analysis.Measured, o *analysis.Option, given map[string]any) (t trial, why string) {
	t = trial{text: o.Text, predicted: cmp.Or(o.Simulated, o.Epoch)}
	hdmlps := m.Loader.Name == analysis.HDMLP || o.Switch
	set := func(key, value string) {
		if p, ok := config.Lookup(key); ok {
			t.variables = append(t.variables, p.Variable()+"="+value)
		}
		if _, ok := given[key]; ok {
			why = fmt.Sprintf("the script gives its loader %s itself", key)
		}
	}
	if o.Forms {
		return t, "samples become forms only in the course of six epochs or more"
	}
	if o.Switch {
		set("memory", fmt.Sprintf("%dB", m.CacheBytes()))
	}
	for _, c := range o.Changes {
		switch n := int64(c.Amount); {
		case c.Key == remedy.Threads && n > int64(m.Cores):
			why = fmt.Sprintf("there are %s", count(m.Cores, "core"))
		case c.Key == remedy.Threads && hdmlps:
			set("transform_threads", fmt.Sprint(n))
		case c.Key == remedy.Threads:
			ranks := max(m.Ranks/m.Nodes, 1)
			t.workers = max((int(n)+ranks-1)/ranks, 1)
		case c.Key == remedy.Memory && hdmlps && n > m.Room:
			why = "there is less memory"
		case c.Key == remedy.Memory && hdmlps:
			set("memory", fmt.Sprintf("%dB", n))
		default:
			why = "it changes the machine"
		}
	}
	return t, why
}
