package devcluster

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is a number of bits per second; 0 means unlimited.
type Rate int64

// Bounds of a limited rate: less than a packet in ten seconds is useless, and the kernel's token
// bucket does not support more.
const (
	minRate Rate = 8e3
	maxRate Rate = 32e9
)

// maxDelay is the longest delay of a link.
const maxDelay = 60 * time.Second

var rateUnits = []struct {
	name string
	bits Rate
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// ParseRate parses a rate in the notation of tc(8): "10mbit", "1.5gbit", "unlimited".
func ParseRate(text string) (Rate, error) {
	lower := strings.ToLower(strings.TrimSpace(text))
	if lower == "unlimited" {
		return 0, nil
	}
	for _, u := range rateUnits {
		digits, ok := strings.CutSuffix(lower, u.name)
		if !ok {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || math.IsNaN(value) ||
			strings.Trim(strings.TrimSpace(digits), "0123456789.") != "" {
			break
		}
		bits := value * float64(u.bits)
		if bits < float64(minRate) || bits > float64(maxRate) {
			return 0, fmt.Errorf("rate %q is out of range; allowed: %s to %s, and \"unlimited\"",
				text, minRate, maxRate)
		}
		return Rate(bits), nil
	}
	return 0, fmt.Errorf("%q is not a rate; give it as \"10mbit\", \"1.5gbit\" (bits per second: "+
		"bit, kbit, mbit, gbit) or \"unlimited\"", text)
}

// String formats the rate as ParseRate parses it.
func (r Rate) String() string {
	if r == 0 {
		return "unlimited"
	}
	for _, u := range rateUnits {
		if r >= u.bits {
			return strconv.FormatFloat(float64(r)/float64(u.bits), 'f', -1, 64) + u.name
		}
	}
	return fmt.Sprintf("%dbit", int64(r))
}

// ParseDelay parses a delay: "1ms", "250us", "0".
func ParseDelay(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a delay; give it as \"1ms\", \"250us\" or \"0\"", text)
	}
	return d, checkDelay(d)
}

func checkDelay(d time.Duration) error {
	if d < 0 || d > maxDelay {
		return fmt.Errorf("delay %v is out of range; allowed: 0 to %v", d, maxDelay)
	}
	return nil
}

func checkRate(r Rate) error {
	if r != 0 && (r < minRate || r > maxRate) {
		return fmt.Errorf("rate %dbit is out of range; allowed: %s to %s, and 0 for no limit",
			int64(r), minRate, maxRate)
	}
	return nil
}
