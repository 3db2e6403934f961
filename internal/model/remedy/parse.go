package remedy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// keys are all keys, in the order in which they are listed.
var keys = []Key{Threads, Memory, Cache, Nodes, SourceRate, NetworkRate, ComputeSpeed}

// rateAllowed describes how a rate is written.
const rateAllowed = `a rate above 0 such as 200 (MB/s), "200MB/s", "2GB/s" or "10Gbit/s", or how ` +
	`many times the present one, such as "2x"`

// allowed describes, for each key, the values that it takes.
var allowed = map[Key]string{
	Threads: "a whole number from 1 to " + strconv.Itoa(mostThreads) + ", per node",
	Memory:  human.Allowed + ", per node",
	Cache: human.Allowed + `, per node, and "@" and a rate if it is to be on another disk, ` +
		`such as "1TB@2GB/s"`,
	Nodes:        "a whole number from 1 to " + strconv.Itoa(mostNodes),
	SourceRate:   rateAllowed + ", for all nodes together",
	NetworkRate:  rateAllowed + ", that a node gets from the others",
	ComputeSpeed: rateAllowed + ", that a node consumes",
}

// Parse parses changes such as "memory=64GB,nodes=8". Errors name the key, its value and what is
// allowed.
func Parse(text string) ([]Change, error) {
	var changes []Change
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		key := Key(strings.TrimSpace(name))
		value = strings.TrimSpace(value)
		switch {
		case !ok:
			return nil, fmt.Errorf("%q is not KEY=VALUE; allowed keys: %s", part, keyNames())
		case !slices.Contains(keys, key):
			return nil, fmt.Errorf("%q is not a key; allowed: %s", string(key), keyNames())
		case slices.ContainsFunc(changes, func(c Change) bool { return c.Key == key }):
			return nil, fmt.Errorf("%s is given twice", key)
		}
		c, ok := parse(key, value)
		if !ok {
			return nil, fmt.Errorf("%s is %q; allowed: %s", key, value, allowed[key])
		}
		changes = append(changes, c)
	}
	return changes, nil
}

func keyNames() string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// parse parses one value.
func parse(key Key, value string) (c Change, ok bool) {
	c.Key = key
	whole := func(most int) bool {
		n, err := strconv.Atoi(value)
		c.Amount = float64(n)
		return err == nil && n >= 1 && n <= most
	}
	switch key {
	case Threads:
		return c, whole(mostThreads)
	case Nodes:
		return c, whole(mostNodes)
	case Memory, Cache:
		capacity, speed, fast := strings.Cut(value, "@")
		if fast {
			if c.Speed, ok = parseRate(speed); !ok || key == Memory {
				return c, false
			}
		}
		n, err := human.Parse(capacity)
		c.Amount = float64(n)
		return c, err == nil
	case SourceRate, NetworkRate, ComputeSpeed:
		if times, is := strings.CutSuffix(strings.ToLower(value), "x"); is {
			v, err := strconv.ParseFloat(times, 64)
			c.Times = v
			return c, err == nil && v >= 1e-6 && v <= mostTimes
		}
		c.Amount, ok = parseRate(value)
	}
	return c, ok
}

// mostTimes is how many times the present rate one may be.
const mostTimes = 1e6

// rateUnits are units of rates, in MB/s.
var rateUnits = []struct {
	name string
	mbps float64
}{
	{"gbit/s", 125}, {"mbit/s", 0.125}, {"gb/s", 1000}, {"mb/s", 1}, {"kb/s", 1e-3},
}

// parseRate parses a rate in MB/s, or with a unit.
func parseRate(text string) (mbps float64, ok bool) {
	text, factor := strings.ToLower(strings.TrimSpace(text)), 1.0
	for _, u := range rateUnits {
		if number, is := strings.CutSuffix(text, u.name); is {
			text, factor = strings.TrimSpace(number), u.mbps
			break
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	v *= factor
	return v, err == nil && v >= 1e-6 && v <= 1e9 && !math.IsNaN(v)
}
