package render

import (
	"encoding/csv"
	"io"
	"strconv"
)

// CSV writes one line per point and policy, with numbers as in JSON.
func (r *Report) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	head := append([]string{}, r.Sweep...)
	head = append(head, "policy", "profile", "seed", "supported", "reason", "runtime_s",
		"before_training_s", "stall_s")
	tiers := r.Tiers()
	for _, p := range tiers {
		name := p.Key
		if name != "source" && name != "remote" {
			name = "local_" + name
		}
		head = append(head, name+"_samples", name+"_mb")
	}
	head = append(head, "source_mb_total", "lower_bound_source_mb", "source_share_of_bound",
		"dataset_seen_per_epoch", "distance_from_shuffle", "time_bound_s", "share_of_time_bound")
	if r.Scaling {
		head = append(head, "speedup", "efficiency")
	}
	if r.modelled() {
		for _, m := range r.Points[0].Model.Methods {
			head = append(head, "model_"+m.Key+"_s")
		}
	}
	speedups := r.speedups()
	lines := [][]string{head}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for i := range r.Points {
		point := &r.Points[i]
		for _, p := range point.Policies {
			line := append([]string{}, point.Values...)
			line = append(line, p.Name, r.Profile, strconv.FormatUint(r.Seed, 10),
				strconv.FormatBool(p.Supported), p.Reason)
			if !p.Supported { // empty fields, because zeros would look like results
				for len(line) < len(head) {
					line = append(line, "")
				}
				lines = append(lines, line)
				continue
			}
			line = append(line, number(p.Runtime), number(p.BeforeTraining), number(p.Stall))
			for _, where := range tiers {
				a := p.From(where.Key)
				line = append(line, strconv.FormatInt(a.Samples, 10), number(a.MB))
			}
			line = append(line, number(p.SourceTotal), number(point.Bound), number(p.ShareOfBound),
				number(p.SeenPerEpoch), number(p.Shuffle))
			if point.TimeBound > 0 {
				line = append(line, number(point.TimeBound), number(p.ShareOfTimeBound))
			} else {
				line = append(line, "", "")
			}
			if s, ok := speedups[i][p.Name]; ok {
				line = append(line, number(s.Speedup), number(s.Efficiency))
			}
			if point.Model != nil {
				for _, m := range point.Model.Methods {
					line = append(line, number(m.Runtime))
				}
			}
			lines = append(lines, line)
		}
	}
	if err := out.WriteAll(lines); err != nil {
		return err
	}
	return out.Error()
}
