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
access: plan/access < engine/stage
audit: plan/audit < node/job node
plan: plan plan/builder plan/policies < node/planner study/simulate
routing: model/routing < model/meter engine/cache peers/breaker study/replay
model: model < model/remedy study/simulate study/replay node
meter: model/meter < engine/cache peers/breaker
source: source source/tree source/retry < source/folder engine/cache
index: source/folder source/index < node/catalog
store: store < store/file store/memory engine/cache
arena: store/arena < store/memory store/file
memory: store/memory < engine/cache engine/stage
pressure: store/pressure < store/memory node
file: store/file store/file/disk < engine/cache node/catalog
staging: engine/staging < engine/stage
transform: transform transform/runner < engine/stage
codec: transform/codec < transform
writeback: engine/cache/writeback < engine/cache
pool: engine/cache/pool < engine/cache
cache: engine/cache engine/cache/flights < engine/stage node
stage: engine/stage < node
share: engine/share engine/share/feed < node/groups node
catalog: node/catalog < node
planner: node/planner < node
lockstep: node/lockstep < node/job node
auth: peers/auth < peers/exchange peers/cluster/session peers/cluster/gossip
wire: peers/exchange/wire < peers/exchange/link peers/exchange
exchange: peers/exchange peers/exchange/link < peers/breaker node
breaker: peers/breaker < node/coordinator node
cluster: peers/cluster peers/cluster/session peers/cluster/hub peers/cluster/agent peers/cluster/gossip peers/cluster/outbox < node/coordinator node
order: node/order < node/job node
job: node/job < node
coordinator: node/coordinator < node
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
	"internal/peers/auth/identity.go", "internal/peers/auth/session.go",
	"internal/peers/auth/certificate.go", "internal/peers/exchange/handshake.go",
	"internal/peers/auth/admission.go", "internal/peers/cluster/session/seal.go",
	"internal/peers/cluster/session/tls.go",
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
