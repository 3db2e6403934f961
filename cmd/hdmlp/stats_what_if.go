package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/report"
)

// answers is what `hdmlp stats --what-if --json` prints.
type answers struct {
	Jobs []remedy.Answer `json:"jobs"`
}

// runWhatIf answers what changes would bring the jobs of this name, or those whose names contain
// it, each over all its nodes.
func runWhatIf(ctx context.Context, name, text string, asJSON bool, out io.Writer) error {
	changes, err := remedy.Parse(text)
	if err != nil {
		return badInput("--what-if: %w", err)
	}
	var reports daemon.ClusterStats
	if err := ask(ctx, "cluster", map[string]any{"job": name}, &reports); err != nil {
		return err
	}
	a, unmeasured := whatIf(reports.Jobs, changes)
	if asJSON {
		return printJSON(out, a)
	}
	if len(reports.Jobs) == 0 {
		fmt.Fprintln(out, "no job is running")
	}
	for _, job := range unmeasured {
		fmt.Fprintf(out, "job %s: nothing was measured yet; ask again after its first batches\n",
			human.Name(job))
	}
	for i := range a.Jobs {
		if err := printAnswer(&a.Jobs[i], text, out); err != nil {
			return err
		}
	}
	return nil
}

// whatIf returns the answers for the jobs, and the names of those of which nothing was measured.
func whatIf(
	jobs []*report.ClusterReport, changes []remedy.Change,
) (a answers, unmeasured []string) {
	a.Jobs = []remedy.Answer{}
	for _, j := range jobs {
		if answer, ok := j.WhatIf(changes); ok {
			a.Jobs = append(a.Jobs, answer)
		} else {
			unmeasured = append(unmeasured, j.Job)
		}
	}
	return a, unmeasured
}

// printAnswer prints what is predicted with the changes beside what is predicted today.
func printAnswer(a *remedy.Answer, text string, out io.Writer) error {
	fmt.Fprintf(out, "job %s: what if %s\nepochs after the first one, by the model:\n\n",
		human.Name(a.Job), text)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name, now, then string) { fmt.Fprintf(w, "%s\t%s\t%s\t\n", name, now, then) }
	of := func(name string, get func(*remedy.Prediction) string) {
		row(name, get(&a.Now.Prediction), get(&a.Then))
	}
	row("", "today", "then")
	of("epoch", func(p *remedy.Prediction) string { return fmt.Sprintf("%.3f s", p.Epoch) })
	of("stall", func(p *remedy.Prediction) string { return fmt.Sprintf("%.3f s", p.Stall) })
	of("from the source", func(p *remedy.Prediction) string { return human.Format(p.Source) })
	of("limit", func(p *remedy.Prediction) string { return p.Resource })
	of("next", func(p *remedy.Prediction) string {
		if p.Next == nil {
			return "nothing"
		}
		return fmt.Sprintf("%s, %.3f s", p.Next.Resource, p.Next.Seconds)
	})
	if err := w.Flush(); err != nil {
		return err
	}
	if a.Now.Measured > 0 {
		fmt.Fprintf(out, "\nmeasured: %.3f s an epoch\n", a.Now.Measured)
	}
	if len(a.Then.Guessed) > 0 {
		fmt.Fprintf(out, "\nnot measured, so that the prediction rests on a guess: %s\n",
			strings.Join(a.Then.Guessed, ", "))
	}
	return nil
}

// printRemedies prints all remedies; the report's sentence has the first one.
func printRemedies(now *remedy.Now, remedies []remedy.Remedy, out io.Writer) {
	if now == nil {
		return
	}
	for i, r := range remedies {
		if i == 0 {
			fmt.Fprintf(out, "an epoch, by the model %.3f s, would take\n", now.Epoch)
		}
		fmt.Fprintf(out, "  %.3f s with %s; limit: %s\n", r.After, r.Text, r.Resource)
	}
}
