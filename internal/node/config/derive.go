package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/store"
)

// derive replaces Auto by measured values, except where another package does that (the field is
// zero then), and sets StorageClasses.
func (r *resolver) derive() {
	if r.isAuto("decode_memory") {
		r.deriveDecodeMemory()
	}
	if r.classes != nil {
		r.takeClasses()
		return
	}
	if r.isAuto("memory") {
		r.deriveMemory()
	}
	for _, kind := range r.input.Classes {
		if class, asked := r.askedByKeys(kind); asked {
			r.config.StorageClasses = append(r.config.StorageClasses, class)
		}
	}
}

// validate checks what involves several keys, or the machine.
func (r *resolver) validate() {
	r.checkTLS()
	r.checkShare()
	r.checkAdditions()
	r.checkClasses()
}

// checkAdditions rejects arguments that only add to a class which a job's keys ask for, such as the
// size of a cache on a disk, if there is no class of that kind. In other layers they may be for the
// jobs that have one.
func (r *resolver) checkAdditions() {
	var checked []string
	for _, kind := range r.input.Classes {
		for _, o := range kind.Options {
			if o.Job != "" && !o.Required && !slices.Contains(checked, o.Job) {
				checked = append(checked, o.Job)
				r.checkAddition(o.Job)
			}
		}
	}
}

func (r *resolver) checkAddition(key string) {
	g := r.given[key]
	if g.source != argument || r.isAuto(key) {
		return
	}
	var asking []string // keys that ask for a class to which this one adds
	for _, kind := range r.input.Classes {
		if !slices.ContainsFunc(kind.Options, func(o store.Option) bool { return o.Job == key }) {
			continue
		}
		if slices.ContainsFunc(r.config.StorageClasses, func(c StorageClass) bool {
			return c.Kind == kind.Name
		}) {
			return
		}
		for _, o := range kind.Options {
			if o.Job != "" && o.Required {
				asking = append(asking, o.Job)
			}
		}
	}
	if without := strings.Join(asking, " or "); without != "" {
		r.problem(Problem{
			Key: key, Value: g.text, Source: g.source,
			Wrong: "has no effect without " + without, Allowed: "only with " + without,
		})
	}
}

func (r *resolver) isAuto(key string) bool {
	return r.config.Origins[key].Value == option.Auto
}

func (r *resolver) deriveMemory() {
	available := r.input.Machine.AvailableMemory
	if available == nil {
		r.config.Origins["memory"] = Origin{
			Value:  "0",
			Source: "default: the available memory is unknown",
		}
		return
	}
	n, err := available()
	if err != nil {
		p, _ := Lookup("memory")
		r.problem(Problem{
			Key: "memory", Value: option.Auto, Source: "default",
			Wrong: "cannot measure the available memory: " + err.Error(), Allowed: p.Allowed(),
			Err: err,
		})
		return
	}
	r.config.Memory = max(n/2, 0)
	r.config.Origins["memory"] = Origin{
		Value:  human.Format(r.config.Memory),
		Source: fmt.Sprintf("measured: half of %s available", human.Format(n)),
	}
}

// LeastDecodeMemory is the smallest decode_memory that is derived, in bytes: an image of 10 million
// pixels fits.
const LeastDecodeMemory = 64 << 20

// deriveDecodeMemory leaves enough for the memory class, by default half of what is available, and
// for everything else.
func (r *resolver) deriveDecodeMemory() {
	const (
		most         = 4 << 30
		perProcessor = 256 << 20
		unknown      = 1 << 30
	)
	m := r.input.Machine
	n, source := int64(unknown), "default: the available memory is unknown"
	if m.AvailableMemory != nil {
		// An error is reported by deriveMemory or checkMemory.
		if available, err := m.AvailableMemory(); err == nil {
			n, source = available/8,
				fmt.Sprintf("measured: an eighth of %s available", human.Format(available))
		}
	}
	r.config.DecodeMemory = max(min(n, max(most, int64(m.Processors)*perProcessor)),
		LeastDecodeMemory)
	r.config.Origins["decode_memory"] = Origin{
		Value:  human.Format(r.config.DecodeMemory),
		Source: source,
	}
}

// checkTLS rejects an incomplete set of tls files, and files that would be ignored because tls is
// off. It reports one problem, for the first file that is given.
func (r *resolver) checkTLS() {
	c := r.config
	var given, missing []string
	var problem Problem
	for _, f := range []struct{ key, path string }{
		{"tls_cert", c.TLSCert},
		{"tls_key", c.TLSKey},
		{"tls_ca", c.TLSCA},
	} {
		if f.path == "" {
			missing = append(missing, f.key)
			continue
		}
		if given = append(given, f.key); len(given) == 1 {
			problem = Problem{Key: f.key, Value: f.path, Source: c.Origins[f.key].Source}
		}
	}
	switch {
	case len(given) == 0 || c.TLS && len(missing) == 0:
		return
	case !c.TLS:
		problem.Wrong = "has no effect while tls is off"
		problem.Remedy = "set tls = on"
		if len(missing) > 0 {
			problem.Remedy += " and " + human.And(missing)
		}
		problem.Remedy += ", or remove " + human.And(given)
	default:
		problem.Wrong = "given without " + human.And(missing)
		problem.Remedy = "tls_cert, tls_key and tls_ca go together: set all or none"
	}
	r.problem(problem)
}

// checkShare rejects arguments of a loader that mean a group and name none.
func (r *resolver) checkShare() {
	c := r.config
	if c.Share != "" {
		return
	}
	if o := c.Origins["share"]; o.Source == "argument" && o.Value != "" {
		r.problem(Problem{
			Key: "share", Value: o.Value, Source: o.Source,
			Wrong: "a name of blanks", Remedy: "give the group a name, or leave share out",
		})
	}
	for _, k := range []struct {
		key   string
		given bool
	}{{"share_members", c.ShareMembers > 0}, {"share_join", c.ShareJoin}} {
		if o := c.Origins[k.key]; o.Source == "argument" && k.given {
			r.problem(Problem{
				Key: k.key, Value: o.Value, Source: o.Source,
				Wrong: "given without share", Remedy: "name the group: share = search",
			})
		}
	}
}
