// Package prometheus serves the reports of jobs in Prometheus's text format. No other package
// imports the Prometheus client.
package prometheus

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Handler serves what reports returns at the time of each request. Labels are the job's name and
// the node's number and, where they apply, the rank, the cause of a stall, the tier of a read or
// the storage class.
func Handler(reports func(context.Context) []*report.ClusterReport) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		promhttp.HandlerFor(registry(reports(r.Context())), promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

// Write writes what Handler serves.
func Write(w io.Writer, reports []*report.ClusterReport) error {
	families, err := registry(reports).Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

func registry(reports []*report.ClusterReport) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collector(reports))
	return r
}

type collector []*report.ClusterReport

var (
	up = desc("hdmlp_node_up",
		"whether the node answered; if not, its other metrics are its last known values")
	stall = desc("hdmlp_stall_seconds_total", "time that next() was blocked, by cause",
		"rank", "cause")
	batches   = desc("hdmlp_batches_total", "batches delivered to the training loop", "rank")
	samples   = desc("hdmlp_samples_total", "samples delivered to the training loop", "rank")
	readBytes = desc("hdmlp_read_bytes_total",
		"bytes of consumed samples by the tier they were read from", "rank", "tier")
	sourceBytes = desc("hdmlp_source_bytes_total", "bytes read from the source for the job")
	bound       = desc("hdmlp_source_bound_bytes",
		"lower bound of the bytes read from the source with these caches: the node's share")
	utilisation = desc("hdmlp_utilisation_ratio",
		"share of the time in which next() was not blocked")
	capacity = desc("hdmlp_storage_class_capacity_bytes",
		"capacity of a storage class for the dataset", "class")
	used = desc("hdmlp_storage_class_used_bytes",
		"bytes of the dataset that a storage class holds", "class")
	gaveBack = desc("hdmlp_storage_class_given_back_bytes_total",
		"memory that a storage class gave back because memory was short", "class")
	short = desc("hdmlp_storage_class_given_back_now_bytes",
		"of that, what it gave back since memory became short; 0 if it no longer is", "class")
	viewed = desc("hdmlp_storage_class_viewed_bytes",
		"given back memory that is not free yet, because processes use it", "class")
	formed = desc("hdmlp_storage_class_forms_samples",
		"images that a storage class holds as coefficients, or with their pixels", "class")
	formedBytes = desc("hdmlp_storage_class_forms_bytes",
		"bytes of these coefficients, pixels and files", "class")
	formedAsRead = desc("hdmlp_storage_class_forms_as_read_bytes",
		"bytes that the files of these images have", "class")
	formedSeconds = desc("hdmlp_storage_class_forms_seconds_total",
		"time of processors that images took to become coefficients or pixels, and files again",
		"class")
	formedAgain = desc("hdmlp_storage_class_forms_read_again_total",
		"files that were read again, because their coefficients do not give them", "class")
	formedSent = desc("hdmlp_storage_class_forms_sent_total",
		"coefficients that were sent to other nodes", "class")
	formedReceived = desc("hdmlp_storage_class_forms_received_total",
		"coefficients that came from other nodes", "class")
	formedUnpacked = desc("hdmlp_storage_class_forms_unpacked_total",
		"files that were made of coefficients for other nodes", "class")
	staging = desc("hdmlp_staging_used_bytes", "bytes in use in a rank's staging buffer",
		"rank")
	stagingSize = desc("hdmlp_staging_size_bytes", "size of a rank's staging buffer", "rank")
	faults      = desc("hdmlp_unreadable_samples", "samples that could not be read")
	requests    = desc("hdmlp_store_requests_total",
		"requests to the dataset's object store; retries and hedges are among those for bytes (get)",
		"kind")
	answers = desc("hdmlp_store_bytes_total", "bytes of the object store's answers")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"job", "node"}, labels...), nil)
}

// Describe sends nothing: label values are known only at collection.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the reports as metrics.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, r := range c {
		for i := range r.Nodes {
			collectNode(out, r.Job, &r.Nodes[i])
		}
	}
}

func collectNode(out chan<- prometheus.Metric, jobName string, n *report.NodeReport) {
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		labels = append([]string{jobName, strconv.Itoa(n.Node)}, labels...)
		for i, label := range labels {
			labels[i] = human.Text(label) // the format allows control characters, a terminal acts on them
		}
		out <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	if n.Assembling {
		return // no numbers yet
	}
	answered := 0.0
	if n.Responding {
		answered = 1
	}
	send(up, prometheus.GaugeValue, answered)
	if n.Age < 0 {
		return // the node has never answered
	}
	for _, rank := range n.Ranks {
		name := strconv.Itoa(rank.Rank)
		send(batches, prometheus.CounterValue, float64(rank.Batches), name)
		send(samples, prometheus.CounterValue, float64(rank.Samples), name)
		for cause, s := range rank.Stall {
			send(stall, prometheus.CounterValue, s, name, cause)
		}
		for tier, n := range rank.Reads {
			send(readBytes, prometheus.CounterValue, float64(n.Bytes), name, tier)
		}
		send(staging, prometheus.GaugeValue, float64(rank.Staging.Used+rank.Staging.Extra), name)
		send(stagingSize, prometheus.GaugeValue, float64(rank.Staging.Size), name)
	}
	send(sourceBytes, prometheus.CounterValue, float64(n.Source.Bytes))
	send(bound, prometheus.GaugeValue, float64(n.Bound))
	send(utilisation, prometheus.GaugeValue, n.Utilisation)
	for _, class := range n.Classes {
		send(capacity, prometheus.GaugeValue, float64(class.Capacity), class.Name)
		send(used, prometheus.GaugeValue, float64(class.Used), class.Name)
		var r report.Returned
		if class.Returned != nil {
			r = *class.Returned
		}
		send(gaveBack, prometheus.CounterValue, float64(r.Bytes), class.Name)
		send(short, prometheus.GaugeValue, float64(r.Now), class.Name)
		send(viewed, prometheus.GaugeValue, float64(r.Viewed), class.Name)
		if f := class.Forms; f != nil {
			send(formed, prometheus.GaugeValue, float64(f.Samples), class.Name)
			send(formedBytes, prometheus.GaugeValue, float64(f.Bytes), class.Name)
			send(formedAsRead, prometheus.GaugeValue, float64(f.AsRead), class.Name)
			send(formedSeconds, prometheus.CounterValue, f.Seconds, class.Name)
			send(formedAgain, prometheus.CounterValue, float64(f.Reread), class.Name)
			send(formedSent, prometheus.CounterValue, float64(f.Sent), class.Name)
			send(formedReceived, prometheus.CounterValue, float64(f.Received), class.Name)
			send(formedUnpacked, prometheus.CounterValue, float64(f.Unpacked), class.Name)
		}
	}
	send(faults, prometheus.GaugeValue, float64(n.Unreadable))
	if r := n.Requests; r != nil {
		for kind, n := range map[string]int64{
			"get": r.Gets, "retry": r.Again, "hedge": r.Hedges, "head": r.Heads, "list": r.Lists,
		} {
			send(requests, prometheus.CounterValue, float64(n), kind)
		}
		send(answers, prometheus.CounterValue, float64(r.Bytes))
	}
}
