package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/study/history"
)

// mostReport is the size limit of a file with a report, in bytes.
const mostReport = 256 << 20

// savedReport reads what loader.report() returned, over one node or all, from a JSON file; -: in.
func savedReport(path string, in io.Reader) (*report.ClusterReport, error) {
	var data []byte
	var err error
	if path == "-" {
		data, err = io.ReadAll(io.LimitReader(in, mostReport))
	} else {
		data, err = files.Read(path, mostReport)
	}
	if err != nil {
		return nil, badInput("--from %s: %w", path, withoutPath(err))
	}
	var of struct {
		Job   string `json:"job"`
		Nodes any    `json:"nodes"` // of a report over all nodes a list, else how many there are
	}
	var all report.ClusterReport
	var one report.Report
	err = json.Unmarshal(data, &of)
	if _, over := of.Nodes.([]any); over && err == nil {
		err = json.Unmarshal(data, &all)
	} else if err == nil {
		err = json.Unmarshal(data, &one)
		all.Series = one.Series
		if one.Series.Valid() {
			all = *one.Summary()
		}
	}
	switch {
	case err != nil:
		return nil, badInput("--from %s: not a report, as json.dump(loader.report(), file) writes "+
			"it%s", path, whyNotJSON(err))
	case of.Job == "":
		return nil, badInput("--from %s: not a report of a job, as json.dump(loader.report(), file) "+
			"writes it", path)
	case !all.Series.Valid():
		return nil, badInput("--from %s: the report was changed: no series has %d points of %d steps "+
			"from step %d on", path, len(all.Series.Points), all.Series.Width, all.Series.First)
	case all.Series == nil:
		return nil, badInput("--from %s: the report has no series: no rank had taken a batch when "+
			"loader.report() was called, or an earlier release made it", path)
	}
	return &all, nil
}

// runPlot draws how a job went: the running one of this name, or that of a saved report.
func runPlot(ctx context.Context, name, from, dir string, in io.Reader, out io.Writer) error {
	switch {
	case dir == "":
		return badInput("--from: give --out too, the directory for the plots")
	case (name == "") == (from == ""):
		return badInput("--out: give either --job, a running job, or --from, a saved report")
	case from != "":
		c, err := savedReport(from, in)
		if err != nil {
			return err
		}
		return plotJob(c, dir, out)
	}
	var answer daemon.ClusterStats
	if err := ask(ctx, "cluster", map[string]any{"job": name}, &answer); err != nil {
		return err
	}
	if len(answer.Jobs) != 1 {
		var names []string
		for _, c := range answer.Jobs {
			names = append(names, c.Job)
		}
		return badInput("--out: --job %s is %d jobs (%s): give the whole name of one", name, len(names),
			strings.Join(names, ", "))
	}
	return plotJob(answer.Jobs[0], dir, out)
}

// plotJob draws how a job went into a directory.
func plotJob(c *report.ClusterReport, dir string, out io.Writer) error {
	document, err := history.Document(c)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Job, err)
	}
	written, err := document.Write(dir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "wrote %s to %s\n", strings.Join(written, ", "), dir)
	return err
}
