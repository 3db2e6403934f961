// Package prometheus shows the reports of jobs in Prometheus's text format. It is
// the only package that knows Prometheus.
package prometheus

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hdmlp/hdmlp/internal/job"
)

// Handler serves what reports returns at the time of each request. Labels are
// the job's name, and where it applies the rank, the cause of a stall, the place
// of a read or the storage class.
func Handler(reports func() []*job.Report) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{reports})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

type collector struct {
	reports func() []*job.Report
}

var (
	stall       = desc("hdmlp_stall_seconds_total", "time that next() was blocked, by cause", "rank", "cause")
	batches     = desc("hdmlp_batches_total", "batches handed to the training loop", "rank")
	samples     = desc("hdmlp_samples_total", "samples handed to the training loop", "rank")
	readBytes   = desc("hdmlp_read_bytes_total", "bytes of consumed samples by the place they were read from", "rank", "place")
	sourceBytes = desc("hdmlp_source_bytes_total", "bytes that left the source for the job")
	bound       = desc("hdmlp_source_bound_bytes", "the least that could have left the source with these caches")
	utilisation = desc("hdmlp_utilisation_ratio", "share of the time in which next() was not blocked")
	room        = desc("hdmlp_storage_class_room_bytes", "room of a storage class for the dataset", "class")
	used        = desc("hdmlp_storage_class_used_bytes", "bytes that a storage class holds of the dataset", "class")
	staging     = desc("hdmlp_staging_used_bytes", "bytes in use in a rank's staging buffer", "rank")
	faults      = desc("hdmlp_unreadable_samples", "samples that could not be read")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"job"}, labels...), nil)
}

// Describe sends nothing: which label values there are is known at collection only.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect turns the reports into metrics.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, r := range c.reports() {
		if r.Assembling {
			continue // no numbers yet
		}
		send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, t, v, append([]string{r.Job}, labels...)...)
		}
		for _, rank := range r.Ranks {
			name := strconv.Itoa(rank.Rank)
			stalls, reads := map[string]float64{}, map[string]int64{}
			var nb, ns int64
			for _, e := range rank.Epochs {
				nb += e.Batches
				ns += e.Samples
				for cause, s := range e.Stall {
					stalls[cause] += s
				}
				for place, a := range e.Reads {
					reads[place] += a.Bytes
				}
			}
			send(batches, prometheus.CounterValue, float64(nb), name)
			send(samples, prometheus.CounterValue, float64(ns), name)
			for cause, s := range stalls {
				send(stall, prometheus.CounterValue, s, name, cause)
			}
			for place, n := range reads {
				send(readBytes, prometheus.CounterValue, float64(n), name, place)
			}
			send(staging, prometheus.GaugeValue, float64(rank.Staging.Used+rank.Staging.Extra), name)
		}
		send(sourceBytes, prometheus.CounterValue, float64(r.Source.Bytes))
		send(bound, prometheus.GaugeValue, float64(r.Bound))
		send(utilisation, prometheus.GaugeValue, r.Utilisation)
		for _, class := range r.Classes {
			send(room, prometheus.GaugeValue, float64(class.Room), class.Name)
			send(used, prometheus.GaugeValue, float64(class.Used), class.Name)
		}
		send(faults, prometheus.GaugeValue, float64(len(r.Faults)))
	}
}
