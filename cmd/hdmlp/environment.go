package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/node/config"
)

// modelValue is a number of the performance model as `hdmlp config` shows it.
type modelValue struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // "": not known
	Unit   string `json:"unit"`
	Most   string `json:"most,omitempty"` // of all streams together, in MB/s; "": not known
	Origin string `json:"origin"`         // given, probed (stored beside the index) or guessed
	Source string `json:"source"`         // the file, or when the number is measured
}

// modelOf returns the numbers of the performance model that a job begins with. stored is what is
// stored beside the index of its dataset; nil if the dataset is not known.
func modelOf(c *config.Config, stored *storedModel) (out []modelValue) {
	known := stored.startingNode(c)
	add := func(key string, v modelValue, origin model.Origin) {
		v.Key = strings.TrimPrefix(key, "environment.")
		given := givenKeys(c, key)
		for _, k := range given {
			o := c.Origins[k]
			out = append(out, modelValue{
				Key: strings.TrimPrefix(k, "environment."), Value: o.Value,
				Unit: givenUnit(key, o.Value), Origin: string(model.Given), Source: o.Source,
			})
		}
		if given != nil {
			return
		}
		v.Origin, v.Source = string(model.Guessed), "until a job has measured it"
		if origin == model.Probed {
			v.Origin, v.Source = string(origin), stored.Path
		}
		out = append(out, v)
	}
	value := func(key string, v model.Value) {
		text := ""
		if v.Number > 0 {
			text = fmt.Sprintf("%.4g", v.Number)
		}
		add(key, modelValue{Value: text, Unit: "MB/s"}, v.Origin)
	}
	tier := func(key string, k model.Known) {
		v := modelValue{Value: fmt.Sprintf("%.4g", 1/k.PerMB), Unit: "MB/s per stream"}
		if k.Origin == model.Probed && k.Queued > 0 {
			v.Most = fmt.Sprintf("%.4g", 1/k.Queued)
		}
		add(key, v, k.Origin)
	}
	value("environment.compute", known.Compute)
	value("environment.preprocess", known.Preprocess)
	tier("environment.network", known.Network)
	tier("environment.source", known.Source)
	add("environment.source_latency",
		modelValue{Value: fmt.Sprintf("%.4g", known.Source.Latency), Unit: "s"}, known.Source.Origin)
	value("environment.source_network", known.SourceNetwork)
	for i, class := range known.Classes {
		tier(fmt.Sprintf("storage_class[%d].read", i), class.Read)
		tier(fmt.Sprintf("storage_class[%d].write", i), class.Write)
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
func printKnown(n *model.Node, mean float64, out io.Writer) error {
	fmt.Fprintln(out, "environment:")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	value := func(name, what string, v model.Value) {
		if v.Number > 0 {
			fmt.Fprintf(w, "  %s\t%.4g MB/s%s\t%s\n", name, v.Number, what, v.Origin)
		}
	}
	tier := func(name string, k model.Known) {
		streams := max(n.Streams, 1)
		fmt.Fprintf(w, "  %s\t%.4g MB/s, latency %.3g ms, with %s\t%s\n", name,
			k.Rate(streams, mean), 1000*k.Latency, count(streams, "stream"), k.Origin)
	}
	value("compute", ", consumed by training", n.Compute)
	value("preprocess", " per thread", n.Preprocess)
	for _, c := range n.Classes {
		name := human.Name(c.Name)
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
