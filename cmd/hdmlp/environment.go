package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/printable"
)

// modelValue is a number of the performance model as `hdmlp config` shows it.
type modelValue struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // "": not known
	Unit   string `json:"unit"`
	Origin string `json:"origin"` // given or guessed
	Source string `json:"source"` // the file, or when the number is measured
}

// modelOf returns the numbers of the performance model that a job would begin with, unless an
// earlier one has stored others beside the dataset's index.
func modelOf(c *config.Config) (out []modelValue) {
	const rate, measured = "MB/s", "until a job has measured it"
	add := func(key, unit, guess string) {
		name := strings.TrimPrefix(key, "environment.")
		given := givenKeys(c, key)
		for _, k := range given {
			o := c.Origins[k]
			out = append(out, modelValue{
				strings.TrimPrefix(k, "environment."), o.Value, givenUnit(key, o.Value),
				string(perfmodel.Given), o.Source,
			})
		}
		if given == nil {
			out = append(out,
				modelValue{name, guess, unit, string(perfmodel.Guessed), measured})
		}
	}
	perStream := func(k perfmodel.Known) string { return fmt.Sprintf("%.4g", 1/k.PerMB) }
	const one = "MB/s per stream"
	add("environment.compute", rate, "")
	add("environment.preprocess", rate, "")
	add("environment.network", one, perStream(perfmodel.GuessedPeer))
	add("environment.source", one, perStream(perfmodel.GuessedSource))
	add("environment.source_latency", "s", fmt.Sprintf("%.4g", perfmodel.GuessedSource.Latency))
	add("environment.source_network", rate, "")
	for i, class := range c.StorageClasses {
		guess := perfmodel.GuessedClass
		if class.InMemory() {
			guess = perfmodel.GuessedMemory
		}
		add(fmt.Sprintf("storage_class[%d].read", i), one, perStream(guess))
		add(fmt.Sprintf("storage_class[%d].write", i), one, perStream(guess))
	}
	return out
}

// givenKeys returns the keys of a number that the file gives: its own, or one for each point of a
// curve.
func givenKeys(c *config.Config, key string) (keys []string) {
	for _, k := range slices.Sorted(maps.Keys(c.Origins)) {
		if k == key || strings.HasPrefix(k, key+".") {
			keys = append(keys, k)
		}
	}
	return keys
}

// givenUnit returns the unit of a given number; "" if the text has its own.
func givenUnit(key, text string) string {
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return ""
	}
	if strings.HasSuffix(key, "latency") {
		return "s"
	}
	return "MB/s"
}

// printKnown prints what is known of a node, with where each number comes from. mean is the mean
// size of a sample in MB.
func printKnown(n *perfmodel.Node, mean float64, out io.Writer) error {
	fmt.Fprintln(out, "environment:")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	value := func(name, what string, v perfmodel.Value) {
		if v.Number > 0 {
			fmt.Fprintf(w, "  %s\t%.4g MB/s%s\t%s\n", name, v.Number, what, v.Origin)
		}
	}
	tier := func(name string, k perfmodel.Known) {
		streams := max(n.Streams, 1)
		fmt.Fprintf(w, "  %s\t%.4g MB/s, latency %.3g ms, with %s\t%s\n", name,
			k.Rate(streams, mean), 1000*k.Latency, count(streams, "stream"), k.Origin)
	}
	value("compute", ", consumed by training", n.Compute)
	value("preprocess", " per thread", n.Preprocess)
	for _, c := range n.Classes {
		name := printable.Name(c.Name)
		tier(name, c.Read)
		if c.Path != "" {
			fmt.Fprintf(w, "  %s, writes\t%.4g MB/s with %s\t%s\n", name,
				c.Write.Rate(max(c.Stores, 1), mean), count(max(c.Stores, 1), "stream"),
				c.Write.Origin)
		}
	}
	tier("network", n.Network)
	tier("source", n.Source)
	for _, p := range n.Sources {
		fmt.Fprintf(w, "  source, %s reading\t%.4g MB/s\t%s\n", count(p.Clients, "node"), p.MBps,
			n.SourcesOrigin)
	}
	value("source_network", "", n.SourceNetwork)
	return w.Flush()
}
