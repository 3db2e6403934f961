// Package room lists the rooms of the program, in which mutants are planted, with the suites that
// should find them.
package room

import (
	"fmt"
	"slices"
	"strings"
)

// Rooms with their suites. Names are relative to internal/. A package is a suite of its own room;
// those that follow "<" are above it.
const rooms = `
access: access < stage
audit: audit < job node
placement: placement placement/builder placement/policies < planner simulate
replan: placement/replan < planner node
meter: meter < cache breaker
dataset: dataset dataset/tree dataset/retry < dataset/folder cache
index: dataset/folder dataset/folder/indexfile < catalog
storageclass: storageclass < storageclass/file storageclass/memory cache
arena: storageclass/arena < storageclass/memory storageclass/file
memory: storageclass/memory < cache stage
file: storageclass/file storageclass/file/disk storageclass/file/layout < cache catalog
staging: staging < stage
transform: transform transform/runner < stage
writeback: writeback < cache
pool: pool < cache
cache: cache cache/digests cache/flights < stage node
stage: stage < node
catalog: catalog < node
planner: planner < node
lockstep: lockstep < job node
admission: admission < exchange cluster
identity: identity < exchange cluster
wire: exchange/wire < exchange/link exchange
exchange: exchange exchange/link < breaker node
breaker: breaker < coordinator node
cluster: cluster < coordinator node
order: order < job node
job: job < node
coordinator: coordinator < node
daemon: daemon < cmd/hdmlp
python:
`

// Room is a part of the program. Packages are directories relative to the module's root.
type Room struct {
	Name     string
	Packages []string // suites of its own
	Above    []string // further suites
}

// Secure are files in which every mutant is one of a security step.
var Secure = []string{
	"internal/identity/identity.go", "internal/identity/session.go",
	"internal/identity/certificate.go", "internal/exchange/handshake.go",
	"internal/admission/admission.go", "internal/cluster/secret.go", "internal/cluster/tls.go",
}

// All returns all rooms.
func All() []Room {
	var all []Room
	for line := range strings.Lines(strings.TrimSpace(rooms)) {
		name, suites, _ := strings.Cut(line, ":")
		own, above, _ := strings.Cut(suites, "<")
		all = append(all, Room{name, directories(own), directories(above)})
	}
	return all
}

func directories(names string) []string {
	var all []string
	for _, name := range strings.Fields(names) {
		if !strings.HasPrefix(name, "cmd/") {
			name = "internal/" + name
		}
		all = append(all, name)
	}
	return all
}

// Directory returns the directory of the room's first package, below internal, by which
// docs/RELIABILITY.md calls it; "": the room has none.
func (r Room) Directory() string {
	if len(r.Packages) == 0 {
		return ""
	}
	return strings.TrimPrefix(r.Packages[0], "internal/")
}

// Chosen returns the rooms in a list with commas, named by their names or directories; all of them
// for "".
func Chosen(names string) ([]Room, error) {
	all := All()
	if names == "" {
		return all, nil
	}
	var some []Room
	for name := range strings.SplitSeq(names, ",") {
		k := slices.IndexFunc(all, func(r Room) bool { return r.Name == name })
		if k < 0 && name != "" {
			k = slices.IndexFunc(all, func(r Room) bool { return r.Directory() == name })
		}
		if k < 0 {
			var known []string
			for _, r := range all {
				known = append(known, r.Name)
				if d := r.Directory(); d != "" && d != r.Name {
					known[len(known)-1] += " (or " + d + ")"
				}
			}
			return nil, fmt.Errorf("ROOM=%s: no such room; there are %s", name,
				strings.Join(known, ", "))
		}
		if !slices.ContainsFunc(some, func(r Room) bool { return r.Name == all[k].Name }) {
			some = append(some, all[k])
		}
	}
	return some, nil
}
