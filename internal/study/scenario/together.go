package scenario

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// together checks conditions on several values. Values that are 0 are missing or invalid and have
// been reported already.
func (r *reader) together() {
	s := r.scenario
	if s.GlobalBatch > 0 && s.GlobalBatch < s.Nodes && s.Scheme != access.Whole {
		r.fault("environment.nodes", int64(s.Nodes),
			fmt.Sprintf("more nodes than samples in a batch, job.global_batch_size = %d",
				s.GlobalBatch),
			fmt.Sprintf("1 to %d, or a larger batch", s.GlobalBatch))
	}
	r.mixed()
	if n := s.positions(); s.DropLast && n > 0 && s.GlobalBatch > n {
		of := "the dataset"
		if s.mix != nil {
			of = "the epoch"
		}
		r.fault("job.global_batch_size", int64(s.GlobalBatch),
			fmt.Sprintf("larger than %s of %d samples, so with drop_last no batch remains", of, n),
			fmt.Sprintf("1 to %d, or drop_last = false", n))
	}
	r.sizes()
	r.sharing()
	r.forms()
	r.tables()
	if s.order != "" && s.Dataset.Samples > 0 && s.Epochs > 0 {
		r.order()
	}
}

// mixed checks a mix of datasets, which are the samples of the dataset.
func (r *reader) mixed() {
	s := r.scenario
	if s.mix == nil {
		if r.epochSize > 0 && r.given == nil {
			r.fault("job.epoch_size", int64(r.epochSize), "there is no job.mix: an epoch has all "+
				"samples", "job.mix together with epoch_size")
		}
		return
	}
	switch {
	case r.epochSize == 0:
		r.fault("job.mix", r.given, "job.epoch_size is missing",
			"epoch_size, the samples of an epoch, together with mix")
	case s.order != "":
		r.fault("job.order", s.order, "job.mix has an order of its own", "one of the two")
	case s.Profile == simulate.Thesis:
		r.fault("job.mix", r.given, `profile "thesis" has one dataset only`,
			`no mix, or profile "model"`)
	}
	s.mix.Entries = r.epochSize
	sum := 0
	for _, n := range s.mix.Sizes {
		sum += n
	}
	if s.Dataset.Samples > 0 && sum != s.Dataset.Samples {
		r.fault("job.mix", r.given, fmt.Sprintf("its datasets have %d samples, and the "+
			"dataset has %d", sum, s.Dataset.Samples), "as many samples as the dataset has")
	}
}

// sharing checks what jobs share: a group, cores, and that the profile supports these.
func (r *reader) sharing() {
	s, p := r.scenario, r.scenario.Env.Processors
	if s.Share && s.Jobs == 1 {
		r.fault("job.share", true, "there is one job, job.jobs = 1, and none to share with",
			"false, or 2 jobs or more")
	}
	if most := maxNodes; s.Jobs*s.Nodes > most {
		r.fault("job.jobs", int64(s.Jobs),
			fmt.Sprintf("with %d nodes more than %d ranks", s.Nodes, most),
			fmt.Sprintf("1 to %d", max(1, most/s.Nodes)))
	}
	if p.Hyperthreads > 0 && p.Cores == 0 {
		r.fault("environment.hyperthreads", int64(p.Hyperthreads),
			"environment.cores is missing", "hyperthreads together with cores")
	} else if p.Hyperthreads > 0 && p.Hyperthreads < p.Cores {
		r.fault("environment.hyperthreads", int64(p.Hyperthreads),
			fmt.Sprintf("fewer than environment.cores = %d", p.Cores),
			fmt.Sprintf("%d or more", p.Cores))
	}
	if s.Profile == simulate.Thesis && s.Jobs > 1 {
		r.fault("job.jobs", int64(s.Jobs), `profile "thesis" has one job only`,
			`1, or profile "model"`)
	}
	if s.Profile == simulate.Thesis && p.Cores > 0 {
		r.fault("environment.cores", int64(p.Cores), `profile "thesis" has threads only`,
			`no cores, or profile "model"`)
	}
}

// forms checks how samples are kept, and sets what follows from the rest: forms are of JPEGs unless
// a size is given, and sent if nodes send forms of this size.
func (r *reader) forms() {
	s := r.scenario
	f := &s.Forms
	switch {
	case r.unread: // it has a fault of its own
		return
	case f.Time == 0 && f.Size != 0:
		r.fault("job.forms_size", f.Size, "job.forms is missing", "forms together with forms_size")
	case f.Time == 0 && r.sent != nil:
		r.fault("job.forms_sent", r.sent, "job.forms is missing", "forms together with forms_sent")
	case f.Time > 0 && s.Profile == simulate.Thesis:
		r.fault("job.forms", f.Time, `profile "thesis" has no forms`, `no forms, or profile "model"`)
	}
	if f.Time == 0 {
		return
	}
	f.Size = cmp.Or(f.Size, model.FormSize)
	if r.sent == nil {
		f.Sent = f.Size <= model.MostSent
	} else if f.Sent && f.Size > model.MostSent {
		r.fault("job.forms_sent", true, fmt.Sprintf("nodes send the samples whose forms take more "+
			"than %v times their size, and job.forms_size = %v", model.MostSent, f.Size),
			fmt.Sprintf("false, or forms_size up to %v", model.MostSent))
	}
}

// Unmet reports the policies that cannot run on this machine, and why, if the policies were named
// individually. With "all", such policies are skipped.
func (s *Scenario) Unmet() Faults {
	var faults Faults
	for _, policy := range s.Policies {
		if why := s.Needs(policy); why != "" && (s.named || slices.Contains(s.files, policy)) {
			faults = append(faults, Fault{
				Key: "simulate.policies", Value: policy, Wrong: why,
				Allowed: `a capacity above 0, or "all", which skips policies that cannot run`,
			})
		}
	}
	return faults
}

// order checks that the order has a permutation of the samples for each epoch.
func (r *reader) order() {
	s := r.scenario
	order, err := r.file.orderOf(s.order)
	if err != nil {
		r.fault("job.order", s.order, err.Error(),
			"a line per epoch, with the numbers of all samples in the epoch's order")
		return
	}
	if len(order) != s.Epochs {
		r.fault("job.order", s.order, fmt.Sprintf("it has the order of %d epochs", len(order)),
			fmt.Sprintf("a line for each of the %d epochs", s.Epochs))
	}
	seen := make([]int, s.Dataset.Samples)
	for e, epoch := range order {
		if len(epoch) != len(seen) {
			r.fault("job.order", s.order, fmt.Sprintf("line %d has %d samples", e+1, len(epoch)),
				fmt.Sprintf("each of the %d samples once", len(seen)))
			continue
		}
		for _, k := range epoch {
			if k < 0 || int(k) >= len(seen) || seen[k] == e+1 {
				r.fault("job.order", s.order,
					fmt.Sprintf("line %d has sample %d twice, or there is no such sample", e+1, k),
					fmt.Sprintf("each number from 0 to %d once", len(seen)-1))
				break
			}
			seen[k] = e + 1
		}
	}
}
