package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
)

// storedModel is what is stored of this machine beside a dataset's index, as `hdmlp config` shows
// it.
type storedModel struct {
	Dataset string  `json:"dataset"`
	Path    string  `json:"path"` // of the file; "": nothing is stored
	Age     float64 `json:"age_s"`
	Nodes   int     `json:"nodes"`           // of the job or the probe that stored it
	Sample  float64 `json:"sample_size_mb"`  // mean
	Error   string  `json:"error,omitempty"` // why jobs ignore the file

	node model.Node
}

// readStored reads what is stored beside the index of a dataset, which it does not scan. A file
// that jobs ignore is no error.
func readStored(ctx context.Context, dir string, flags datasetFlags, timeout time.Duration,
	now time.Time,
) (*storedModel, error) {
	s := &storedModel{Dataset: dir}
	flags.unscanned = true
	at, err := flags.find(ctx, timeout, []string{dir})
	if err != nil {
		return nil, openError(fmt.Errorf("--dataset: %w", err))
	}
	silent := func(string) {}
	src, err := at.kind.Open(ctx, at.dir, source.OpenOptions{
		Values: at.values, View: at.view, Unscanned: true, Timeout: timeout, Warn: silent, Tell: silent,
	})
	if err != nil {
		return nil, openError(fmt.Errorf("--dataset: %w", err))
	}
	defer src.Close()
	beside, ok := source.As[source.Beside](src)
	if !ok {
		return s, nil
	}
	f, path, err := envfile.Stored(beside)
	s.Path = path
	if err != nil {
		s.Error = err.Error()
		return s, nil
	}
	if path != "" {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("--dataset %s: %w", dir, err)
		}
		s.Age = max(now.Sub(info.ModTime()).Seconds(), 0)
	}
	s.node = f.Node
	s.Nodes = f.Size.Nodes
	s.Sample = f.Size.Sample
	return s, nil
}

// startingNode returns what a job on the dataset begins with; s may be nil.
func (s *storedModel) startingNode(c *config.Config) model.Node {
	if s == nil {
		return catalog.StartingNode(model.Node{}, c, 1, 0)
	}
	return catalog.StartingNode(s.node, c, max(s.Nodes, 1), s.Sample)
}

// text describes in a line what is stored.
func (s *storedModel) text() string {
	switch {
	case s.Error != "":
		return fmt.Sprintf("not used; a job measures again, and stores that when it ends: %s",
			human.Text(s.Error))
	case s.Path == "":
		return "nothing: no job on it has ended yet, and it was not probed"
	}
	return fmt.Sprintf("%s ago, on %s", age(s.Age), count(s.Nodes, "node"))
}

// age formats a duration in seconds as days, hours, minutes or seconds, whichever fits best.
func age(s float64) string {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"day", 86400}, {"hour", 3600}, {"minute", 60}} {
		if s >= unit.seconds {
			return count(int(math.Floor(s/unit.seconds)), unit.name)
		}
	}
	return count(int(s), "second")
}
