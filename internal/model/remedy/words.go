package remedy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// text describes the change of a job.
func (r *Remedy) text(job *Run) string {
	text := r.change(job.Entries)
	if r.Key == Threads && r.Amount <= float64(job.Processors) {
		text = fmt.Sprintf("transform_threads=%.0f instead of %.0f", r.Amount, r.From)
	}
	if !job.Caches && (r.Key == Memory || r.Key == Cache) {
		text += " and a policy that caches, such as cooperative"
	}
	if len(r.Guessed) > 0 {
		text += " (not measured: " + strings.Join(r.Guessed, ", ") + ")"
	}
	return text
}

// change describes it by the keys that the user has: with entries, those of [[storage_class]].
func (r *Remedy) change(entries bool) string {
	memory, cache := "memory=", "a cache_dir"
	if entries {
		memory, cache = "a [[storage_class]] of kind memory with ", "a [[storage_class]] of kind file"
	}
	switch r.Key {
	case Threads:
		return fmt.Sprintf("%.0f CPUs for transforms instead of %.0f", r.Amount, r.From)
	case Memory:
		return fmt.Sprintf("%s%s per node instead of %s", memory, bytes(r.Amount), now(r.From))
	case Cache:
		disk := ""
		if r.Speed > 0 {
			disk = fmt.Sprintf(" on a disk that reads %.0f MB/s", r.Speed)
		}
		switch {
		case r.From == 0:
			return fmt.Sprintf("%s with %s per node%s", cache, bytes(r.Amount), disk)
		case r.From == r.Amount:
			return cache + disk
		}
		return fmt.Sprintf("%s with %s per node%s instead of %s", cache, bytes(r.Amount), disk,
			now(r.From))
	case Deal:
		return fmt.Sprintf("policy=locality, which deals the same global batches so that nodes read "+
			"%.1f %% of their samples from others instead of %.1f %%", 100*r.Amount, 100*r.From)
	case Nodes:
		return fmt.Sprintf("%.0f nodes instead of %.0f", r.Amount, r.From)
	case SourceRate:
		return fmt.Sprintf("a source of %s MB/s instead of %s", rate(r.Amount), rate(r.From))
	case NetworkRate:
		return fmt.Sprintf("a network of %s MB/s instead of %s", rate(r.Amount), rate(r.From))
	case ComputeSpeed:
	}
	return string(r.Key)
}

// String formats a change as Parse reads it.
func (c Change) String() string {
	value := fmt.Sprintf("%.0f", c.Amount)
	switch c.Key {
	case Memory, Cache:
		value = human.Format(int64(c.Amount))
		if c.Speed > 0 {
			value += "@" + rate(c.Speed) + "MB/s"
		}
	case SourceRate, NetworkRate, ComputeSpeed:
		value = rate(c.Amount) + "MB/s"
		if c.Times > 0 {
			value = strconv.FormatFloat(c.Times, 'g', -1, 64) + "x"
		}
	case Deal:
		value = strconv.FormatFloat(c.Amount, 'g', 3, 64)
	case Threads, Nodes:
	}
	return string(c.Key) + "=" + value
}

// now formats the present amount.
func now(n float64) string {
	if n == 0 {
		return "none"
	}
	return human.Format(int64(n))
}

// bytes formats an amount that must not become smaller: rounded up.
func bytes(n float64) string {
	unit := 1.0
	for n >= 1024*unit {
		unit *= 1024
	}
	if unit > 1 {
		n = math.Ceil(math.Ceil(n*10/unit) * unit / 10)
	}
	return human.Format(int64(n))
}

func rate(mbps float64) string {
	if mbps < 10 {
		return strconv.FormatFloat(mbps, 'g', 3, 64)
	}
	return strconv.FormatFloat(mbps, 'f', 0, 64)
}

// Name names a resource in a sentence.
func Name(resource string) string {
	switch resource {
	case Compute:
		return "computation"
	case Preprocessing:
		return "transforming samples"
	case Source:
		return "the source"
	case Network:
		return "the network between nodes"
	case Python:
		return "Python code that makes batches"
	}
	return "storage class " + resource
}

// Sentence describes what limits, and the cheapest remedy.
func (n *Now) Sentence(remedies []Remedy) string {
	var b strings.Builder
	limit := Name(n.Resource)
	fmt.Fprintf(&b, "%s limits later epochs", strings.ToUpper(limit[:1])+limit[1:])
	if n.Resource == Python {
		b.WriteString(": increase num_workers, or use transforms that the daemon can run.")
		return b.String()
	}
	fmt.Fprintf(&b, ": by the model they take %s", seconds(n.Epoch))
	if n.Measured > 0 {
		fmt.Fprintf(&b, " (measured: %s%s)", seconds(n.Measured), n.besides())
	}
	switch {
	case n.Resource == Compute:
		b.WriteString(", and faster loading would not shorten them.")
	case len(remedies) == 0:
		b.WriteString("; no change of one thing alone would lift that.")
	default:
		r := &remedies[0]
		fmt.Fprintf(&b, ". The cheapest remedy is %s: they would take %s, and %s would limit.",
			r.Text, seconds(r.After), Name(r.Resource))
	}
	if len(n.Guessed) > 0 {
		fmt.Fprintf(&b, " Not measured yet: %s.", strings.Join(n.Guessed, ", "))
	}
	return b.String()
}

// besides describes how much of a measured epoch the prediction leaves out; "" if that is little.
func (n *Now) besides() string {
	if n.Other == 0 {
		return ""
	}
	waits := ""
	if n.silent {
		waits = ", or to waiting for other nodes"
	}
	return fmt.Sprintf(", of which at least %s went to steps longer than usual, or to other things "+
		"than steps%s", seconds(n.Other), waits)
}

// Line describes what limits, in few words.
func (n *Now) Line(remedies []Remedy) string {
	line := "limit: " + n.Resource
	if n.Resource != Python {
		line += fmt.Sprintf(", %s an epoch by the model", seconds(n.Epoch))
	}
	if n.Next != nil {
		line += fmt.Sprintf("; next %s %s", n.Next.Resource, seconds(n.Next.Seconds))
	}
	if len(remedies) > 0 {
		line += fmt.Sprintf("; %s: %s", remedies[0].Text, seconds(remedies[0].After))
	}
	return line
}

// seconds formats a time with three digits.
func seconds(s float64) string {
	switch {
	case s >= 100:
		return fmt.Sprintf("%.0f s", s)
	case s >= 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 0.01:
		return fmt.Sprintf("%.2f ms", 1000*s)
	}
	return strconv.FormatFloat(s, 'g', 3, 64) + " s"
}
